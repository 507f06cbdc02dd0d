"""Which pods a queue may take back from others: above what these deserve, down to what they are guaranteed."""

from __future__ import annotations

from collections.abc import Sequence

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


class _Held(dict[Account, Vector]):
    """The amounts that queues hold while they give some up."""

    def __missing__(self, account: Account) -> Vector:
        return account.allocated

    def give(self, account: Account, amount: Vector) -> None:
        """Have a queue, and with it its ancestors, hold less."""
        for each in account.path:
            self[each] = self[each] - amount


class Reclaim:
    """The victims that plugins are asked for by `reclaim` and `gangreclaim`."""

    def __init__(self, view: View, opened: Accounts, level: int) -> None:
        """`level` is the number of a queue's ancestors that count."""
        self._view = view
        self._opened = opened
        self._accounts = opened.taking_part
        self._level = level
        #: `_dues`, once they were needed
        self._known_dues: tuple[Matrix, Matrix, Mask, Mask] | None = None
        #: `_counted`, by the indices of both queues
        self._known_counted: dict[tuple[int, int], Mask] = {}
        #: `_owed`, by these and the class of the pod
        self._known_owed: dict[tuple[int, int, int], Mask | None] = {}

    def for_pod(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods that one may take."""
        view = self._view
        wanted, own = view.request(pod), self._accounts[view.jobs[pod.job].queue.name]
        victims = self._surplus(own, candidates, wanted, self._level)
        return self._not_served_before(own, wanted, victims) if view.rules.served_next else victims

    def queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """The queues that a pod may take from: those that hold more than they are guaranteed, and with one pod less
        still as much as they deserve of something that the pod asks for, or nothing that they deserve is asked for.
        """
        if not self._view.rules.served_next:
            return None
        held, (deserved, guarantee, said, forgoes) = self._opened.held, self._dues()
        wanted = shares.asked(self._view.request(pod), self._view.counts_pods)
        own = self._accounts[self._view.jobs[pod.job].queue.name]
        counted = said | extended(own) | (forgoes & (own.deserved >= TOLERANCE))
        keep = shares.may_give(held, deserved, counted & wanted, smallest, largest)
        asked = np.any((largest > 0) & wanted, axis=1)
        undeserved = asked & ~np.any((deserved >= TOLERANCE) & (least >= TOLERANCE), axis=1)
        spare = np.all(guarantee < held - least + TOLERANCE, axis=1)
        gives: Mask = (keep | undeserved) & spare
        return gives

    def _dues(self) -> tuple[Matrix, Matrix, Mask, Mask]:
        """Amounts that queues deserve and are guaranteed, whether they say what they deserve, and which of cpu and
        memory they say that they deserve none of, shape (queues, dimensions).
        """
        if self._known_dues is None:
            accounts = self._opened.every.values()
            deserved, guarantee = (np.array([getattr(a, of) for a in accounts]) for of in ("deserved", "guarantee"))
            said, forgoes = np.array(list(map(named, accounts))), np.array([each.forgoes for each in accounts])
            self._known_dues = deserved, guarantee, said, forgoes
        return self._known_dues

    def for_gang(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The pods that a gang may take. What ancestors deserve does not count, nor what the gang requests."""
        return self._surplus(self._accounts[job.queue.name], candidates, None, 0)

    def _surplus(
        self, own: Account, candidates: Sequence[PodRecord], wanted: Vector | None, level: int
    ) -> list[PodRecord]:
        """Pods that queues, and their ancestors up to a level, can give to one that wants an amount: above what they
        deserve, down to guarantees.
        """
        if self._opened.stopped is not None:
            return []
        view, held, victims = self._view, _Held(), []
        asked = None if wanted is None else shares.asked(wanted, own.pods)
        for candidate in candidates:
            account, request = self._accounts[view.jobs[candidate.job].queue.name], view.request(candidate)
            if asked is not None and not _both(asked, request > 0):
                continue
            if level and wanted is not None and self._equally_undeserving(own, account, wanted, request):
                continue
            giving = [account, *self._ancestors_apart(account, own)] if level else [account]
            if (
                (account.guarantee < held[account] - request + TOLERANCE).all()
                and all(self._gives_way(own, each, candidate, held[each]) for each in giving)
                and self._branch_keeps_guarantees(own, account, held, request)
            ):
                held.give(account, request)
                victims.append(candidate)
        return victims

    def _branch_keeps_guarantees(self, own: Account, account: Account, held: _Held, request: Vector) -> bool:
        """Whether all ancestors of a queue, up to those of the taking queue, hold more than their guarantee."""
        if len(account.path) == 1 or not self._view.rules.kept_guarantees:
            return True
        asked = shares.asked(request, own.pods)
        return all(
            (above.guarantee < held[above] - request + TOLERANCE)[asked].all()
            for above in account.path[1:]
            if above not in own.path
        )

    def _not_served_before(self, own: Account, wanted: Vector, victims: Sequence[PodRecord]) -> list[PodRecord]:
        """The victims whose queue keeps what it deserves without them, and has no smaller share where the paths part.

        Shares are those of what is at stake: what is asked for, and the queue has more of than it deserves.
        Priorities of queues do not count: they order who is served first from free capacity, and give no share.
        """
        view, left, found = self._view, _Held(), []
        for victim in victims:
            account, request = self._accounts[view.jobs[victim.job].queue.name], view.request(victim)
            held = left[account]
            counted, owed = self._counted(own, account), self._owed(own, account, victim)
            if owed is not None and not shares.stays_above(
                held, request, wanted, account.deserved, counted, account.pods
            ):
                continue
            ours, theirs = parting(own, account)
            at_stake = (
                shares.asked(np.minimum(request, wanted), own.pods) & counted & (held > account.deserved + TOLERANCE)
            )
            if _has_no_more(ours, theirs, left[theirs] - request, at_stake):
                left.give(account, request)
                found.append(victim)
        return found

    def _counted(self, own: Account, account: Account) -> Mask:
        """The dimensions in which a queue may exceed its deserved amount while another one reclaims."""
        key = own.queue.index, account.queue.index
        found = self._known_counted.get(key)
        if found is None:
            found = named(account)
            if self._view.rules.served_next:
                found = found | extended(own) | (account.forgoes & (own.deserved >= TOLERANCE))
            self._known_counted[key] = found
        return found

    def _gives_way(self, own: Account, account: Account, pod: PodRecord, held: Vector) -> bool:
        """Whether a queue that holds `held` has a pod to give: it deserves nothing of it, or less than it holds."""
        owed = self._owed(own, account, pod)
        return owed is None or _both(owed, held > account.deserved)

    def _owed(self, own: Account, account: Account, pod: PodRecord) -> Mask | None:
        """The dimensions of a pod's request that count; None if its queue deserves none of them."""
        key = own.queue.index, account.queue.index, pod.pod_class.id
        if key not in self._known_owed:
            request = self._view.request(pod)
            owed = shares.asked(request, account.pods) & self._counted(own, account)
            self._known_owed[key] = owed if deserves_any(account, request) else None
        return self._known_owed[key]

    def _ancestors_apart(self, account: Account, reclaimer: Account) -> list[Account]:
        """The ancestors, up to the level that counts, that a queue does not have in common with the reclaimer."""
        level = self._level
        others = reclaimer.ancestors(level)
        return [
            above
            for depth, above in enumerate(account.ancestors(level))
            if above.queue.name != ROOT and (depth >= len(others) or others[depth] is not above)
        ]

    def _equally_undeserving(self, own: Account, other: Account, wanted: Vector, request: Vector) -> bool:
        """Whether two related queues both deserve nothing of what is at stake: then neither takes from the other."""
        level = self._level
        related = {above.queue.name for above in own.ancestors(level)} & {
            above.queue.name for above in other.ancestors(level)
        }
        return bool(related - {ROOT}) and not deserves_any(own, wanted) and not deserves_any(other, request)


def _both(one: Mask, other: Mask) -> bool:
    """Whether some dimension is in both."""
    return True in (one & other).tolist()


def _has_no_more(ours: Account, theirs: Account, left: Vector, at_stake: Mask) -> bool:
    """Whether a queue has no larger share than another with so much left; of all resources if none is at stake.

    Where the other deserves nothing of what is at stake, it gives all of that.
    """
    counted = at_stake.tolist()
    if True not in counted:
        return (ours.share, ours.undeserving) <= (theirs.share_of(left), theirs.undeserving)
    if bool((theirs.deserved[at_stake] < TOLERANCE).any()):
        return True
    return part(ours.allocated, ours.deserved, counted) <= part(left, theirs.deserved, counted)
