"""Which pods a queue may take back from others: above what these deserve, down to what they are guaranteed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector
from stromboli.fairness import shares
from stromboli.fairness.obstacles import ROOT
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.plugins.capacity.account import (
    Account,
    deserves_any,
    extended,
    named,
    part,
    parting,
)
from stromboli.plugins.capacity.accounts import Accounts
from stromboli.state.pods import PodRecord


class Reclaim:
    """The victims that plugins are asked for by `reclaim` and `gangreclaim`."""

    def __init__(self, view: View, opened: Accounts, level: int) -> None:
        """`level` is how many ancestors of a queue count."""
        self._view = view
        self._opened = opened
        self._accounts = opened.taking_part
        self._level = level
        #: `_dues`, once they were needed
        self._known_dues: tuple[Matrix, Matrix, Mask] | None = None
        #: `_counted`, by the indices of both queues
        self._known_counted: dict[tuple[int, int], Mask] = {}
        #: `_owed`, by these and the class of the pod
        self._known_owed: dict[tuple[int, int, int], Mask | None] = {}

    def for_pod(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods that one may take."""
        view = self._view
        wanted, own = view.request(pod), self._accounts[view.jobs[pod.job].queue.name]
        asked = shares.asked(wanted, own.pods)

        def at_stake(account: Account, request: Vector) -> bool:
            return _both(asked, request > 0) and not self._equally_undeserving(own, account, wanted, request)

        victims = self._surplus(own, candidates, at_stake, lambda account: self._ancestors_apart(account, own))
        return self._not_served_before(own, wanted, victims) if view.rules.served_next else victims

    def queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """The queues that a pod may take from: those that hold more than they are guaranteed, and with one pod less
        still as much as they deserve of something that the pod asks for, or nothing that they deserve is asked for.
        """
        if not self._view.rules.served_next:
            return None
        held, (deserved, guarantee, counted) = self._opened.held, self._dues()
        wanted = shares.asked(self._view.request(pod), self._view.counts_pods)
        counted = counted | extended(self._accounts[self._view.jobs[pod.job].queue.name])
        keep = shares.may_give(held, deserved, counted & wanted, smallest, largest)
        asked = np.any((largest > 0) & wanted, axis=1)
        undeserved = asked & ~np.any((deserved >= TOLERANCE) & (least >= TOLERANCE), axis=1)
        spare = np.all(guarantee < held - least + TOLERANCE, axis=1)
        gives: Mask = (keep | undeserved) & spare
        return gives

    def _dues(self) -> tuple[Matrix, Matrix, Mask]:
        """What queues deserve, what they are guaranteed, and where it is said what they deserve, shape (queues,
        dimensions).
        """
        if self._known_dues is None:
            accounts = self._opened.every.values()
            deserved, guarantee = (np.array([getattr(a, of) for a in accounts]) for of in ("deserved", "guarantee"))
            self._known_dues = deserved, guarantee, np.array(list(map(named, accounts)))
        return self._known_dues

    def for_gang(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods that a gang may take. What ancestors deserve does not count, nor what the gang requests."""
        own = self._accounts[job.queue.name]
        return self._surplus(own, candidates, lambda account, request: True, lambda account: [])

    def _surplus(
        self,
        own: Account,
        candidates: Sequence[PodRecord],
        at_stake: Callable[[Account, Vector], bool],
        above: Callable[[Account], list[Account]],
    ) -> list[PodRecord]:
        """What queues, and the accounts `above` them, can give to one: above what they deserve, down to guarantees."""
        if self._opened.stopped is not None:
            return []
        view = self._view
        left: dict[str, Vector] = {}
        victims = []
        for candidate in candidates:
            account, request = self._accounts[view.jobs[candidate.job].queue.name], view.request(candidate)
            accounts = [account, *above(account)]
            held = [left.get(each.queue.name, each.allocated) for each in accounts]
            if (
                at_stake(account, request)
                and (account.guarantee < held[0] - request + TOLERANCE).all()
                and all(
                    self._gives_way(own, each, candidate, holds) for each, holds in zip(accounts, held, strict=True)
                )
                and self._branch_keeps_guarantees(own, account, left, request)
            ):
                for each in account.path:
                    left[each.queue.name] = left.get(each.queue.name, each.allocated) - request
                victims.append(candidate)
        return victims

    def _branch_keeps_guarantees(
        self, own: Account, account: Account, left: Mapping[str, Vector], request: Vector
    ) -> bool:
        """Whether all above a queue that are not above the one that takes have more than they are guaranteed."""
        apart = [above for above in account.path[1:] if above not in own.path]
        if not apart or not self._view.rules.kept_guarantees:
            return True
        asked = shares.asked(request, own.pods)
        return all(
            (above.guarantee < left.get(above.queue.name, above.allocated) - request + TOLERANCE)[asked].all()
            for above in apart
        )

    def _not_served_before(self, own: Account, wanted: Vector, victims: Sequence[PodRecord]) -> list[PodRecord]:
        """The victims whose queue keeps what it deserves without them, and has no smaller share where the paths part.

        Shares are those of what is at stake: what is asked for, and the queue has more of than it deserves.
        Priorities of queues do not count: they order who is served first with what is free, and give no share.
        """
        view = self._view
        gone: dict[str, Vector] = {}
        found = []
        for victim in victims:
            account, request = self._accounts[view.jobs[victim.job].queue.name], view.request(victim)
            held = account.allocated - gone.get(account.queue.name, 0.0)
            counted, owed = self._counted(own, account), self._owed(own, account, victim)
            if owed is not None and not shares.stays_above(
                held, request, wanted, account.deserved, counted, account.pods
            ):
                continue
            ours, theirs = parting(own, account)
            left = theirs.allocated - gone.get(theirs.queue.name, 0.0) - request
            at_stake = (
                shares.asked(np.minimum(request, wanted), own.pods) & counted & (held > account.deserved + TOLERANCE)
            )
            if _has_no_more(ours, theirs, left, at_stake):
                for each in account.path:
                    gone[each.queue.name] = gone.get(each.queue.name, 0.0) + request
                found.append(victim)
        return found

    def _counted(self, own: Account, account: Account) -> Mask:
        """The dimensions in which a queue may have more than it deserves, where another takes back."""
        key = own.queue.index, account.queue.index
        found = self._known_counted.get(key)
        if found is None:
            found = named(account) | extended(own) if self._view.rules.served_next else named(account)
            self._known_counted[key] = found
        return found

    def _gives_way(self, own: Account, account: Account, pod: PodRecord, held: Vector) -> bool:
        """Whether a queue that holds `held` has a pod to give: it deserves nothing of it, or less than it holds."""
        owed = self._owed(own, account, pod)
        return owed is None or _both(owed, held > account.deserved)

    def _owed(self, own: Account, account: Account, pod: PodRecord) -> Mask | None:
        """The dimensions that count of what a pod requests; None where its queue deserves none of them."""
        key = own.queue.index, account.queue.index, pod.pod_class.id
        if key not in self._known_owed:
            request = self._view.request(pod)
            owed = shares.asked(request, account.pods) & self._counted(own, account)
            self._known_owed[key] = owed if deserves_any(account, request) else None
        return self._known_owed[key]

    def _ancestors_apart(self, account: Account, reclaimer: Account) -> list[Account]:
        """The ancestors, up to the level that counts, that a queue does not have in common with the reclaimer."""
        level = self._level
        if not level:
            return []
        others = reclaimer.ancestors(level)
        return [
            above
            for depth, above in enumerate(account.ancestors(level))
            if above.queue.name != ROOT and (depth >= len(others) or others[depth] is not above)
        ]

    def _equally_undeserving(self, own: Account, other: Account, wanted: Vector, request: Vector) -> bool:
        """Whether two relatives both deserve nothing of what is at stake: then neither takes from the other."""
        level = self._level
        if not level:
            return False
        related = {above.queue.name for above in own.ancestors(level)} & {
            above.queue.name for above in other.ancestors(level)
        }
        return bool(related - {ROOT}) and not deserves_any(own, wanted) and not deserves_any(other, request)


def _both(one: Mask, other: Mask) -> bool:
    """Whether some dimension is in both."""
    return True in (one & other).tolist()


def _has_no_more(ours: Account, theirs: Account, left: Vector, at_stake: Mask) -> bool:
    """Whether a queue has no larger share than another with so much left; of all resources if none is at stake."""
    if not at_stake.any():
        return (ours.share, ours.undeserving) <= (theirs.share_of(left), theirs.undeserving)
    mine = part(ours.allocated[at_stake], ours.deserved[at_stake])
    return mine <= part(left[at_stake], theirs.deserved[at_stake])
