"""Questions of actions to plugins: each once, with the name and the type of its answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from stromboli.api.decisions import ClaimUse, VolumeUse
from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework import reasons
from stromboli.framework.cluster.job import Job, Queue, SubJob
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.cluster.view import View
from stromboli.framework.runtime.points import Points
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord


class Questions:
    """Questions to the plugins of a session; how answers are combined is declared by the point, see `Points`."""

    __slots__ = (
        "_job_missing",
        "_job_order",
        "_lending",
        "_overused",
        "_points",
        "_refused",
        "_rules",
        "preemption_attempts",
    )

    def __init__(self, points: Points, rules: Rules, refused: Collection[str] = ()) -> None:
        """`refused` are the uids of pods whose eviction was refused a moment ago."""
        #: number of times that plugins were asked for victims of preemption
        self.preemption_attempts = 0
        self._points = points
        self._rules = rules
        self._refused = refused
        self._lending = False
        # Asked in every turn of every job.
        self._overused: Callable[[Queue], Reason | None] = points.asking("overused")
        self._job_missing: Callable[[Job], int] = points.asking("job_missing")
        self._job_order: Callable[[Job], tuple[object, ...]] = points.asking("job_order")

    # -- orders: smaller comes first ---------------------------------------------------------------------------------

    def queue_key(self, queue: Queue) -> tuple[object, ...]:
        """The place of a queue; creation and name decide between equals."""
        return (*self._points.key("queue_order", queue), queue.created, queue.name)

    def job_order(self, job: Job) -> tuple[object, ...]:
        """The place of a job in its queue as plugins see it; there may be equals."""
        return self._job_order(job)

    def job_key(self, job: Job) -> tuple[object, ...]:
        """The place of a job in its queue; creation and name decide between equals."""
        return (*self._job_order(job), job.created, job.key)

    def in_job_order(self, jobs: Jobs, indices: Rows) -> Rows:
        """Jobs, by index, in the order of their keys; where plugins answer for all at once no job is looked at."""
        columns = self._points.columns("job_orders", len(jobs))
        if columns is None:
            keys = {index: self.job_key(jobs.at(index)) for index in indices.tolist()}
            return np.array(sorted(keys, key=keys.__getitem__), np.intp)
        by = [jobs.alphabetical, jobs.created, *reversed(columns)]
        return indices[np.lexsort([column[indices] for column in by])]

    def sub_job_key(self, sub_job: SubJob) -> tuple[object, ...]:
        """The place of a group; the number of the first match value and the uid decide between equals."""
        return (*self._points.key("sub_job_order", sub_job), sub_job.ordinal, sub_job.uid)

    def task_key(self, pod: PodRecord) -> tuple[object, ...]:
        """The place of a pod; the number in the name, creation and uid decide between equals."""
        return (*self._points.key("task_order", pod), pod.index, pod.created, pod.uid)

    def in_task_order(self, pods: list[PodRecord]) -> list[PodRecord]:
        """Pods in the order in which they are tried."""
        if len(pods) < 2:
            return pods
        keys = self._points.keys("task_order", pods)
        places = [(*key, pod.index, pod.created, pod.uid) for key, pod in zip(keys, pods, strict=True)]
        return [pods[at] for at in sorted(range(len(pods)), key=places.__getitem__)]

    def victim_queue_order(self, queue: Queue, beneficiary: Queue) -> tuple[object, ...]:
        """The place of a queue among those that others take from, as plugins see it; there may be equals."""
        return self._points.key("victim_queue_order", queue, beneficiary)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def job_valid(self, job: Job) -> Reason | None:
        """Why a job cannot be scheduled at all."""
        return self._points.reason("job_valid", job)

    def job_enqueueable(self, job: Job) -> tuple[bool, Reason | None]:
        """Whether a pending job may start to compete, and why not."""
        return self._points.verdict("job_enqueueable", job)

    def job_missing(self, job: Job) -> int:
        """Number of pods that a job still needs to be ready, at least; 0 or less when it is."""
        return self._job_missing(job)

    @property
    def may_wait_for_gangs(self) -> bool:
        """Whether any plugin has jobs begin together."""
        return bool(self._points.all["job_missing"])

    def job_pipelined(self, job: Job) -> bool:
        """Whether a job may keep its promised places."""
        return self._points.verdict("job_pipelined", job)[0]

    def starts_as_promised(self, job: Job) -> bool:
        """Whether a job can start with its promised places, so that others may be evicted for it.

        A job that only keeps places until it has enough, as an overdue one may, cannot start with them.
        """
        return self._points.verdict("job_pipelined", job, unanimous=self._rules.evict_only_what_helps)[0]

    def sub_job_missing(self, sub_job: SubJob) -> int:
        """Number of pods that a group still needs to be ready, at least; the only group of a job is the job."""
        if not sub_job.job.divided:
            return self._job_missing(sub_job.job)
        return self._points.number("sub_job_missing", sub_job)

    def sub_job_pipelined(self, sub_job: SubJob) -> bool:
        """Whether a group may keep its promised places."""
        if not sub_job.job.divided:
            return self.job_pipelined(sub_job.job)
        return self._points.verdict("sub_job_pipelined", sub_job)[0]

    def job_starving(self, job: Job) -> bool:
        """Whether a job may evict others."""
        return self._points.flag("job_starving", job)

    # -- shares ------------------------------------------------------------------------------------------------------

    def shut(self, job: Job) -> Reason | None:
        """Why the queue of a job takes nothing new of it, for actions that ask no plugin about it."""
        queue = job.queue
        if self._rules.closed_queue and not queue.open:
            return reasons.queue_not_open(queue)
        allowed = queue.tenants is None or queue.tenants.include(job.namespace)
        return None if allowed else reasons.namespace_not_allowed(job)

    def overused(self, queue: Queue) -> Reason | None:
        """Why a queue gets nothing more."""
        return self._overused(queue)

    def allocatable(self, queue: Queue, pod: PodRecord, count: int = 1) -> tuple[int, Reason | None]:
        """Number of pods like this one, `count` at most, that a queue may take, and why not all."""
        return self._points.allowed("allocatable", (queue, pod), count, unless="lendable" if self._lending else "")

    @property
    def count_pods(self) -> bool:
        """Whether a plugin limits the number of pods, those included that request nothing."""
        return any(plugin.counts_pods for plugin in self._points.plugins)

    def startable(self, queue: Queue, pod: PodRecord, count: int = 1) -> tuple[int, Reason | None]:
        """Number of pods like this one that may be bound now, of `count` that a queue may take, and why not all."""
        return self._points.allowed("startable", (queue, pod), count)

    @property
    def may_lend(self) -> bool:
        """Whether any plugin lends capacity beyond shares."""
        return self._rules.indivisible_shares and bool(self._points.all["lendable"])

    def lendable(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not take some pods, all of them together, beyond its share."""
        return self._points.reason("lendable", queue, pods)

    @contextmanager
    def beyond_shares(self) -> Iterator[None]:
        """While this holds, `allocatable` asks only plugins that never lend."""
        self._lending = True
        try:
            yield
        finally:
            self._lending = False

    @property
    def takes_back_by_share(self) -> bool:
        """Whether a queue may reclaim its whole share, not only what its jobs need to run."""
        return self._rules.served_next and self._points.fills_shares()

    @property
    def gives_back_in_order(self) -> bool:
        """Whether victims of reclaim follow a plugin's order, even if more pods are evicted that way."""
        return self.takes_back_by_share and self._points.gives_back_in_order()

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not reclaim what others hold for some of its pods, all of them together."""
        return self._points.reason("preemptive", queue, pods)

    def ceiling(self, view: View, queue: Queue) -> Vector | None:
        """The most that a queue may ever hold; None when no plugin limits it."""
        return self._points.limit("ceiling", len(view.dimensions), view, queue)

    def job_ceilings(self, view: View) -> Mapping[str, Sequence[tuple[Vector, str]]]:
        """The most that single jobs may ever hold, by key: the limit from each plugin, with a description."""
        return self._points.limits("job_ceilings", len(view.dimensions), view)

    # -- victims -----------------------------------------------------------------------------------------------------

    @property
    def heeds_vetoes(self) -> bool:
        """Whether a pod, its PodGroup and plugins that protect it have the last word on its eviction."""
        return self._rules.veto

    @property
    def counts_best_effort(self) -> bool:
        """Whether pending pods without requests count as if they had a place."""
        return not self._rules.readiness

    def victims(self, point: str, beneficiary: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates that may be evicted for a pod, in their order. `point` is preemptable or reclaimable."""
        self.preemption_attempts += point == "preemptable"
        return self._points.victims(point, beneficiary, self._not_refused(candidates), veto=self._rules.veto)

    def gang_victims(self, point: str, job: Job, first: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The victims for a job that is to get all its places at once, and whose first pod to be placed is `first`.

        Volcano asks fewer plugins about this than about victims of a single pod, so budgets and cooldowns do not count
        there. If vetoes are final, every plugin that has a say about single pods has one here.
        """
        if self._rules.veto:
            return self.victims(point, first, candidates)
        return self._points.victims(f"gang_{point}", job, self._not_refused(candidates), veto=False)

    def _not_refused(self, candidates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """The candidates whose eviction was not refused a moment ago."""
        return [pod for pod in candidates if pod.uid not in self._refused] if self._refused else candidates

    def judges_steadily(self, point: str) -> bool:
        """Whether the verdict on a candidate is the same for all pods of equal jobs, whatever the other candidates."""
        return self._rules.veto and self._points.steady(point)

    def preemptable_jobs(self, pod: PodRecord, jobs: int, smallest: Callable[[], Matrix]) -> Mask | None:
        """Mask of jobs that may have pods to evict for a pod of their own queue, out of `jobs`; None for all.

        `smallest` returns the least that every pod of a job requests, shape (jobs, dimensions).
        """
        if not self._rules.veto:
            return None
        masks = self._points.masks("preemptable_jobs", "preemptable", jobs, pod, smallest)
        return np.logical_and.reduce(masks) if masks else None

    def evictable_pods(self, point: str, rows: Rows) -> Mask | None:
        """Mask of the pods in `rows` that may be evicted at most, shape (rows,), by the plugins asked at a point."""
        masks = self._points.masks("evictable_pods", point, len(rows), rows) if self._rules.veto else ()
        return np.logical_and.reduce(masks) if masks else None

    def reclaimable_queues(self, pod: PodRecord, requests: tuple[Matrix, Matrix, Matrix]) -> Mask | None:
        """The queues that may at most have pods to evict for a pod of another queue, shape (queues,); None for all.

        `requests` are those of `Plugin.reclaimable_queues`, each of shape (queues, dimensions).
        """
        if not self._rules.veto:
            return None
        queues = len(requests[0])
        masks = self._points.masks("reclaimable_queues", "reclaimable", queues, pod, *requests)
        return np.logical_and.reduce(masks) if masks else None

    def by_share(self, point: str) -> bool:
        """Whether which pods may be evicted depends on what the jobs of a queue hold."""
        return self._points.by_share(point)

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates to whose eviction for the cluster's good no plugin objects."""
        return self._points.pods("evictable", self._not_refused(candidates))

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        """The running pods that plugins want to see evicted for the cluster's good."""
        return self._points.pods("victim_tasks", running)

    # -- HyperNodes, as indices into the topology --------------------------------------------------------------------

    def hyper_node_gradients(self, of: Job | SubJob, root: int, evicting: bool, number: int) -> list[Rows] | None:
        """The HyperNodes at or below `root`, of `number` in all, to place a job or group in, the best gradient first.

        The first plugin that takes part decides; None when there is none.
        """
        return self._points.gradients("hyper_node_gradient", number, of, root, evicting)

    def hyper_node_scores(self, sub_job: SubJob, hyper_nodes: Rows) -> Vector:
        """Scores of HyperNodes for a group, shape (HyperNodes,); the highest is the best."""
        total = self._points.scores("hyper_node_order", len(hyper_nodes), sub_job, hyper_nodes)
        return np.zeros(len(hyper_nodes)) if total is None else total

    def hyper_node_scores_with(self, sub_job: SubJob, hyper_nodes: Rows, requested: Matrix) -> Vector | None:
        """Scores if some more, shape (dimensions, HyperNodes), had been placed there; None if a plugin cannot say."""
        return self._points.scores("hyper_node_order_with", len(hyper_nodes), sub_job, hyper_nodes, requested)

    # -- nodes -------------------------------------------------------------------------------------------------------

    @property
    def may_refuse(self) -> bool:
        """Whether any plugin looks again at the node that was chosen for a pod."""
        return bool(self._points.all["refusal"])

    def refusal(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod is refused the node that was chosen for it."""
        return self._points.reason("refusal", pod, node)

    def starts_later(self, pod: PodRecord, node: int) -> Reason | None:
        """Why a pod may not be bound yet to the node that was chosen for it."""
        return self._points.reason("starts_later", pod, node)

    @property
    def may_annotate(self) -> bool:
        """Whether any plugin has annotations for pods that are bound."""
        return bool(self._points.all["bind_annotations"])

    def bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        """The annotations that a pod gets with its binding."""
        return self._points.texts("bind_annotations", pod, node)

    def bind_claims(self, pod: PodRecord, node: int) -> list[ClaimUse]:
        """The resource claims that are reserved for a pod before it is bound."""
        return self._points.uses("bind_claims", ClaimUse, pod, node)

    def bind_volumes(self, pod: PodRecord, node: int) -> list[VolumeUse]:
        """The PersistentVolumeClaims that are bound before a pod is."""
        return self._points.uses("bind_volumes", VolumeUse, pod, node)
