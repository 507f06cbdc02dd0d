"""One scheduling session: a snapshot, the plugins of a policy, and what the actions decide.

`Session` is what actions drive and plugins see. It reads no clock: `now` is passed in. What it decided is in
`decisions` after `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stromboli.api import crds, resources
from stromboli.api.decisions import Bind, Decision, Evict
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import PODS, Mask, Matrix, Rows, Vector
from stromboli.framework import reasons
from stromboli.framework.environment import Environment
from stromboli.framework.job import NOWHERE, Job, Queue, SubJob
from stromboli.framework.kernel import Kernel
from stromboli.framework.membership import ALLOCATED, NO_ROWS, Membership
from stromboli.framework.nodes import SessionNodes
from stromboli.framework.plugin import Plugin
from stromboli.framework.points import Points, culprit
from stromboli.framework.registry import Registry
from stromboli.framework.shard import OwnNodesOnly, Shard
from stromboli.framework.statement import Kind, Placement, Statement
from stromboli.framework.subgroups import make_sub_jobs
from stromboli.framework.topology import Topology, has_topology, settle, topology
from stromboli.framework.trace import Trace
from stromboli.policy.document import PluginOption, Policy
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

_NOWHERE = Environment()
_NO_ANNOTATIONS: Mapping[str, str] = {}
T = TypeVar("T")


@dataclass(slots=True)
class QueueGauges:
    """What is exported of a queue; what no plugin set is not exported."""

    share: float | None = None
    weight: int | None = None
    overused: bool | None = None
    #: deserved, allocated, request, capacity, real_capacity, inqueue: vectors of shape (dimensions,)
    amounts: dict[str, Vector] = field(default_factory=dict)

    @property
    def names_extended(self) -> bool:
        """Whether any amount has more than cpu and memory."""
        return any(vector[PODS:].any() for vector in self.amounts.values())

    def export_last(self, amount: str) -> None:
        """Move an amount to the end: it was set once more."""
        self.amounts[amount] = self.amounts.pop(amount)


@dataclass(slots=True)
class Timings:
    """CPU seconds spent, for metrics; decisions never depend on it."""

    actions: dict[str, float] = field(default_factory=dict)
    plugins: dict[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """An error that a plugin raised; it was left out for the rest of the session unless a job was set aside for it."""

    plugin: str
    #: an extension point, an action, or the key of the job that was set aside
    where: str
    error: Exception


class Session:
    """See the module's docstring."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        registry: Registry,
        rules: Rules,
        *,
        now: float,
        environment: Environment = _NOWHERE,
    ) -> None:
        self.snapshot = snapshot
        self.environment = environment
        #: the environment as the next session has to know it; plugins put in what they remember
        self.afterwards = environment
        self.policy = policy
        self.rules = rules
        self._now = now
        #: whether more was asked than the snapshot and the environment: the time, or somebody else
        self.volatile = False
        self.dimensions = snapshot.dimensions
        self.pods = snapshot.pods
        if not rules.missing_claims:
            self._leave_out_pods_without_claims()
        self.nodes = SessionNodes(snapshot.nodes)
        #: sum of what all nodes can allocate
        self.total: Vector = self.nodes.allocatable.sum(axis=1)
        self.trace = Trace()
        self.timings = Timings()
        self.decisions: list[Decision] = []
        self.failures: list[PluginFailure] = []
        self._open: list[Statement] = []
        self.gauges: dict[str, QueueGauges] = {}
        #: the last discarded try of each pod, by row
        self.tried: dict[int, Placement] = {}
        #: node of each pod that waits for victims of this session to go, by row
        self.promised: dict[int, int] = {}
        #: pods bound and evicted, by key -> node
        self.bound: dict[str, str] = {}
        self.evicted: dict[str, str] = {}
        #: which nodes are close together
        self.topology: Topology = topology(snapshot.hyper_nodes, self.nodes.facts)
        #: which nodes are this scheduler's own; None when all are
        self.shard: Shard | None = None
        if environment.sharding is not None:
            self.shard = Shard(environment.sharding, snapshot.objects.get("NodeShard", {}), self.nodes.facts)
        self.queues: dict[str, Queue] = self._open_queues()
        self.jobs: dict[str, Job] = {}
        queues = self.queues
        included = [
            (row, pod_group)
            for row, pod_group in enumerate(snapshot.pod_groups)
            if pod_group is not None and (pod_group.spec.queue or "default") in queues
        ]
        self.membership = Membership(snapshot, [row for row, _ in included])
        #: what pods request that held a place at the start, and those and the pending ones, shape (jobs, dimensions)
        self.job_allocated: Matrix = self.membership.allocated
        self.job_requested: Matrix = self.membership.requested()
        self._sub_job_of_row: dict[int, SubJob] = {}
        self._open_jobs(included)
        self.plugins: list[Plugin] = []
        tiers: list[list[tuple[Plugin, PluginOption]]] = []
        if self.shard is not None and self.shard.sharding.mode == "hard":
            tiers.append([(OwnNodesOnly(self.shard), PluginOption(OwnNodesOnly.name))])
        for tier in policy.tiers:
            row: list[tuple[Plugin, PluginOption]] = []
            for option in tier.plugins:
                plugin = registry.plugin(option.name)(option.arguments, hierarchy=option.hierarchy)
                row.append((plugin, option))
                self.plugins.append(plugin)
            tiers.append(row)
        self.points = Points(tiers)
        self.kernel = Kernel(self.nodes, self.points, self.request)

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch. A session that asked for it may decide differently a moment later."""
        self.volatile = True
        return self._now

    # -- facts -----------------------------------------------------------------------------------------------------

    def request(self, pod: PodRecord) -> Vector:
        """What a pod requests, shape (dimensions,)."""
        row: Vector = self.snapshot.requests[pod.pod_class.id, : len(self.dimensions)]
        return row

    def requested(self, pods: Iterable[PodRecord]) -> Vector:
        """What some pods request together, shape (dimensions,)."""
        total = np.zeros(len(self.dimensions))
        for pod in pods:
            total += self.request(pod)
        return total

    def record(self, row: int) -> PodRecord:
        """The pod in a row that is known to be in use."""
        record = self.pods.records[row]
        assert record is not None
        return record

    def records(self, rows: Rows) -> list[PodRecord]:
        """The pods in rows that are known to be in use."""
        records = self.pods.records
        return [record for row in rows.tolist() if (record := records[row]) is not None]

    def vector(self, amounts: resources.ResourceAmounts | None, unset: float = 0.0) -> Vector:
        """A resource list in this session's dimensions; resources that nothing else names are left out."""
        out = np.full(len(self.dimensions), unset)
        index = {name: i for i, name in enumerate(self.dimensions)}
        for name, value in (amounts or {}).items():
            if name in index and resources.is_scheduled(name):
                out[index[name]] = resources.amount(name, value)
        return out

    def members(self, job: Job) -> list[PodRecord]:
        """All pods of a job."""
        return self.records(self.membership.rows(job.index))

    def rows(self, sub_job: SubJob) -> Rows:
        """The rows of all pods of a group."""
        job = sub_job.job
        return np.array([p.row for p in self.members(job) if self.sub_job_of(job, p) is sub_job], np.intp)

    def pending(self, job: Job) -> list[PodRecord]:
        """The pods of a job that have no place now."""
        return self.records(self.membership.pending(job.index))

    def sub_job_of(self, job: Job, pod: PodRecord) -> SubJob:
        """The sub group that a pod of the job is in."""
        if len(job.sub_jobs) == 1:
            return next(iter(job.sub_jobs.values()))
        return self._sub_job_of_row[pod.row]

    def gauge(self, queue: str) -> QueueGauges:
        """The gauges of a queue, to be set by plugins."""
        return self.gauges.setdefault(queue, QueueGauges())

    # -- what plugins say --------------------------------------------------------------------------------------------

    def queue_key(self, queue: Queue) -> tuple[object, ...]:
        """Smaller is served first; creation and name decide between equals."""
        return (*self.points.key("queue_order", queue), queue.created, queue.name)

    def job_key(self, job: Job) -> tuple[object, ...]:
        """Smaller is served first; creation and name decide between equals."""
        return (*self.points.key("job_order", job), job.created, job.key)

    def sub_job_key(self, sub_job: SubJob) -> tuple[object, ...]:
        """Smaller is served first; the number of the first match value and the uid decide between equals."""
        return (*self.points.key("sub_job_order", sub_job), sub_job.ordinal, sub_job.uid)

    def in_task_order(self, pods: list[PodRecord]) -> list[PodRecord]:
        """Pods in the order in which they are tried."""
        return sorted(pods, key=self.task_key)

    def task_key(self, pod: PodRecord) -> tuple[object, ...]:
        """Smaller is placed first; the number in the name, creation and uid decide between equals."""
        return (*self.points.key("task_order", pod), pod.index, pod.created, pod.uid)

    def job_valid(self, job: Job) -> Reason | None:
        """Why a job cannot be scheduled at all."""
        return self.points.objection("job_valid", job)

    def job_missing(self, job: Job) -> int:
        """How many pods a job still needs, at least, to be ready; 0 or less when it is."""
        return self.points.largest("job_missing", job)

    def job_pipelined(self, job: Job) -> bool:
        """Whether a job may keep what it was promised."""
        return self.points.vote("job_pipelined", job)[0]

    def sub_job_missing(self, sub_job: SubJob) -> int:
        """How many pods a group still needs, at least, to be ready; the only group of a job is the job."""
        if not sub_job.job.divided:
            return self.job_missing(sub_job.job)
        return self.points.largest("sub_job_missing", sub_job)

    def sub_job_pipelined(self, sub_job: SubJob) -> bool:
        """Whether a group may keep what it was promised."""
        if not sub_job.job.divided:
            return self.job_pipelined(sub_job.job)
        return self.points.vote("sub_job_pipelined", sub_job)[0]

    def closed(self, queue: Queue) -> Reason | None:
        """Why a queue takes nothing new, for actions that ask no plugin about it."""
        return reasons.queue_not_open(queue) if self.rules.closed_queue and not queue.open else None

    def overused(self, queue: Queue) -> Reason | None:
        """Why a queue gets nothing more."""
        return self.points.objection("overused", queue)

    def allocatable(self, queue: Queue, pod: PodRecord, count: int = 1) -> tuple[int, Reason | None]:
        """How many of `count` pods like this one a queue may take, and why not all."""
        least, why = count, None
        for method in self.points.all("allocatable"):
            room, reason = method(queue, pod, least)
            if room < least:
                least, why = room, reason
        return least, why

    def job_starving(self, job: Job) -> bool:
        """Whether a job may evict others."""
        return self.points.first_tier_agrees("job_starving", job)

    def preemptive(self, queue: Queue, pods: Sequence[PodRecord]) -> Reason | None:
        """Why a queue may not take back what others hold for some of its pods, all of them together."""
        return self.points.objection("preemptive", queue, pods)

    def victims(self, point: str, beneficiary: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The candidates that may be evicted for a pod, in their order. `point` is preemptable or reclaimable."""
        return self.points.victims(point, beneficiary, candidates, veto=self.rules.veto)

    def gang_victims(self, point: str, job: Job, first: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """The same for a job that is to get all its places at once, of whose pods `first` is placed first.

        Volcano asks fewer plugins about this than about victims of a single pod, so budgets and cooldowns do not
        count. Where vetoes are final, whoever has a say in those has one here.
        """
        if self.rules.veto:
            return self.victims(point, first, candidates)
        return self.points.victims(f"gang_{point}", job, candidates, veto=False)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, actions: Mapping[str, Callable[[Session], None]], clock: Callable[[], float]) -> None:
        """Open the plugins, run the policy's actions in order, close the plugins."""
        self._each_plugin("open", clock)
        for name in self.policy.actions:
            started = clock()
            self._run_action(name, actions[name])
            self.timings.actions[name] = self.timings.actions.get(name, 0.0) + clock() - started
        self._each_plugin("close", clock)

    def _each_plugin(self, what: str, clock: Callable[[], float]) -> None:
        for plugin in [p for p in self.plugins if p in self.points]:
            started = clock()
            try:
                getattr(plugin, what)(self)
            except Exception as error:
                self.disable(error, what, plugin)
            self.timings.plugins[plugin.name, what] = clock() - started

    def _run_action(self, name: str, action: Callable[[Session], None]) -> None:
        """Run an action, again without a plugin that broke it; what it had committed stands."""
        while True:
            self._open.clear()
            plugins = self.points.count
            try:
                return action(self)
            except Exception as error:
                self._take_back()
                # Keys of an order that lost a plugin midway cannot be compared with those from before.
                if self.points.count == plugins:
                    self.disable(error, name)

    def attempt(self, job: Job, turn: Callable[[], T], otherwise: T) -> T:
        """A job's turn. When a plugin fails in it, what was tried is taken back and the job is set aside."""
        self._open.clear()
        try:
            return turn()
        except Exception as error:
            plugin = culprit(error)
            if plugin is None:
                raise
            self._take_back()
            self.failures.append(PluginFailure(plugin.name, job.key, error))
            self.trace.job(job.key, reasons.plugin_failed(plugin.name, error))
            return otherwise

    def disable(self, error: Exception, where: str, plugin: Plugin | None = None) -> None:
        """Leave out the plugin that raised for the rest of the session; an error that is no plugin's goes on."""
        plugin = plugin or culprit(error)
        if plugin is None or plugin not in self.points:
            raise error
        self.failures.append(PluginFailure(plugin.name, where, error))
        self.points.disable(plugin)

    def _take_back(self) -> None:
        for statement in reversed(self._open):
            statement.discard()
        self._open.clear()

    def statement(self) -> Statement:
        """A new statement."""
        statement = Statement(self)
        self._open.append(statement)
        return statement

    def commit(self, placement: Placement) -> None:
        """Turn an operation of a statement into decisions."""
        if placement.kind is Kind.Allocate:
            self._bind(placement)
        elif placement.kind is Kind.Evict:
            for pod, node in zip(placement.pods, placement.nodes, strict=True):
                self.evicted[pod.key] = name = self.nodes.name(node) if node >= 0 else pod.node_name
                self.decisions.append(
                    Evict(pod.namespace, pod.name, pod.uid, name, placement.reason, placement.beneficiary)
                )
        elif placement.after_eviction:
            for pod, node in zip(placement.pods, placement.nodes, strict=True):
                self.promised[pod.row] = node
        for pod in placement.pods:
            self.tried.pop(pod.row, None)

    def _bind(self, placement: Placement) -> None:
        self.pods.state[placement.rows] = PodState.Binding
        self.trace.placed(placement.pods)
        for pod, node in zip(placement.pods, placement.nodes, strict=True):
            self.bound[pod.key] = name = self.nodes.name(node)
            annotations = self._bind_annotations(pod, node)
            self.decisions.append(Bind(pod.namespace, pod.name, pod.uid, name, annotations))
        if placement.sub_job is not None:
            best_effort = placement.pods[0].pod_class.best_effort
            placement.sub_job.job.move(
                placement.sub_job, PodState.Allocated, PodState.Binding, len(placement.pods), best_effort
            )

    def _bind_annotations(self, pod: PodRecord, node: int) -> Mapping[str, str]:
        methods = self.points.all("bind_annotations")
        if not methods:
            return _NO_ANNOTATIONS
        return {key: value for method in methods for key, value in method(pod, node).items()}

    def allocate_now(self, sub_job: SubJob, pod: PodRecord, node: int) -> None:
        """Give a pod a node outside of a statement, and commit all that its job holds once the job is ready."""
        Statement(self).allocate(sub_job, (pod,), (node,))
        job = sub_job.job
        if self.job_missing(job) > 0:
            return
        for member in self.members(job):
            if self.pods.state[member.row] == PodState.Allocated:
                self.commit(
                    Placement(
                        Kind.Allocate,
                        job,
                        self.sub_job_of(job, member),
                        (member,),
                        (int(self.pods.node[member.row]),),
                        self.request(member),
                    )
                )

    def remember_try(self, placement: Placement) -> None:
        """Keep what was tried for a pod, to be able to say so."""
        for pod in placement.pods:
            self.tried[pod.row] = placement

    def reason(self, job: Job) -> Reason | None:
        """Why a job does not run: the first stage that blocks it or one of its pods."""
        found = self.trace.jobs.get(job.key)
        for pod in self.pending(job):
            why = self.trace.pods.get(pod.row)
            if why is not None and (found is None or why.stage < found.stage):
                found = why
        return found

    def nominated_hyper_nodes(self) -> dict[str, str]:
        """What the next session has to know of the HyperNodes that were nominated, by uid of the group."""
        if not self.rules.nominations:
            return {}
        return {
            sub_job.uid: self.topology.name(sub_job.nominated_hyper_node)
            for job in self.jobs.values()
            for sub_job in job.opened_sub_jobs
            if sub_job.nominated_hyper_node != NOWHERE
        }

    def nominated(self, pod: PodRecord, within: Mask | None = None) -> tuple[int, bool] | None:
        """The node that was nominated for a pod, when the pod may go there now (True) or later (False)."""
        node = self.nodes.facts.index.get(pod.nominated_node)
        if node is None or (within is not None and not within[node]):
            return None
        only = np.zeros(len(self.nodes), np.bool_)
        only[node] = True
        return self.kernel.best(pod, only)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _leave_out_pods_without_claims(self) -> None:
        """Pods that name a resource claim that does not exist are in no job, as in Volcano's cache."""
        claims = self.snapshot.objects.get("ResourceClaim", {})
        lacking = [
            pod_class.id
            for pod_class in self.snapshot.classes
            for named in pod_class.spec.resource_claims or ()
            if named.resource_claim_name and f"{pod_class.namespace}/{named.resource_claim_name}" not in claims
        ]
        self.pods.job[np.isin(self.pods.pod_class, lacking) & (self.pods.job >= 0)] = -1

    def _open_queues(self) -> dict[str, Queue]:
        return {
            name: Queue(
                index=index,
                name=name,
                spec=queue.spec,
                state=queue.status.state,
                created=queue.metadata.created,
                resource=queue,
            )
            for index, (name, queue) in enumerate(self.snapshot.queues.items())
        }

    def _open_jobs(self, included: Sequence[tuple[int, crds.PodGroup]]) -> None:
        priorities = self.snapshot.priority_classes
        default_priority = next((c.value for c in priorities.values() if c.global_default), 0)
        counts, best_effort = self.membership.counts(), self.membership.pending_best_effort()
        members, state_of, sub_jobs = self.members, self.pods.state.__getitem__, self._open_sub_jobs
        nominated = self.environment.nominated_hyper_nodes
        for index, (row, pod_group) in enumerate(included):
            spec = pod_group.spec
            priority_class = priorities.get(spec.priority_class_name)
            queue = self.queues[spec.queue or "default"]
            job = Job(
                index=index,
                row=row,
                key=pod_group.key,
                pod_group=pod_group,
                queue=queue,
                priority=priority_class.value if priority_class else default_priority,
                created=pod_group.metadata.created,
                min_available=spec.min_member,
                phase=pod_group.status.phase,
                counts=counts[index],
                pending_best_effort=best_effort[index],
                allocated=self.job_allocated[index],
                min_resources=None if spec.min_resources is None else self.vector(spec.min_resources),
                members=members,
                state_of=state_of,
                make_sub_jobs=sub_jobs,
                conditions=pod_group.status.conditions,
            )
            if has_topology(job):
                settle(job, self.topology, self._nodes_held)
            elif job.divided or job.key in nominated:
                # What was nominated for its groups goes on to the next session.
                _ = job.sub_jobs
            queue.jobs.append(job)
            self.jobs[job.key] = job

    def _open_sub_jobs(self, job: Job) -> dict[str, SubJob]:
        sub_jobs = {}
        for sub_job, rows in make_sub_jobs(job):
            sub_jobs[sub_job.uid] = sub_job
            nominated = self.environment.nominated_hyper_nodes.get(sub_job.uid)
            if nominated is not None:
                sub_job.nominated_hyper_node = self.topology.index.get(nominated, NOWHERE)
            for row in rows:
                self._sub_job_of_row[row] = sub_job
        return sub_jobs

    def _nodes_held(self, sub_job: SubJob) -> Rows:
        """The nodes of the pods of a group that hold a place; none when one of them is not there."""
        rows = self.rows(sub_job)
        nodes = self.pods.node[rows[ALLOCATED[self.pods.state[rows]]]]
        return nodes.astype(np.intp) if (nodes >= 0).all() else NO_ROWS
