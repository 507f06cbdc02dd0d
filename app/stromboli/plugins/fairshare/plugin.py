"""The plugin: a session's queues, followed through its operations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason, Stage
from stromboli.api.resources import PODS, Mask, Matrix, Rows, Vector
from stromboli.fairness import shares
from stromboli.fairness.limits import Excess, Limit, tried
from stromboli.fairness.obstacles import ROOT, report_misconfigured
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, Verdict, Vote
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.framework.plugin.report import Report
from stromboli.plugins.fairshare import capacity, division, order
from stromboli.plugins.fairshare.accounts import Accounts, divisible
from stromboli.plugins.fairshare.arguments import FairShareArguments
from stromboli.plugins.fairshare.order import PlaceInTree
from stromboli.plugins.fairshare.reclaim import Reclaim, can_reclaim
from stromboli.plugins.fairshare.required import at_least, required
from stromboli.plugins.fairshare.spec import Amounts, preemptible
from stromboli.plugins.fairshare.tree import parting, saturation
from stromboli.plugins.fairshare.units import Unit, Units
from stromboli.plugins.fairshare.usage import Bucket, UsageHistory
from stromboli.state.pods import PodRecord


class FairShare(Plugin):
    name = "fairshare"
    queue_fields = frozenset(("weight", "capability", "deserved", "priority", "parent"))
    fills_shares = True
    gives_back_in_order = True
    protects = True
    Arguments: ClassVar[type[BaseModel]] = FairShareArguments
    #: holdings of queues over time; None at first
    left: UsageHistory | None
    left_types = (UsageHistory, Bucket)

    def open(self, view: View) -> None:
        self._view = view
        yielding = preemptible(view.jobs, self.arguments.non_preemptible_priority)
        #: whether jobs agree to be evicted, by index and by key
        self._yielding: Mask = yielding
        self._preemptible: dict[str, bool] = dict(zip(view.jobs, yielding.tolist(), strict=True))
        self._accounts = Accounts(view, self.arguments.divided, yielding)
        self._tree = self._accounts.shared
        if view.rules.all_weights_zero and not self._accounts.bounds.weight.any():
            self._accounts.bounds.weight[:] = 1
        self._total = self._accounts.narrow(divisible(view))
        self._past = self._recall()
        self._history = division.divide_tree(self._tree, self._total, max(0.0, self.arguments.k_value))
        #: places of queues among their siblings, by row, until something changes in them
        self._places: dict[int, tuple[object, ...]] = {}
        #: jobs of each leaf that wait, in the order in which they are probably tried, and how many do so no longer
        waiting = view.jobs.of((view.jobs.count(PodState.Pending) > 0) & ~view.shut)
        self._jobs = _in_order([job for job in waiting if job.key not in view.never_fits])
        self._served: defaultdict[str, int] = defaultdict(int)
        self._units = Units(view, self._accounts)

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The limits of the queue and of those above it."""
        line = [each for each in lineage(queue, view.queues) if each is queue or each.name != ROOT]
        limits = Amounts(line, view.dimensions)
        limit: Vector = limits.limit().min(axis=0)
        return limit if np.isfinite(limit).any() and not limits.problems else None

    def job_ceilings(self, view: View) -> Mapping[str, tuple[Vector, str]]:
        """Ceilings of never-evicted jobs: the quotas of their queue and of those above it."""
        stays = ~preemptible(view.jobs, self.arguments.non_preemptible_priority)
        stays &= view.jobs.count(PodState.Pending) > 0
        bounds: dict[str, tuple[Vector, str]] = {}
        found = {}
        for job in view.jobs.of(stays):
            name = job.queue.name
            if name not in bounds:
                bounds[name] = self._quotas(view, job.queue)
            if np.isfinite(bounds[name][0]).any():
                found[job.key] = bounds[name]
        return found

    def _quotas(self, view: View, queue: Queue) -> tuple[Vector, str]:
        """Upper bound on what never-evicted jobs of a queue may hold; infinite where a queue cannot be read."""
        line = [each for each in lineage(queue, view.queues) if each is queue or each.name != ROOT]
        amounts = Amounts(line, view.dimensions)
        most = np.full(len(view.dimensions), np.inf)
        if not amounts.problems:
            columns = [column for column, name in enumerate(view.dimensions) if name in self.arguments.divided]
            columns = [column for column in columns if column != PODS or view.counts_pods]
            most[columns] = amounts.quota()[:, columns].min(axis=0)
        above = " and of those above it" if len(line) > 1 else ""
        return most, f"is never evicted, and starts with more than the quota of queue {queue.name}{above}"

    # -- order and limits ------------------------------------------------------------------------------------------

    def queue_order(self, queue: Queue) -> PlaceInTree:
        return PlaceInTree(self._tree, self._accounts.row[queue.name], self._place)

    def _place(self, row: int) -> tuple[object, ...]:
        """A queue's place among its siblings; age and name decide between equals."""
        found = self._places.get(row)
        if found is None:
            found = self._places[row] = self._place_with(row, self._tree.allocated[row], self._next_request(row))
        return found

    def _place_with(self, row: int, held: Vector, job: Vector) -> tuple[object, ...]:
        """The place of a queue that holds some amount and has some job to place."""
        key = order.key(self._tree, row, self._total, job, held=held)
        return (*key, float(self._tree.created[row]), self._tree.names[row])

    def _next_request(self, row: int) -> Vector:
        """Request of the job that a queue places next: of a parent, that of the child that comes first."""
        children = self._tree.children(row)
        if children:
            waiting = [child for child in children if self._tree.request[child].any()]
            return self._next_request(min(waiting or children, key=self._place))
        job = self._next_job(self._tree.names[row])
        return self._accounts.narrow(required(self._view, job)) if job else np.zeros(len(self._total))

    def _next_job(self, queue: str) -> Job | None:
        jobs = self._jobs.get(queue, ())
        while self._served[queue] < len(jobs):
            job = jobs[self._served[queue]]
            if job.counts[PodState.Pending]:
                return job
            self._served[queue] += 1
        return None

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        why = self._refusal(queue)
        if why is not None:
            return 0, why
        request, yields = self._accounts.full(self._view.request(pod)), self._preemptible[pod.job]
        path = self._accounts.bounds.path(self._accounts.row[queue.name])
        if not capacity.is_bounded(self._accounts.bounds, path, preemptible=yields):
            return count, None
        job, kept = self._view.jobs[pod.job], self._accounts.kept(self._view.lifted_gates.beside(pod, count))
        needed = self._accounts.full(required(self._view, job, [pod]))
        why = self._over_capacity(Stage.QueueShare, queue, needed, needed, preemptible=yields, job=job)
        if why is not None:
            # The gang may start with smaller pods than the next ones.
            least = self._accounts.full(at_least(self._view, job, [pod]))
            if self._over_capacity(Stage.QueueShare, queue, least, least, preemptible=yields, job=job) is not None:
                return 0, why
        fitting = capacity.copies(self._accounts.bounds, path, request, count, preemptible=yields, more=kept)
        if fitting == count:
            return count, None
        wanted = (fitting + 1) * request
        return fitting, self._over_capacity(
            Stage.QueueShare, queue, wanted, request, preemptible=yields, job=job, more=kept
        )

    def startable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        accounts, yields = self._accounts, self._preemptible[pod.job]
        path = accounts.bounds.path(accounts.row[queue.name])
        if accounts.terminating is None or not capacity.is_bounded(accounts.bounds, path, preemptible=yields):
            return count, None
        request = accounts.full(self._view.request(pod))
        fitting = capacity.copies(accounts.bounds, path, request, count, preemptible=yields, more=accounts.terminating)
        if fitting == count:
            return count, None
        job, wanted = self._view.jobs[pod.job], (fitting + 1) * request
        return fitting, self._over_capacity(
            Stage.QueueShare, queue, wanted, request, preemptible=yields, job=job, more=self._accounts.terminating
        )

    def _over_capacity(
        self,
        stage: Stage,
        queue: Queue,
        wanted: Vector,
        request: Vector,
        *,
        preemptible: bool,
        job: Job | None = None,
        more: tuple[Matrix, Matrix] | None = None,
    ) -> Reason | None:
        """Why a queue has no capacity left for a request, in the order of the tree's resources.

        `more` counts beyond what queues hold: what terminating pods hold, or what is kept for other pods.
        """
        accounts = self._accounts
        path = accounts.bounds.path(accounts.row[queue.name])
        over = capacity.over_capacity(accounts.bounds, path, wanted, preemptible=preemptible, more=more)
        if over is None:
            return None
        queue_over = accounts.bounds.names[over.row]
        columns = accounts.dimensions[over.columns].tolist()
        held, bound, asked = (accounts.of_session(amounts) for amounts in (over.held, over.bound, request))
        got = None if job is None else tried(self._view, job)
        ends = kept = None
        if more is not None:
            ends = np.maximum(accounts.of_session(more[over.is_quota][over.row]), 0)
            held = held - ends
        if more is not accounts.terminating:
            ends, kept = None, ends
        excess = Excess(queue_over, held, asked, bound, columns, tried=got, terminating=ends, kept=kept)
        return excess.reason(self._view, Limit.Quota if over.is_quota else Limit.Capability, stage)

    def _refusal(self, queue: Queue) -> Reason | None:
        """Why a queue gets nothing at all."""
        return self._accounts.broken.get(queue.name) or (None if queue.open else reasons.queue_not_open(queue))

    def job_enqueueable(self, job: Job) -> Verdict:
        why = self._refusal(job.queue)
        if why is None and job.min_resources is not None:
            wanted = self._accounts.full(np.maximum(job.min_resources - job.allocated, 0))
            yields = self._preemptible[job.key]
            why = self._over_capacity(Stage.Admission, job.queue, wanted, wanted, preemptible=yields)
        return why or Vote.Permit

    # -- victims ---------------------------------------------------------------------------------------------------

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        why = self._refusal(queue)
        if why is not None:
            return why
        job, tree, row = self._view.jobs[pods[0].job], self._tree, self._accounts.row[queue.name]
        needed = required(self._view, job, pods)
        narrow = self._accounts.narrow(needed)
        if can_reclaim(tree, row, narrow, preemptible=self._preemptible[job.key]):
            if self._accounts.terminating is None:
                return None
            # What others give does not help a queue that is full as long as its own pods terminate.
            full, yields = self._accounts.full(needed), self._preemptible[job.key]
            return self._over_capacity(
                Stage.QueueShare, queue, full, full, preemptible=yields, more=self._accounts.terminating
            )
        fair = (tree.allocated[row] + narrow <= tree.fair_share[row]).all()
        held = (tree.non_preemptible if fair else tree.allocated)[row]
        bound = (tree.quota if fair else tree.fair_share)[row]
        columns = self._accounts.dimensions[np.flatnonzero(held + narrow > bound)].tolist()
        held, bound = self._accounts.of_session(held), self._accounts.of_session(bound)
        excess = Excess(queue.name, held, needed, bound, columns)
        return excess.reason(self._view, Limit.Quota if fair else Limit.Deserved)

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """All but the pods of jobs that are never evicted."""
        return [candidate for candidate in candidates if self._preemptible[candidate.job]]

    def evictable_pods(self, rows: Rows) -> Mask:
        view = self._view
        mine: Mask = self._yielding[view.membership.index_of[view.pods.job[rows]]]
        return mine

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        job = self._view.jobs[pod.job]
        return self._victims(job, required(self._view, job, [pod]), candidates)

    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self._victims(job, required(self._view, job), candidates)

    def _victims(self, job: Job, needed: Vector, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The victims a job may take, in the order of the candidates; units that would upset the shares are skipped."""
        accounts, leaf = self._accounts, self._accounts.leaf(job)
        taking = Reclaim(
            self._tree,
            leaf,
            accounts.narrow(needed),
            preemptible=self._preemptible[job.key],
            multiplier=self.arguments.saturation_multiplier,
        )
        nothing = np.zeros(len(self._total))
        for row in self._units.leaves_taken_from(job):
            taking.take(row, nothing)
        victims: list[PodRecord] = []
        for unit in self._units.of(self.evictable(candidates)):
            amount = accounts.narrow(unit.amount)
            if not taking.may_take(unit.row, accounts.narrow(unit.gone)):
                continue
            taking.take(unit.row, amount)
            if taking.within_boundaries() and self._stays_taken(taking, leaf, unit):
                victims += unit.pods
            else:
                taking.take(unit.row, -amount)
        return victims

    def _stays_taken(self, taking: Reclaim, leaf: int, unit: Unit) -> bool:
        """Whether the reclaiming queue is still served before the giving one once that one wants its pods back.

        Otherwise the next session would give the place back, and the one after that take it again.
        """
        taker, giver = parting(self._tree, leaf, unit.row)
        ours = self._place_with(taker, taking.remaining(taker), self._next_request(taker))
        wanted = [self._accounts.narrow(unit.amount + unit.gone)]
        waiting = self._next_request(giver)
        if waiting.any():
            wanted.append(waiting)
        return all(ours < self._place_with(giver, taking.remaining(giver), job) for job in wanted)

    # -- accounts --------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.total)
        self._units.undone(operation)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.total)
        self._units.evicted(operation)

    def _change(self, operation: Operation, amount: Vector) -> None:
        job = operation.job
        if job is None:
            return
        self._accounts.change(job, amount, preemptible=self._preemptible[job.key])
        if operation.kind is not Kind.Allocate and self._view.rules.terminating:
            # An evicted pod holds its capacity until it is gone, a pod that is promised it does not yet.
            self._accounts.change_terminating(job, -amount, preemptible=self._preemptible[job.key])
        self._served[job.queue.name] = 0
        for row in self._tree.path(self._accounts.leaf(job)).tolist():
            self._places.pop(row, None)

    def close(self, report: Report) -> None:
        accounts, bounds = self._accounts, self._accounts.bounds
        over = saturation(self._tree.allocated, self._tree.fair_share)
        for queue in self._view.queues.values():
            row = accounts.row[queue.name]
            gauges = report.queue(queue.name)
            gauges.weight = queue.spec.weight
            gauges.overused = bool((self._tree.fair_share[row] < self._tree.allocated[row]).all())
            gauges.share = shares.dominant_share(self._tree.allocated[row], self._tree.fair_share[row])
            gauges.amounts.update(
                allocated=accounts.of_session(bounds.allocated[row]),
                request=accounts.of_session(bounds.request[row]),
                deserved=accounts.of_session(self._tree.quota[row]),
                capacity=accounts.of_session(bounds.limit[row]),
                fair_share=accounts.of_session(self._tree.fair_share[row]),
                usage=accounts.of_session(self._tree.usage[row]),
                saturation=accounts.of_session(over[row]),
                cluster_part=accounts.of_session(shares.share(self._tree.allocated[row], self._total)),
            )
            gauges.plugin, gauges.limit = self.name, gauges.amounts["capacity"]
            gauges.steps = partial(self._steps, row)
            report_misconfigured(report, queue, accounts.broken.get(queue.name))

    # -- usage over time -------------------------------------------------------------------------------------------

    def _recall(self) -> UsageHistory | None:
        """Set the usage of queues, as measured or as remembered; the history goes on when there is to be one."""
        tree, memory = self._tree, self.arguments.memory
        names = self._accounts.names[: self._accounts.width]
        if self.arguments.usage_source == "prometheus":
            for queue, measured in self._view.environment.queue_usage.items():
                if queue in self._accounts.row:
                    tree.usage[self._accounts.row[queue]] = [measured.get(name, 0.0) for name in names]
        if memory is None:
            return None
        # If nothing waits, usage decides nothing; the figures shown are kept within a bucket.
        jobs = self._view.jobs
        waits = (jobs.count(PodState.Pending) > 0).any() or jobs.in_phase("", "Pending").any()
        now, past = self._view.time(math.inf), self.left
        self._view.time(-math.inf if waits else now + memory.bucket)
        if past is None or past.length != memory.bucket:
            past = UsageHistory.begin(memory, tree.names, names, now)
        past = past.advanced(memory, now).about(tree.names, names)
        tree.usage[:] = past.usage(memory)
        return past

    def leave(self) -> UsageHistory | None:
        return self._past and self._past.holds(self._accounts.held_now(), self._total)

    # -- reporting -------------------------------------------------------------------------------------------------

    def _steps(self, row: int) -> list[tuple[str, Vector]]:
        """A queue's fair share after each step of the division."""
        return [(step, self._accounts.of_session(share)) for step, share in self._history.of(row)]


def _in_order(jobs: Sequence[Job]) -> Mapping[str, Sequence[Job]]:
    """Jobs by queue, in order."""
    found: defaultdict[str, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: (-job.priority, job.created, job.key)):
        found[job.queue.name].append(job)
    return found
