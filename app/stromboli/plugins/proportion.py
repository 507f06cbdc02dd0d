"""proportion: divides the cluster among queues by weight.

A queue's deserved amount is computed by max-min division (`fairness.division`): in proportion to the weights, at most
its request and its limit, at least its guarantee. Queues are served in order of their share, allocated / deserved, and
never beyond what they deserve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import TOLERANCE, Mask, Matrix, ResourceAmounts, Rows, Vector
from stromboli.fairness import division, guarantees, shares
from stromboli.fairness.limits import Excess, Limit, overused, tried
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, Verdict, Vote
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.report import Report
from stromboli.state.pods import PodRecord


class Proportion(Plugin):
    name = "proportion"
    fills_shares = True
    queue_fields = frozenset(("weight", "capability", "guarantee", "priority"))

    def open(self, view: View) -> None:
        self._view = view
        #: whether the number of pods counts
        self._pods = view.counts_pods
        queues = [queue for queue in view.queues.values() if queue.has_jobs]
        #: row of each queue in the matrices below, shape (queues with jobs, dimensions)
        self._row = {queue.name: row for row, queue in enumerate(queues)}
        #: the queue of each row, by index
        self._index: Rows = np.array([queue.index for queue in queues], np.intp)
        held = view.jobs.by_queue(view.job_allocated)
        self._allocated = held[self._index]
        #: amounts that terminating pods hold beyond that, without those promised to pods that start when they are gone
        self._terminating = np.zeros_like(self._allocated)
        if view.terminating is not None:
            self._terminating = view.terminating[self._index]
        #: whether allocated amounts may differ from those once promised pods have started
        self._differs = view.terminating is not None
        self._request = self._per_queue(view.job_requested)
        self._keep_guarantees(held)
        self._limit = self._real_capability(queues)
        self._inqueue, self._elastic = self._reservations()
        self._weight = np.array([queue.spec.weight for queue in queues], dtype=np.float64)
        if view.rules.all_weights_zero and not self._weight[self._request.any(axis=1)].any():
            self._weight[:] = 1
        self._deserved = self._divide()
        if view.rules.tolerance:
            self._deserved = division.in_base_units(self._deserved)
        self._pools = self._pools_of_queues(self._allocated) if view.rules.kept_guarantees and self._kept.any() else []
        #: allocated amounts by what pods hold now; computed when they differ
        self._pools_now: list[guarantees.Pool] = []
        self._inqueue_at_start = self._inqueue.copy()
        self._asked_overused: dict[str, bool] = {}
        #: why pods get no more of what a queue deserves, by queue, how many fit, what they ask for and what it holds
        self._refused: dict[tuple[str, int, bytes, bytes], Reason] = {}
        #: queues whose allocated amount was changed, possibly back again
        self._changed: set[str] = set()

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        return shares.capability(view, queue) if queue.spec.capability else None

    # -- order and limits ------------------------------------------------------------------------------------------

    def queue_order(self, queue: Queue) -> tuple[float, float]:
        return -queue.spec.priority, self._share(queue)

    def overused(self, queue: Queue) -> Reason | None:
        row = self._row[queue.name]
        amounts = zip(self._deserved[row].tolist(), self._allocated[row].tolist(), strict=True)
        used_up = all(deserved < held + TOLERANCE for deserved, held in amounts)
        self._asked_overused[queue.name] = used_up
        if not used_up:
            return None
        return overused(self._view, queue.name, self._allocated[row], self._deserved[row])

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        if not queue.open:
            return 0, reasons.queue_not_open(queue)
        row = self._row[queue.name]
        request = self._view.request(pod)
        held, limit = self._allocated[row], self._deserved[row]
        lifted = self._view.lifted_gates
        kept_for = lifted.beside(pod, count).get(queue.name) if lifted.found else None
        taken = held if kept_for is None else held + kept_for
        fitting = shares.copies_within(limit, taken, request, count, self._pods)
        pool = self._pools[row] if self._pools and fitting else None
        kept = fitting if pool is None else pool.copies(request, fitting)
        if kept == count:
            return count, None
        got = tried(self._view, self._view.jobs[pod.job])
        if pool is not None and kept < fitting:
            return kept, pool.excess(queue.name, held, request, kept + 1, got).reason(self._view, Limit.Capability)
        # Many jobs that wait in a queue ask for the same.
        alike = queue.name, fitting, request.tobytes(), held.tobytes()
        known = self._refused.get(alike) if got is None and kept_for is None else None
        if known is not None:
            return fitting, known
        columns = shares.exceeded(taken + (fitting + 1) * request, limit, request, self._pods)
        excess = Excess(queue.name, held, request, limit, columns, tried=got, kept=kept_for, most=self._limit[row])
        reason = excess.reason(self._view, Limit.Deserved)
        if got is None and kept_for is None:
            self._refused[alike] = reason
        return fitting, reason

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        """The limit of the queue counts here, not its deserved amount: restarted pods need no unused share."""
        if not self._differs:
            return count, None
        row, request = self._row[queue.name], self._view.request(pod)
        held, limit = self._now(row), self._limit[row]
        fitting = shares.copies_within(limit, held, request, count, self._pods)
        pool = self._pool_now(row) if fitting else None
        kept = fitting if pool is None else pool.copies(request, fitting)
        if kept == count:
            return count, None
        got, ends = tried(self._view, self._view.jobs[pod.job]), self._terminating[row]
        if pool is not None and kept < fitting:
            excess = pool.excess(queue.name, self._allocated[row], request, kept + 1, got, ends)
        else:
            columns = shares.exceeded(held + (fitting + 1) * request, limit, request, self._pods)
            excess = Excess(queue.name, self._allocated[row], request, limit, columns, tried=got, terminating=ends)
        return kept, excess.reason(self._view, Limit.Capability)

    def _now(self, row: int) -> Vector:
        """The amounts that a queue holds now, including immediate placements."""
        now: Vector = self._allocated[row] + self._terminating[row]
        return now

    def _pool_now(self, row: int) -> guarantees.Pool | None:
        """The limit of a queue now, given the guarantees of others."""
        if self._pools and not self._pools_now:
            self._pools_now = self._pools_of_queues(self._allocated + self._terminating)
        return self._pools_now[row] if self._pools_now else None

    def lendable(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """A queue may reclaim from queues above their deserved amounts, in each dimension in which they exceed them."""
        if not queue.open:
            return reasons.queue_not_open(queue)
        row, request = self._row[queue.name], self._view.requested(pods)
        held = self._allocated[row]
        kept = self._view.lifted_gates.beside(pods[0], len(pods)).get(queue.name)
        taken = held if kept is None else held + kept
        columns = shares.exceeded(taken + request, self._limit[row], request, self._pods)
        if columns:
            excess = Excess(queue.name, held, request, self._limit[row], columns, kept=kept)
            return excess.reason(self._view, Limit.Capability)
        if self._pools and not self._pools[row].copies(request, 1):
            return self._pools[row].excess(queue.name, held, request).reason(self._view, Limit.Capability)
        deserved = self._deserved[row]
        above = shares.exceeded(held + request, deserved, request, self._pods)
        columns = [c for c in above if held[c] > deserved[c] - TOLERANCE]
        if columns:
            return Excess(queue.name, held, request, deserved, columns).reason(self._view, Limit.Deserved)
        return None

    # -- victims ---------------------------------------------------------------------------------------------------

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        if not queue.open:
            return reasons.queue_not_open(queue)
        row, request = self._row[queue.name], self._view.requested(pods)
        held, limit = self._allocated[row], self._deserved[row]
        columns = shares.exceeded(held + request, limit, request, self._pods)
        if columns:
            return Excess(queue.name, held, request, limit, columns).reason(self._view, Limit.Deserved)
        if not self._differs:
            return None
        limit, ends = self._limit[row], np.maximum(self._terminating[row], 0)
        columns = shares.exceeded(held + ends + request, limit, request, self._pods)
        if not columns:
            return None
        excess = Excess(queue.name, held, request, limit, columns, terminating=ends)
        return excess.reason(self._view, Limit.Capability)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Victims come from a queue while it uses more than it deserves."""
        if self._view.rules.served_next:
            return self._surplus(pod, candidates)
        left: dict[int, Vector] = {}
        victims = []
        for candidate in candidates:
            row = self._row[self._view.jobs[candidate.job].queue.name]
            held = left.get(row, self._allocated[row])
            if (held >= self._deserved[row] + TOLERANCE).any():
                left[row] = held - self._view.request(candidate)
                victims.append(candidate)
        return victims

    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask | None:
        """The queues that use more than they deserve of a requested resource, and still do without a victim."""
        if not self._view.rules.served_next:
            return None
        gives = np.zeros(len(self._view.queues), np.bool_)
        wanted, of = shares.asked(self._view.request(pod), self._pods), self._index
        gives[of] = shares.may_give(self._allocated, self._deserved, wanted, smallest[of], largest[of])
        return gives

    def _surplus(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The excess of queues over their deserved amounts of requested resources, for a queue with a smaller share
        afterwards.

        Priorities of queues do not count: they order queues for free resources, and give no share.
        """
        view = self._view
        own, wanted = view.jobs[pod.job].queue, view.request(pod)
        ours = self._share(own)
        left: dict[int, Vector] = {}
        victims = []
        for candidate in candidates:
            queue, request = view.jobs[candidate.job].queue, view.request(candidate)
            row = self._row[queue.name]
            held = left.get(row, self._allocated[row])
            if not shares.stays_above(held, request, wanted, self._deserved[row], pods=self._pods):
                continue
            if self._pools and not shares.keeps(held, request, self._guarantee[row], self._pods):
                continue
            if ours <= shares.dominant_share(held - request, self._deserved[row]):
                left[row] = held - request
                victims.append(candidate)
        return victims

    # -- admission -------------------------------------------------------------------------------------------------

    def job_enqueueable(self, job: Job) -> Verdict:
        if not job.queue.open:
            return reasons.queue_not_open(job.queue)
        if job.min_resources is None:
            return Vote.Permit
        row = self._row[job.queue.name]
        held = self._allocated[row] + self._inqueue[row] - self._elastic[row]
        request, limit = shares.admission_request(self._view, job), self._limit[row]
        columns = shares.exceeded(held + request, limit, request, self._pods)
        if not columns:
            return Vote.Permit
        excess = Excess(
            job.queue.name, self._allocated[row], request, limit, columns, self._inqueue[row], self._elastic[row]
        )
        return excess.reason(self._view, Limit.Capability, Stage.Admission)

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources is not None:
            self._inqueue[self._row[job.queue.name]] += shares.reserved(self._view, job, beyond_allocated=False)

    # -- accounts --------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.total)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.total)

    def _change(self, operation: Operation, amount: Vector) -> None:
        if operation.job is not None:
            queue = operation.job.queue.name
            row = self._row[queue]
            held = self._allocated[row]
            held += amount
            if self._pools:
                self._pools[row].change(amount)
            if operation.kind is Kind.Allocate:
                if self._pools_now:
                    self._pools_now[row].change(amount)
            elif self._view.rules.terminating:
                # An evicted pod holds its resources until it is gone, and a promised pod does not hold them yet.
                self._terminating[row] -= amount
                self._differs = True
            self._changed.add(queue)

    def close(self, report: Report) -> None:
        view = self._view
        zero, divided = view.vector(None), bool(self._weight.any())
        for queue in view.queues.values():
            gauges = report.queue(queue.name)
            gauges.kept = self._kept[queue.index]
            if view.rules.clipped_guarantees and len(view.nodes):
                guarantees.report_clipped(report, view, queue, self._clipped[queue.index])
            row = self._row.get(queue.name)
            if row is None:
                gauges.amounts.update(allocated=zero, request=zero, inqueue=zero)
                continue
            held = self._allocated[row].copy()
            gauges.amounts.update(allocated=held, request=self._request[row], inqueue=self._inqueue_at_start[row])
            gauges.weight = queue.spec.weight
            gauges.plugin, gauges.limit, gauges.steps = self.name, self._limit[row], partial(self._steps, row)
            gauges.share = self._share(queue) if divided or queue.name in self._changed else 0.0
            gauges.overused = self._asked_overused.get(queue.name)
            if divided:
                gauges.amounts["deserved"] = self._deserved[row]
            if queue.name in self._changed:
                gauges.export_last("allocated")

    def _share(self, queue: Queue) -> float:
        row = self._row[queue.name]
        return shares.dominant_share(self._allocated[row], self._deserved[row])

    def _divide(self) -> Matrix:
        if not self._view.rules.deserved:
            return division.rounds(self._view.total, self._weight, self._request, self._limit, self._guarantee)
        return division.level(self._divided(), self._weight, self._request, self._limit, self._guarantee)

    def _divided(self) -> Vector:
        """The divided total: the cluster without the guarantees of queues that have no jobs."""
        kept = self._kept.sum(axis=0) - self._guarantee.sum(axis=0)
        free: Vector = np.maximum(self._view.total - kept, 0)
        return free

    def _steps(self, row: int) -> list[tuple[str, Vector]]:
        """The amounts of a queue after each round; just the final level if the division has no rounds."""
        told: list[Matrix] = []
        total = self._divided() if self._view.rules.deserved else self._view.total
        division.rounds(total, self._weight, self._request, self._limit, self._guarantee, told.append)
        if not told or not np.allclose(told[-1][row], self._deserved[row], rtol=1e-9, atol=2):
            return [("water level", self._deserved[row])]
        return [(f"round {number}", amounts[row]) for number, amounts in enumerate(told, 1)]

    # -- opening ---------------------------------------------------------------------------------------------------

    def _amounts(self, queues: list[Queue], read: Callable[[Queue], ResourceAmounts | None], unset: float) -> Matrix:
        out = np.full((len(queues), len(self._view.dimensions)), unset)
        for row, queue in enumerate(queues):
            amounts = read(queue)
            if amounts:
                out[row] = self._view.vector(amounts, unset)
        return out

    def _real_capability(self, queues: list[Queue]) -> Matrix:
        """The limit of a queue: its capability, less the guarantees of others."""
        free: Matrix = np.maximum(self._view.total - self._kept.sum(axis=0), 0) + self._guarantee
        return np.minimum(free, self._capabilities(queues))

    def _capabilities(self, queues: list[Queue]) -> Matrix:
        capability = np.full((len(queues), len(self._view.dimensions)), np.inf)
        for row, queue in enumerate(queues):
            if queue.spec.capability:
                capability[row] = shares.capability(self._view, queue)
        return capability

    def _keep_guarantees(self, held: Matrix) -> None:
        """Compute the kept guarantees of all queues, and of queues with jobs; and where they are less than promised.

        The used amounts of all queues have the shape (queues, dimensions).
        """
        view, every = self._view, list(self._view.queues.values())
        self._kept = self._amounts(every, lambda queue: queue.spec.guarantee.resource, 0.0)
        self._clipped = np.zeros(self._kept.shape, np.bool_)
        # The unused part of a closed queue's guarantee would be wasted.
        self._kept[view.closed] = np.minimum(self._kept, held)[view.closed]
        if view.rules.clipped_guarantees and len(view.nodes) and self._kept.any():
            asked = np.zeros_like(self._kept)
            asked[self._index] = self._request
            self._kept, self._clipped = guarantees.clip(self._kept, self._capabilities(every), view.total, asked)
        self._guarantee = self._kept[self._index]

    def _pools_of_queues(self, holding: Matrix) -> list[guarantees.Pool]:
        """The amounts that guarantees leave to each queue with jobs, given used amounts."""
        cluster = guarantees.Pool.cluster(self._view.total, self._kept.sum(axis=0), self._pods)
        cluster.change(self._kept.sum(axis=0) - self._guarantee.sum(axis=0))
        pools = [cluster.part(kept) for kept in self._guarantee]
        for pool, held in zip(pools, holding, strict=True):
            pool.change(held)
        return pools

    def _per_queue(self, per_job: Matrix) -> Matrix:
        return self._view.jobs.by_queue(per_job)[self._index]

    def _reservations(self) -> tuple[Matrix, Matrix]:
        """The claims of admitted jobs, and what jobs hold beyond their minResources."""
        view = self._view
        claims = shares.claims(view, beyond_allocated=True)
        elastic = np.maximum(view.job_allocated - view.jobs.min_resources, 0)
        return self._per_queue(claims), self._per_queue(elastic)
