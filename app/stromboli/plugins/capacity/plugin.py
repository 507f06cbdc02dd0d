"""capacity: queues with amounts of their own, flat or as a tree.

A queue may use up to its real capability: what it is limited to, and what the guarantees of its siblings leave of its
parent. What it deserves decides who is served first and who can be reclaimed from. With `enableHierarchy` a pod must
fit its queue and every ancestor; flat queues are a tree of depth one whose root is the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import CPU, MEMORY, TOLERANCE, Mask, Matrix, Vector
from stromboli.fairness import guarantees, obstacles, shares
from stromboli.fairness.limits import Excess, Limit, tried
from stromboli.fairness.obstacles import ROOT
from stromboli.fairness.queue_tree import linked
from stromboli.framework import reasons
from stromboli.framework.job import Job, Queue, lineage
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.plugin import Arguments, Plugin, Verdict, Vote
from stromboli.framework.report import Report
from stromboli.framework.view import View
from stromboli.kube.dra.quota import Amounts, ByClaim, ClaimedDevices, DeviceQuota
from stromboli.plugins.capacity.account import (
    Account,
    PlaceInTree,
    deserves_all,
    deserves_any,
    deserves_more,
    gives_way,
    keeps_share,
    named,
    parting,
)
from stromboli.plugins.capacity.obstacles import no_devices
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import derived


class CapacityArguments(Arguments):
    """Arguments of capacity."""

    ancestor_reclaim_level: int = Field(default=0, alias="ancestorReclaimLevel")
    """How many levels above a queue count when it takes back what it deserves, with `enableHierarchy`: 1 is the parent.
    A queue then takes on behalf of an ancestor that has less than it deserves, and from relatives whose ancestors have
    more."""
    dynamic_resource_allocation: bool = Field(default=True, alias="capacity.DynamicResourceAllocationEnable")
    """Whether `deviceclass/CLASS: N` in a queue's capability limits the devices that its pods' claims hold."""
    consumable_capacity: bool = Field(default=True, alias="capacity.DRAConsumableCapacityEnable")
    """Whether `DIMENSION.deviceclass/CLASS: Q` limits the capacity that they take of those devices."""


class Capacity(Plugin):
    name = "capacity"
    fills_shares = True
    queue_fields = frozenset(("capability", "deserved", "guarantee", "priority"))
    Arguments: ClassVar[type[BaseModel]] = CapacityArguments

    def open(self, view: View) -> None:
        self._view = view
        #: why the whole cluster stands still; only under Volcano's rules
        self._stopped: Reason | None = None
        #: whether what queues hold now may be something else than what they will hold
        self._differs = view.terminating is not None
        #: what queues hold, shape (queues, dimensions): the rows are the `allocated` of their accounts
        self._held: Matrix = np.zeros((len(view.queues), len(view.dimensions)))
        #: `_dues`, once somebody asked
        self._known_dues: tuple[Matrix, Matrix, Mask] | None = None
        #: of all queues, and of those that take part: with a hierarchy all, else those with jobs
        self._every = {queue.name: self._account(queue) for queue in view.queues.values()}
        self._accounts = {
            name: account for name, account in self._every.items() if self.hierarchy or account.queue.has_jobs
        }
        if self.hierarchy:
            self._link()
        self._devices = ClaimedDevices(view.snapshot.objects, capacity=self.arguments.consumable_capacity)
        self._limits_devices = any(account.devices for account in self._accounts.values())
        self._count_jobs()
        if self._limits_devices:
            self._count_devices()
        self._release_guarantees()
        self._set_limits()
        if view.rules.kept_guarantees and len(view.nodes):
            self._keep_guarantees()
        #: allocated, request and inqueue; the gauges of ancestors stay at what the session found
        self._at_start = {
            name: (a.allocated.copy(), a.request.copy(), a.inqueue.copy()) for name, a in self._accounts.items()
        }
        #: queues whose allocated amount was changed, even if it was changed back
        self._changed: set[str] = set()
        for account in self._accounts.values():
            account.derive()

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The capability, and with a hierarchy those of all ancestors."""
        line = lineage(queue, view.queues) if self.hierarchy else (queue,)
        limits = [shares.capability(view, each) for each in line if each.spec.capability]
        return np.min(limits, axis=0) if limits else None

    # -- order and limits ------------------------------------------------------------------------------------------

    def queue_order(self, queue: Queue) -> tuple[int, PlaceInTree]:
        return -queue.spec.priority, PlaceInTree(self._accounts[queue.name])

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        why = self._refusal(queue)
        if why is not None:
            return 0, why
        request = self._view.request(pod)
        room = count
        for account in self._accounts[queue.name].path:
            fit = shares.copies_within(account.limit, account.allocated, request, room, account.pods)
            if fit < room:
                room = fit
                why = self._over(account, account.allocated + (fit + 1) * request, request, [pod])
        if room and self._accounts[queue.name].pool is not None:
            room, why = self._within_guarantees(self._accounts[queue.name], pod, room, why)
        if room and self._limits_devices and pod.pod_class.spec.resource_claims:
            over = self._over_devices(queue, pod)
            return (1, why) if over is None else (0, over)
        return room, why

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        account, request = self._accounts[queue.name], self._view.request(pod)
        room, why = count, None
        for each in account.path if self._differs else ():
            fit = shares.copies_within(each.limit, each.now, request, room, each.pods)
            if fit < room:
                room, why = fit, self._over(each, each.now + (fit + 1) * request, request, [pod])
        pool = self._pool_now(account) if room and self._differs else None
        kept = room if pool is None else pool.copies(request, room)
        if pool is not None and kept < room:
            got = tried(self._view, self._view.jobs[pod.job])
            excess = pool.excess(queue.name, account.allocated, request, kept + 1, got, account.terminating)
            room, why = kept, excess.reason(self._view, Limit.Capability)
        if room and self._differs and self._limits_devices and pod.pod_class.spec.resource_claims:
            over = self._over_devices(queue, pod, now=True)
            return (1, why) if over is None else (0, over)
        return room, why

    def _pool_now(self, account: Account) -> guarantees.Pool | None:
        """What guarantees leave to a queue now."""
        if account.pool is not None and account.pool_now is None:
            for each, pool in self._pools(lambda each: each.now):
                each.pool_now = pool
        return account.pool_now

    def _within_guarantees(
        self, account: Account, pod: PodRecord, count: int, why: Reason | None
    ) -> tuple[int, Reason | None]:
        """How many of some copies of a pod leave what is guaranteed to other queues, and why no more."""
        pool, request = account.pool, self._view.request(pod)
        room = count if pool is None else pool.copies(request, count)
        if pool is None or room == count:
            return count, why
        got = tried(self._view, self._view.jobs[pod.job])
        excess = pool.excess(account.queue.name, account.allocated, request, room + 1, got)
        return room, excess.reason(self._view, Limit.Capability)

    def _over_devices(self, queue: Queue, pod: PodRecord, *, now: bool = False) -> Reason | None:
        """Why a queue has no room for the devices of one pod; each pod of a class has claims of its own."""
        wanted = self._devices.of(pod)
        for account in self._accounts[queue.name].path:
            held = account.devices_now if now and account.devices_now is not None else account.devices
            shortage = held.over(wanted)
            if shortage is not None:
                return no_devices(account.queue, Stage.QueueShare, shortage)
        return None

    # -- victims ---------------------------------------------------------------------------------------------------

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        why = self._refusal(queue)
        if why is not None:
            return why
        account, request = self._accounts[queue.name], self._view.requested(pods)
        for each in account.path if self._differs else (account,):
            # What others give does not help a queue that is full as long as its own pods terminate.
            held = each.allocated + np.maximum(each.terminating, 0)
            why = self._over(each, held + request, request, pods)
            if why is not None:
                return why
        ancestors = [above for above in account.ancestors(self._ancestor_level) if above.queue.name != ROOT]
        deserves = deserves_all if self._view.rules.served_next else deserves_more
        if any(deserves(each, request) for each in (account, *ancestors)):
            return None
        columns = np.flatnonzero(shares.asked(request, account.pods)).tolist()
        excess = Excess(queue.name, account.allocated, request, account.deserved, columns)
        return excess.reason(self._view, Limit.Deserved)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        view = self._view
        wanted, own = view.request(pod), self._accounts[view.jobs[pod.job].queue.name]

        def at_stake(account: Account, request: Vector) -> bool:
            alike = (shares.asked(request, own.pods) & shares.asked(wanted, own.pods)).any()
            return bool(alike) and not self._equally_undeserving(own, account, wanted, request)

        victims = self._surplus(own, candidates, at_stake, lambda account: self._ancestors_apart(account, own))
        return self._not_served_before(own, wanted, victims) if view.rules.served_next else victims

    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """Those that hold more than they are guaranteed, and more than they deserve of something that the pod asks for,
        and keep that without somebody; or where somebody may ask for nothing that they deserve.
        """
        if not self._view.rules.served_next:
            return None
        held, (deserved, guarantee, counted) = self._held, self._dues()
        wanted = shares.asked(self._view.request(pod), self._view.counts_pods)
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
            accounts = self._every.values()
            deserved, guarantee = (np.array([getattr(a, of) for a in accounts]) for of in ("deserved", "guarantee"))
            self._known_dues = deserved, guarantee, np.array(list(map(named, accounts)))
        return self._known_dues

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Within a queue nobody's share changes."""
        return candidates

    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """What ancestors deserve does not count, nor what the gang requests."""
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
        if self._stopped is not None:
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
                and all(gives_way(each, holds, request) for each, holds in zip(accounts, held, strict=True))
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
        if not self._view.rules.kept_guarantees:
            return True
        asked = shares.asked(request, own.pods)
        return all(
            (above.guarantee < left.get(above.queue.name, above.allocated) - request + TOLERANCE)[asked].all()
            for above in account.path[1:]
            if above not in own.path
        )

    def _not_served_before(self, own: Account, wanted: Vector, victims: Sequence[PodRecord]) -> list[PodRecord]:
        """Those whose queue keeps what it deserves without them, and then has no smaller share where the paths part.

        Priorities of queues do not count: they say who is served first of what is free, not who gets a share.
        """
        view = self._view
        gone: dict[str, Vector] = {}
        found = []
        for victim in victims:
            account, request = self._accounts[view.jobs[victim.job].queue.name], view.request(victim)
            held = account.allocated - gone.get(account.queue.name, 0.0)
            if not keeps_share(account, held, request, wanted):
                continue
            ours, theirs = parting(own, account)
            left = theirs.allocated - gone.get(theirs.queue.name, 0.0) - request
            if (ours.share, ours.undeserving) <= (theirs.share_of(left), theirs.undeserving):
                for each in account.path:
                    gone[each.queue.name] = gone.get(each.queue.name, 0.0) + request
                found.append(victim)
        return found

    def victim_queue_order(self, queue: Queue, reclaimer: Queue) -> int:
        """In a tree, the nearest relatives give way first."""
        if not self.hierarchy:
            return 0
        ours, theirs = self._accounts[reclaimer.name].path[:0:-1], self._accounts[queue.name].path[:0:-1]
        shared = sum(1 for mine, its in zip(ours, theirs, strict=False) if mine is its)
        return -max(shared, 1)

    def _ancestors_apart(self, account: Account, reclaimer: Account) -> list[Account]:
        """The ancestors, up to the level that counts, that a queue does not have in common with the reclaimer."""
        level = self._ancestor_level
        others = reclaimer.ancestors(level)
        return [
            above
            for depth, above in enumerate(account.ancestors(level))
            if above.queue.name != ROOT and (depth >= len(others) or others[depth] is not above)
        ]

    def _equally_undeserving(self, own: Account, other: Account, wanted: Vector, request: Vector) -> bool:
        """Whether two relatives both deserve nothing of what is at stake: then neither takes from the other."""
        level = self._ancestor_level
        related = {above.queue.name for above in own.ancestors(level)} & {
            above.queue.name for above in other.ancestors(level)
        }
        return bool(related - {ROOT}) and not deserves_any(own, wanted) and not deserves_any(other, request)

    @property
    def _ancestor_level(self) -> int:
        return max(0, self.arguments.ancestor_reclaim_level) if self.hierarchy else 0

    # -- admission -------------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Verdict:
        why = self._refusal(job.queue)
        if why is not None:
            return why
        devices = self._least_devices(job)
        for account in self._accounts[job.queue.name].path:
            if job.min_resources is not None:
                over = self._over_admission(account, shares.admission_request(self._view, job))
                if over is not None:
                    return over
            shortage = account.devices.over_admission(devices)
            if shortage is not None:
                return no_devices(account.queue, Stage.Admission, shortage)
        return Vote.Permit

    def _over_admission(self, account: Account, request: Vector) -> Reason | None:
        """Why a queue has no room for one more job, given what is held and claimed."""
        wanted = account.allocated + account.inqueue - account.elastic + request
        columns = shares.exceeded(wanted, account.limit, request, account.pods)
        if not columns:
            return None
        name, held, claimed, elastic = account.queue.name, account.allocated, account.inqueue, account.elastic
        excess = Excess(name, held, request, account.limit, columns, claimed, elastic)
        return excess.reason(self._view, Limit.Capability, Stage.Admission)

    def _least_devices(self, job: Job) -> Amounts:
        """The devices that a job needs to start, when devices are limited at all."""
        if not self._limits_devices:
            return {}
        spec = job.pod_group.spec
        return self._devices.least(self._view.members(job), spec.min_member, spec.min_task_member)

    def job_enqueued(self, job: Job) -> None:
        devices = self._least_devices(job)
        for account in self._accounts[job.queue.name].path if devices else ():
            account.devices.admit(devices)
        if job.min_resources is not None:
            claim = shares.reserved(self._view, job, beyond_allocated=False)
            for account in self._accounts[job.queue.name].path:
                account.inqueue += claim

    def _refusal(self, queue: Queue) -> Reason | None:
        if self._stopped is not None:
            return self._stopped
        account = self._accounts[queue.name]
        if account.broken is not None:
            return account.broken
        if account.children:
            return obstacles.not_a_leaf(queue)
        return None if queue.open else reasons.queue_not_open(queue)

    def _over(self, account: Account, wanted: Vector, request: Vector, pods: Sequence[PodRecord]) -> Reason | None:
        columns = shares.exceeded(wanted, account.limit, request, account.pods)
        if not columns:
            return None
        got = tried(self._view, self._view.jobs[pods[0].job])
        name, held, ends = account.queue.name, account.allocated, account.terminating
        excess = Excess(name, held, request, account.limit, columns, tried=got, terminating=ends)
        return excess.reason(self._view, Limit.Capability)

    # -- accounts --------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.total)
        self._change_devices(operation, DeviceQuota.add)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.total)
        self._change_devices(operation, DeviceQuota.remove)

    def _change_devices(self, operation: Operation, change: Callable[[DeviceQuota, ByClaim], None]) -> None:
        if operation.job is None or not self._limits_devices or not operation.pods[0].pod_class.spec.resource_claims:
            return
        for pod in operation.pods:
            for account in self._accounts[operation.job.queue.name].path:
                change(account.devices, self._devices.of(pod))
                if operation.kind is Kind.Allocate and account.devices_now is not None:
                    change(account.devices_now, self._devices.of(pod))

    def _change(self, operation: Operation, amount: Vector) -> None:
        if operation.job is None:
            return
        leaf = self._accounts[operation.job.queue.name]
        if leaf.pool is not None:
            leaf.pool.change(amount)
        starts = operation.kind is Kind.Allocate or not self._view.rules.terminating
        if starts and leaf.pool_now is not None:
            leaf.pool_now.change(amount)
        for account in leaf.path:
            account.allocated += amount
            if not starts:
                # Who is evicted holds the room until they are gone, who is promised it does not yet.
                account.terminating -= amount
                self._differs = True
            if account is leaf or self._view.rules.ancestor_shares:
                account.update_share()
        self._changed.add(leaf.queue.name)

    def close(self, report: Report) -> None:
        view = self._view
        zero = view.vector(None)
        for queue in view.queues.values():
            gauges = report.queue(queue.name)
            gauges.kept = self._every[queue.name].guarantee
            obstacles.report_misconfigured(report, queue, self._every[queue.name].broken)
            if queue.name in self._clipped:
                guarantees.report_clipped(report, view, queue, self._clipped[queue.name])
            account = self._accounts.get(queue.name)
            if account is None:
                idle = self._every[queue.name]
                gauges.amounts.update(
                    deserved=view.vector(queue.spec.deserved), allocated=zero, request=zero, inqueue=zero
                )
                if queue.spec.capability:
                    gauges.amounts["capacity"] = idle.capability
                gauges.amounts["real_capacity"] = np.minimum(self._free + idle.guarantee, idle.capability)
                continue
            held, request, inqueue = self._at_start[queue.name]
            gauges.amounts.update(
                deserved=account.deserved,
                allocated=held if account.children else account.allocated.copy(),
                request=request,
                inqueue=inqueue,
                capacity=account.capability if self.hierarchy or queue.spec.capability else zero,
                real_capacity=account.limit,
            )
            if queue.name in self._changed:
                gauges.export_last("allocated")
            gauges.plugin, gauges.limit, gauges.steps = self.name, account.limit, partial(self._steps, account)
            gauges.share = account.share
            gauges.overused = gauges.share > 1

    def _steps(self, account: Account) -> list[tuple[str, Vector]]:
        """What a queue deserves: what its spec says, and what became of it."""
        return [("spec.deserved", self._view.vector(account.queue.spec.deserved)), ("in force", account.deserved)]

    # -- opening ---------------------------------------------------------------------------------------------------

    def _account(self, queue: Queue) -> Account:
        view = self._view
        capability = shares.capability(view, queue)
        deserved = view.vector(queue.spec.deserved)
        named = queue.spec.deserved or {}
        guarantee = view.vector(queue.spec.guarantee.resource)
        deserves = guarantee > 0
        deserves |= [name in named for name in view.dimensions]
        deserves[[CPU, MEMORY]] = True
        return Account(
            queue=queue,
            deserved=deserved,
            guarantee=guarantee,
            capability=capability,
            limit=capability,
            allocated=self._held[queue.index],
            request=view.vector(None),
            inqueue=view.vector(None),
            elastic=view.vector(None),
            terminating=view.vector(None),
            deserves=deserves,
            devices=self._device_quota(queue),
            pods=view.counts_pods,
        )

    def _device_quota(self, queue: Queue) -> DeviceQuota:
        return DeviceQuota(queue.spec.capability if self.arguments.dynamic_resource_allocation else None)

    def _link(self) -> None:
        """Make the tree. What is wrong with it stops the cluster under Volcano's rules, and a subtree under ours.

        Without a root every queue is then a tree of its own below the cluster.
        """
        if ROOT not in self._accounts:
            self._stop(obstacles.no_root())
            return
        accounts = list(self._accounts.values())
        tree, broken = linked(self._view.queues, list(self._accounts), with_root=True)
        for row, account in enumerate(accounts):
            account.path = [accounts[above] for above in tree.path(row).tolist()]
            account.parent = account.path[1] if len(account.path) > 1 else None
            account.children = [accounts[child] for child in tree.children(row)]
        for name, why in broken.items():
            self._break(self._accounts[name], why)
        for account in self._accounts.values():
            if account.children and account.queue.has_jobs:
                self._stop(obstacles.not_a_leaf(account.queue))
        for account in self._accounts.values():
            account.broken = next((above.broken for above in account.path if above.broken), None)

    def _break(self, account: Account, why: Reason) -> None:
        account.broken = why
        self._stop(why)

    def _stop(self, why: Reason) -> None:
        """One mistake stops the whole cluster under Volcano's rules."""
        if not self._view.rules.broken_queue:
            self._stopped = why

    def _release_guarantees(self) -> None:
        """Keep nothing beyond what is held for queues that get nothing new, and where all below get nothing new."""
        closed = self._view.closed
        leaves = [account for account in self._every.values() if not account.children and account.broken is None]
        used = {above.queue.name for leaf in leaves if not closed[leaf.queue.index] for above in leaf.path}
        for name, account in self._every.items():
            if name not in used:
                account.guarantee = np.minimum(account.guarantee, account.allocated)

    def _count_jobs(self) -> None:
        """Add what jobs have and want to their queues and the ancestors."""
        view = self._view
        held, request = view.jobs.by_queue(view.job_allocated), view.jobs.by_queue(view.job_requested)
        elastic = view.jobs.by_queue(np.maximum(view.job_allocated - view.jobs.min_resources, 0))
        for account in self._accounts.values():
            for each in account.path if account.queue.has_jobs else ():
                each.allocated += held[account.queue.index]
                each.request += request[account.queue.index]
                each.elastic += elastic[account.queue.index]
        if view.terminating is not None:
            self._count_terminating(view.terminating)
        for job in shares.claimants(view):
            claim = shares.reserved(view, job, beyond_allocated=True)
            for each in self._accounts[job.queue.name].path:
                each.inqueue += claim

    def _count_terminating(self, held: Matrix) -> None:
        """Add what terminating pods hold, shape (queues, dimensions), to their queues and the ancestors."""
        for account in self._accounts.values():
            for each in account.path:
                each.terminating += held[account.queue.index]

    def _count_devices(self) -> None:
        """Add the devices that pods hold to their queues and the ancestors."""
        view = self._view
        for account in self._accounts.values() if view.rules.terminating else ():
            account.devices_now = self._device_quota(account.queue)
        for job in view.jobs.of(view.jobs.count(*ALLOCATED_STATES, PodState.Releasing) > 0):
            for pod in view.members(job):
                state = view.pods.state[pod.row]
                if not pod.pod_class.spec.resource_claims or not (state in ALLOCATED_STATES or _ends(state, pod)):
                    continue
                for each in self._accounts[job.queue.name].path:
                    if state in ALLOCATED_STATES:
                        each.devices.add(self._devices.of(pod))
                    if each.devices_now is not None:
                        each.devices_now.add(self._devices.of(pod))

    def _set_limits(self) -> None:
        #: by name of the queue, of which dimensions its guarantee is more than can be kept
        self._clipped: dict[str, Mask] = {}
        none = self._view.vector(None)
        if not self.hierarchy:
            self._clip(list(self._every.values()), self._view.total)
        kept = (account.guarantee for account in self._every.values())
        #: what no guarantee holds, for flat queues
        self._free: Vector = np.maximum(self._view.total - np.sum([none, *kept], axis=0), 0)
        if self.hierarchy and ROOT in self._accounts:
            root = self._accounts[ROOT]
            root.limit = self._root_limit(root)
            root.capability = root.limit
            if self._view.rules.kept_guarantees:
                self._guarantee_parents(root)
            self._limit_children(root)
            root.guarantee = _total(child.guarantee for child in root.children) + self._view.vector(None)
            root.deserved = _total(child.deserved for child in root.children) + self._view.vector(None)
            root.deserves = np.any([root.deserves, *(child.deserves for child in root.children)], axis=0)
            return
        for account in self._accounts.values():
            account.limit = np.minimum(self._free + account.guarantee, account.capability)
            account.deserved = np.maximum(np.minimum(account.deserved, account.limit), account.guarantee)

    def _root_limit(self, root: Account) -> Vector:
        """The root is not limited by the cluster's size, only in the resources that the cluster has."""
        if not root.queue.spec.capability:
            named = derived(self._view.nodes.facts, _named_by_nodes)
            known = np.array([name in named for name in self._view.dimensions])
            unlimited = np.where(known, float(2**63 - 1), 0.0)
            unlimited[[CPU, MEMORY]] = np.inf
            return unlimited
        if self._view.rules.broken_queue:
            return root.capability
        return self._view.vector(root.queue.spec.capability)

    def _guarantee_parents(self, parent: Account) -> None:
        """What is guaranteed to children is guaranteed to their parent."""
        for child in parent.children:
            self._guarantee_parents(child)
        together = _total(np.minimum(child.guarantee, child.capability) for child in parent.children)
        parent.guarantee = np.maximum(parent.guarantee, together)

    def _keep_guarantees(self) -> None:
        """Give queues pools, if anything is guaranteed to anybody."""
        for account, pool in self._pools(lambda each: each.allocated):
            account.pool = pool

    def _pools(self, holding: Callable[[Account], Vector]) -> Iterator[tuple[Account, guarantees.Pool]]:
        """What guarantees leave to each queue, by what queues hold; nothing where nothing is guaranteed to anybody."""
        tops = [account for account in self._accounts.values() if account.parent is None]
        idle = [account.guarantee for name, account in self._every.items() if name not in self._accounts]
        kept = idle + [each.guarantee for top in tops for each in (top.children if self.hierarchy else [top])]
        together = _total(kept) + self._view.vector(None)
        if not together.any():
            return
        cluster = guarantees.Pool.cluster(self._view.total, together, self._view.counts_pods)
        for amount in idle:
            cluster.part(amount)
        for top in tops:
            yield from self._pools_below(top, cluster, holding)

    def _pools_below(
        self, account: Account, above: guarantees.Pool, holding: Callable[[Account], Vector]
    ) -> Iterator[tuple[Account, guarantees.Pool]]:
        is_root = account.queue.name == ROOT and account.children
        pool = above if is_root else above.part(account.guarantee, account.limit)
        pool.change(holding(account) - _total(holding(child) for child in account.children))
        yield account, pool
        for child in account.children:
            yield from self._pools_below(child, pool, holding)

    def _limit_children(self, parent: Account) -> None:
        for child in parent.children:
            child.capability = np.where(np.isinf(child.capability), parent.capability, child.capability)
        self._clip(parent.children, np.minimum(parent.limit, self._view.total))
        guaranteed = _total(child.guarantee for child in parent.children)
        for child in parent.children:
            child.deserved = np.maximum(child.deserved, child.guarantee)
            free = np.maximum(parent.limit - guaranteed, 0) + child.guarantee
            child.limit = np.minimum(free, child.capability)
            self._limit_children(child)

    def _clip(self, siblings: Sequence[Account], whole: Vector) -> None:
        """Clip guarantees to what their queues can have of what they share."""
        if not (self._view.rules.clipped_guarantees and len(self._view.nodes) and siblings):
            return
        guarantee, own, asked = (
            np.stack([getattr(account, amount) for account in siblings])
            for amount in ("guarantee", "capability", "request")
        )
        kept, clipped = guarantees.clip(guarantee, own, whole, asked)
        for account, amounts, less in zip(siblings, kept, clipped, strict=True):
            account.guarantee = amounts
            self._clipped[account.queue.name] = less


def _named_by_nodes(facts: NodeFacts) -> frozenset[str]:
    """The resources that any node lists, be it with nothing of them."""
    return frozenset(("cpu", "memory")).union(*(record.allocatable for record in facts.records))


def _ends(state: int, pod: PodRecord) -> bool:
    """Whether a pod terminates on a node."""
    return state == PodState.Releasing and bool(pod.node_name)


def _total(vectors: Iterable[Vector]) -> Vector:
    out: Vector = np.sum(list(vectors), axis=0)
    return out
