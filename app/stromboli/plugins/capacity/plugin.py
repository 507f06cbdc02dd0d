"""capacity: queues with amounts of their own, flat or as a tree.

A queue may use up to its real capability: its limit, reduced by what the guarantees of its siblings take from its
parent. What it deserves decides which queue is served first and which can be reclaimed from. With `enableHierarchy` a
pod must fit its queue and every ancestor; flat queues are a tree of depth one whose root is the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector
from stromboli.fairness import guarantees, lending, obstacles, shares
from stromboli.fairness.limits import Excess, Limit, tried
from stromboli.fairness.obstacles import ROOT
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.report import Report
from stromboli.kube.dra.quota import Amounts, ByClaim, ClaimedDevices, DeviceQuota
from stromboli.plugins.capacity.account import (
    Account,
    PlaceInTree,
    deserves_all,
    deserves_more,
)
from stromboli.plugins.capacity.accounts import Accounts
from stromboli.plugins.capacity.obstacles import no_devices
from stromboli.plugins.capacity.reclaim import Reclaim
from stromboli.state.pods import PodRecord


class CapacityArguments(Arguments):
    """Arguments of capacity."""

    ancestor_reclaim_level: int = Field(default=0, alias="ancestorReclaimLevel")
    """Number of levels above a queue that count when it reclaims its share, with `enableHierarchy`: 1 is the parent.
    A queue then takes on behalf of an ancestor that has less than it deserves, and from relatives whose ancestors have
    more."""
    dynamic_resource_allocation: bool = Field(default=True, alias="capacity.DynamicResourceAllocationEnable")
    """Whether `deviceclass/CLASS: N` in a queue's capability limits the devices that its pods' claims hold."""
    consumable_capacity: bool = Field(default=True, alias="capacity.DRAConsumableCapacityEnable")
    """Whether `DIMENSION.deviceclass/CLASS: Q` limits the capacity that they take of those devices."""


class Capacity(Plugin):
    name = "capacity"
    fills_shares = True
    queue_fields = frozenset(("borrowingLimit", "capability", "deserved", "guarantee", "lendingLimit", "priority"))
    Arguments: ClassVar[type[BaseModel]] = CapacityArguments

    def open(self, view: View) -> None:
        self._view = view
        #: whether the amounts that queues hold now may differ from those that they will hold
        self._differs = view.terminating is not None
        self._devices = ClaimedDevices(view.snapshot.objects, capacity=self.arguments.consumable_capacity)
        self._opened = Accounts(
            view,
            self._devices,
            hierarchy=self.hierarchy,
            limits_claims=self.arguments.dynamic_resource_allocation,
        )
        self._accounts = self._opened.taking_part
        self._reclaim = Reclaim(view, self._opened, self._ancestor_level)
        #: allocated, request and inqueue; the gauges of ancestors stay at what the session found
        self._at_start = {
            name: (a.allocated.copy(), a.request.copy(), a.inqueue.copy()) for name, a in self._accounts.items()
        }
        #: queues whose allocated amount was changed, even if it was changed back
        self._changed: set[str] = set()

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The capability and the borrowing limit, and with a hierarchy those of all ancestors."""
        line = lineage(queue, view.queues) if self.hierarchy else (queue,)
        limits = [lending.ceiling(view, each) for each in line if each.spec.capability or each.spec.borrowing_limit]
        return np.min(limits, axis=0) if limits else None

    # -- order and limits ------------------------------------------------------------------------------------------

    def queue_order(self, queue: Queue) -> tuple[int, PlaceInTree]:
        return -queue.spec.priority, PlaceInTree(self._accounts[queue.name])

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        why = self._refusal(queue)
        if why is not None:
            return 0, why
        request = self._view.request(pod)
        fitting, lifted = count, self._view.lifted_gates.beside(pod, count)
        for account in self._accounts[queue.name].path:
            kept = self._kept(account, lifted) if lifted else None
            taken = account.allocated if kept is None else account.allocated + kept
            fit = shares.copies_within(account.limit, taken, request, fitting, account.pods)
            if fit < fitting:
                fitting = fit
                why = self._over(account, taken + (fit + 1) * request, request, [pod], kept)
        if fitting and self._accounts[queue.name].pool is not None:
            fitting, why = self._within_guarantees(self._accounts[queue.name], pod, fitting, why)
        if fitting and self._opened.limits_devices and pod.pod_class.spec.resource_claims:
            over = self._over_devices(queue, pod)
            return (1, why) if over is None else (0, over)
        return fitting, why

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        account, request = self._accounts[queue.name], self._view.request(pod)
        fitting, why = count, None
        for each in account.path if self._differs else ():
            fit = shares.copies_within(each.limit, each.now, request, fitting, each.pods)
            if fit < fitting:
                fitting, why = fit, self._over(each, each.now + (fit + 1) * request, request, [pod])
        pool = self._opened.pool_now(account) if fitting and self._differs else None
        kept = fitting if pool is None else pool.copies(request, fitting)
        if pool is not None and kept < fitting:
            got = tried(self._view, self._view.jobs[pod.job])
            excess = pool.excess(queue.name, account.allocated, request, kept + 1, got, account.terminating)
            fitting, why = kept, excess.reason(self._view, Limit.Capability)
        if fitting and self._differs and self._opened.limits_devices and pod.pod_class.spec.resource_claims:
            over = self._over_devices(queue, pod, now=True)
            return (1, why) if over is None else (0, over)
        return fitting, why

    def _within_guarantees(
        self, account: Account, pod: PodRecord, count: int, why: Reason | None
    ) -> tuple[int, Reason | None]:
        """Number of copies of a pod, `count` at most, that leave others' guarantees intact, and why no more."""
        pool, request = account.pool, self._view.request(pod)
        fitting = count if pool is None else pool.copies(request, count)
        if pool is None or fitting == count:
            return count, why
        got = tried(self._view, self._view.jobs[pod.job])
        excess = pool.excess(account.queue.name, account.allocated, request, fitting + 1, got)
        return fitting, excess.reason(self._view, Limit.Capability)

    def _over_devices(self, queue: Queue, pod: PodRecord, *, now: bool = False) -> Reason | None:
        """Why a queue has no capacity left for the devices of one pod; each pod of a class has claims of its own."""
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
        over = [c for c in columns if account.allocated[c] + request[c] > account.deserved[c] + TOLERANCE]
        excess = Excess(queue.name, account.allocated, request, account.deserved, over or columns)
        return excess.reason(self._view, Limit.Deserved)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self._reclaim.for_pod(pod, candidates)

    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        return self._reclaim.queues(pod, least, smallest, largest)

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Within a queue no share changes."""
        return candidates

    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self._reclaim.for_gang(job, candidates)

    def victim_queue_order(self, queue: Queue, reclaimer: Queue) -> int:
        """Order of queues as victims: in a tree, the nearest relatives give way first."""
        if not self.hierarchy:
            return 0
        ours, theirs = self._accounts[reclaimer.name].path[:0:-1], self._accounts[queue.name].path[:0:-1]
        shared = sum(1 for mine, its in zip(ours, theirs, strict=False) if mine is its)
        return -max(shared, 1)

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
        """Why a queue has no capacity left for one more job, given held and claimed amounts."""
        wanted = account.allocated + account.inqueue - account.elastic + request
        columns = shares.exceeded(wanted, account.limit, request, account.pods)
        if not columns:
            return None
        name, held, claimed, elastic = account.queue.name, account.allocated, account.inqueue, account.elastic
        line, shared = [each.queue for each in account.path], _shared(account, columns)
        excess = Excess(name, held, request, account.limit, columns, claimed, elastic, line=line, shared=shared)
        return excess.reason(self._view, Limit.Capability, Stage.Admission)

    def _least_devices(self, job: Job) -> Amounts:
        """The devices that a job needs to start, when devices are limited at all."""
        if not self._opened.limits_devices:
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
        if self._opened.stopped is not None:
            return self._opened.stopped
        account = self._accounts[queue.name]
        if account.broken is not None:
            return account.broken
        if account.children:
            return obstacles.not_a_leaf(queue)
        return None if queue.open else reasons.queue_not_open(queue)

    def _kept(self, account: Account, lifted: Mapping[str, Vector]) -> Vector:
        """The amounts kept for pods in a queue and its descendants, given those by queue."""
        amounts = (kept for name, kept in lifted.items() if account in self._accounts[name].path)
        kept: Vector = np.sum([self._view.vector(None), *amounts], axis=0)
        return kept

    def _over(
        self,
        account: Account,
        wanted: Vector,
        request: Vector,
        pods: Sequence[PodRecord],
        kept: Vector | None = None,
    ) -> Reason | None:
        columns = shares.exceeded(wanted, account.limit, request, account.pods)
        if not columns:
            return None
        got = tried(self._view, self._view.jobs[pods[0].job])
        name, held, ends = account.queue.name, account.allocated, account.terminating
        excess = Excess(
            *(name, held, request, account.limit, columns),
            tried=got,
            terminating=ends,
            kept=kept,
            line=[each.queue for each in account.path],
            shared=_shared(account, columns),
        )
        return excess.reason(self._view, Limit.Capability)

    # -- accounts --------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.total)
        self._change_devices(operation, DeviceQuota.add)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.total)
        self._change_devices(operation, DeviceQuota.remove)

    def _change_devices(self, operation: Operation, change: Callable[[DeviceQuota, ByClaim], None]) -> None:
        if (
            operation.job is None
            or not self._opened.limits_devices
            or not operation.pods[0].pod_class.spec.resource_claims
        ):
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
                # An evicted pod holds its capacity until it is gone, a pod that is promised it does not yet.
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
            gauges.kept = self._opened.every[queue.name].guarantee
            obstacles.report_misconfigured(report, queue, self._opened.every[queue.name].broken)
            if queue.name in self._opened.clipped:
                guarantees.report_clipped(report, view, queue, self._opened.clipped[queue.name])
            account = self._accounts.get(queue.name)
            if account is None:
                idle = self._opened.every[queue.name]
                gauges.amounts.update(
                    deserved=view.vector(shares.entitled(queue)), allocated=zero, request=zero, inqueue=zero
                )
                if queue.spec.capability:
                    gauges.amounts["capacity"] = idle.capability
                gauges.amounts["real_capacity"] = np.minimum(self._opened.free + idle.guarantee, idle.capability)
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
            gauges.bound = None if account.pool is None else partial(self._bound, account)
            gauges.share = account.share
            gauges.overused = gauges.share > 1

    def _bound(self, account: Account) -> Vector:
        """The most that a queue may hold now."""
        pool = account.pool
        return account.limit if pool is None else np.minimum(account.limit, pool.bound)

    def _steps(self, account: Account) -> list[tuple[str, Vector]]:
        """The deserved amount of a queue: as its spec says, and as adjusted."""
        said = self._view.vector(shares.entitled(account.queue))
        return [("spec.deserved", said), ("in force", account.deserved)]


def _shared(account: Account, columns: list[int]) -> str:
    """The queue above whose own limit, in some dimensions, that of a queue follows from; empty for none."""
    if (account.limit >= account.capability)[columns].all():
        return ""
    above = (each for each in account.path[1:] if each.queue.name != ROOT)
    return next((each.queue.name for each in above if (each.limit >= each.capability)[columns].all()), "")
