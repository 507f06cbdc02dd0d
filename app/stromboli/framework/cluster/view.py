"""The read-only interface of plugins and actions: the cluster as one session sees it.

Nothing here can be written: arrays are read-only, and plugins answer through return values. Statements change the
underlying columns, so every read sees the current state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from stromboli.api import crds, keys, resources
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.environment import Environment, ExtenderTransport
from stromboli.framework.cluster.job import NO_ROWS, NOWHERE, Groups, Job, Queue, SubJob, lineage
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.cluster.lifted_gates import LiftedGates
from stromboli.framework.cluster.membership import Grouped, Membership
from stromboli.framework.cluster.nodes import Nodes, read_only
from stromboli.framework.cluster.shard import Shard
from stromboli.framework.cluster.subgroups import make_sub_jobs
from stromboli.framework.cluster.tally import ALLOCATED
from stromboli.framework.cluster.tenants import restrict, strangers
from stromboli.framework.cluster.topology import Topology, has_topology, locate, topology
from stromboli.framework.cluster.trace import Trace
from stromboli.policy.model import Policy
from stromboli.policy.rules import Rules
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import PodColumns, Snapshot

T = TypeVar("T")


class View:
    """The cluster, its queues, jobs and pods as a session sees them, read-only."""

    def __init__(
        self, snapshot: Snapshot, nodes: Nodes, policy: Policy, rules: Rules, environment: Environment, now: float
    ) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.rules = rules
        self.environment = environment
        self._now = now
        #: whether anything beyond the snapshot and the environment was read (the time or an HTTP extender), and when
        #: another session may therefore decide differently although nothing changed
        self.volatile, self.again_at = False, math.inf
        self.dimensions = snapshot.dimensions
        #: by class, shape (classes, dimensions)
        self._requests: Matrix = snapshot.requests[:, : len(self.dimensions)]
        self._columns = {name: column for column, name in enumerate(self.dimensions)}
        self.pods: PodColumns = _shown(snapshot.pods)
        self.nodes = nodes
        #: the allocatable amounts of all nodes together
        self.total: Vector = read_only(nodes.allocatable.sum(axis=1))
        #: refusals so far, with reasons
        self.trace = Trace()
        #: which nodes are close together
        self.topology: Topology = topology(snapshot.hyper_nodes, nodes.facts, snapshot.derived, snapshot.levels)
        #: which nodes are this scheduler's own; None when all are
        self.shard: Shard | None = None
        if environment.sharding is not None:
            self.shard = Shard(environment.sharding, snapshot.objects.get("NodeShard", {}), nodes.facts)
        self._open_queues()
        #: why jobs could not run even on the empty cluster, by key; and the rows of pods of other jobs that could not
        self.never_fits: Mapping[str, Reason] = {}
        self.too_large: Collection[int] = ()
        #: smaller is placed first; set once the plugins that order pods are known
        self.task_key: Callable[[PodRecord], tuple[object, ...]] = _by_arrival
        #: of jobs with sub groups: the group of each pod, and by uid the pods of each group, by row
        self._sub_job_of_row: dict[int, SubJob] = {}
        self._rows_of_sub_job: dict[str, Rows] = {}
        for uid in environment.nominated_hyper_nodes:
            # Nominations of groups are carried over to the next session, even if their jobs are never looked up.
            job = self.jobs.get("/".join(uid.split("/")[:2]))
            _ = job.sub_jobs if job else None

    def _open_queues(self) -> None:
        """Make the queues and the columns of jobs, with their holdings at the start of the session."""
        snapshot, rules = self.snapshot, self.rules
        self.queues: dict[str, Queue] = _queues(snapshot, self._job_at)
        if rules.closed_queue:
            _close_below(self.queues)
        restricted = restrict(self.queues, snapshot.objects.get("Namespace", {}))
        #: whether the number of pods counts in what queues may have, like any resource
        self.counts_pods = rules.pods_of_queues and _name_pods(self.queues.values())
        #: by key, and as columns
        self.jobs = Jobs(snapshot, self.queues, self._make_job)
        self.membership: Membership = self.jobs.membership
        self._give_queues_their_jobs()
        #: what pods request that held a place at the start, and those and the ones that may get one, shape (jobs,
        #: dimensions); with what is kept for pods that were moved and have not come back
        self.job_allocated: Matrix = self.membership.allocated
        self.job_requested: Matrix = self.membership.requested()
        #: what pods request that terminated on a node at the start, of each job, less what is kept for such pods; None
        #: where there are none or they do not count
        self.job_terminating: Matrix | None = self.membership.terminating() if rules.terminating else None
        #: what terminating pods of each queue hold, shape (queues, dimensions), also those whose PodGroup was deleted
        self.terminating: Matrix | None = self._terminating() if rules.terminating else None
        #: which queues are closed, or below a closed one; a queue that was never opened counts as about to open
        self.closed: Mask = self._closed_queues()
        #: which jobs get nothing more, since their queue is closed or not open to their namespace
        self.shut: Mask = self.closed[self.jobs.queue] | (restricted and strangers(self.jobs, self.queues.values()))
        #: which jobs claim nothing more: those, and the ones that an action held back in the session before
        self.quiet: Mask = self.shut | self.jobs.held_back(self.environment.left)
        if self.quiet.any():
            self.job_requested[self.quiet] = self.job_allocated[self.quiet]
        #: pods for which their queues keep what they ask for, since their gates were lifted
        self.lifted_gates = LiftedGates(snapshot, self.jobs, list(self.queues), self.requests, on=rules.queue_gates)

    @property
    def bounded(self) -> bool:
        """Whether the work of an action in one session has a bound."""
        return self.rules.bounded_sessions and self.policy.session.steps > 0

    def in_strict_order(self, queue: Queue) -> bool:
        """Whether a queue serves its jobs strictly in order, none before one that waits ahead of it."""
        return self.rules.fifo and queue.spec.dequeue_strategy == "fifo"

    # -- the world outside -------------------------------------------------------------------------------------------

    def time(self, until: float = -math.inf) -> float:
        """The time, in seconds since the epoch; unless something changes, it affects no decision before `until`."""
        self.volatile, self.again_at = True, min(self.again_at, until)
        return self._now

    def extender(self) -> ExtenderTransport | None:
        """The way to an HTTP extender, None where there is none. What it answers may differ a moment later."""
        self.volatile, self.again_at = True, -math.inf
        return self.environment.extender

    # -- pods --------------------------------------------------------------------------------------------------------

    def request(self, pod: PodRecord) -> Vector:
        """The requests of a pod, shape (dimensions,)."""
        row: Vector = self._requests[pod.pod_class.id]
        return row

    def requests(self, rows: Rows | Mask) -> Matrix:
        """The requests of the pods in some rows, shape (rows, dimensions)."""
        found: Matrix = self._requests[self.pods.pod_class[rows]]
        return found

    def amounts(self, rows: Rows) -> Matrix:
        """The requests of the pods in some rows, shape (dimensions, rows), for sums over many pods."""
        found: Matrix = self._requests.T.take(self.pods.pod_class[rows], axis=1)
        return found

    def requested(self, pods: Iterable[PodRecord]) -> Vector:
        """The summed requests of some pods, shape (dimensions,)."""
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
        out = np.zeros(len(self.dimensions))
        if unset:
            out += unset
        for name, value in (amounts or {}).items():
            column = self._columns.get(name)
            if column is not None and resources.is_scheduled(name):
                out[column] = resources.amount(name, value)
        return out

    # -- jobs --------------------------------------------------------------------------------------------------------

    def job_of(self, pod: PodRecord) -> Job | None:
        """The job of a pod; None when its PodGroup is not in the session."""
        return self.jobs.get(pod.job)

    def members(self, job: Job) -> list[PodRecord]:
        """All pods of a job."""
        return self.records(self.membership.rows(job.index))

    def rows_holding(self, job: Job) -> Rows:
        """The rows of the pods of a job that hold a place now."""
        return self._holding(self.membership.rows(job.index))

    def _holding(self, rows: Rows) -> Rows:
        return rows[ALLOCATED[self.pods.state[rows]]]

    def holding(self, job: Job) -> list[PodRecord]:
        """The pods of a job that hold a place now."""
        return self.records(self.rows_holding(job))

    def pending(self, job: Job) -> list[PodRecord]:
        """The pods of a job that have no place now. The list must not be changed."""
        job.known_pending = job.known_pending or self.records(self.membership.pending(job.index))
        return job.known_pending

    def rows(self, sub_job: SubJob) -> Rows:
        """The rows of all pods of a group."""
        found = self._rows_of_sub_job.get(sub_job.uid)
        return self.membership.rows(sub_job.job.index) if found is None else found

    def sub_job_of(self, job: Job, pod: PodRecord) -> SubJob:
        """The sub group that a pod of the job is in."""
        sub_jobs = job.sub_jobs
        if len(sub_jobs) == 1:
            return next(iter(sub_jobs.values()))
        return self._sub_job_of_row[pod.row]

    def reason(self, job: Job) -> Reason | None:
        """Why a job does not run: the first stage that blocks it or one of its pods.

        Pods that never get places say nothing of a gang that can start without them.
        """
        found = of_others = self.trace.jobs.get(job.key)
        others = 0
        for pod in self.pending(job):
            why = self.trace.pods.get(pod.row)
            if why is None or why.actionable is Actionable.Wait:
                others += 1
                if why is not None and (of_others is None or why.stage < of_others.stage):
                    of_others = why
            if why is not None and (found is None or why.stage < found.stage):
                found = why
        if 0 < job.min_available - job.ready_count <= others and of_others is not None:
            found = of_others
        return found or self._promised_later(job)

    def _promised_later(self, job: Job) -> Reason | None:
        """Why a pod of a job that is promised a place may not start yet."""
        rows = self.membership.rows(job.index) if self.trace.promised else NO_ROWS
        waiting = rows[self.pods.state[rows] == PodState.Pipelined].tolist()
        return next((why for row in waiting if (why := self.trace.promised.get(row)) is not None), None)

    def by_queue(self, of_jobs: Matrix) -> dict[str, Vector]:
        """The sums over the jobs of each queue and of its descendants; `of_jobs` has the shape (jobs, dimensions)."""
        sums = {name: np.zeros(of_jobs.shape[1]) for name in self.queues}
        own = self.jobs.by_queue(of_jobs)
        for queue in self.queues.values():
            if queue.has_jobs:
                for each in lineage(queue, self.queues):
                    sums[each.name] += own[queue.index]
        return sums

    @property
    def lost(self) -> list[crds.PodGroup]:
        """PodGroups that are no jobs of the session: their queue does not exist."""
        groups = (self.snapshot.pod_groups[row] for row in self.jobs.lost.tolist())
        return [group for group in groups if group is not None]

    # -- opening -----------------------------------------------------------------------------------------------------

    def _give_queues_their_jobs(self) -> None:
        by_queue = Grouped(np.arange(len(self.jobs)), self.jobs.queue, len(self.queues))
        for queue in self.queues.values():
            queue.indices = by_queue.of(queue.index)

    def _terminating(self) -> Matrix | None:
        found = None if self.job_terminating is None else self.jobs.by_queue(self.job_terminating)
        if not self.snapshot.left_queues:
            return found
        left = {row: self.queues[name].index for row, name in self.snapshot.left_queues.items() if name in self.queues}
        if not left:
            return found
        holds = ALLOCATED[self.pods.state] | (self.pods.state == PodState.Releasing)
        rows = np.flatnonzero(holds & np.isin(self.pods.job, list(left)))
        rows = np.array([row for row in rows.tolist() if self.record(row).node_name], np.intp)
        if not len(rows):
            return found
        found = np.zeros((len(self.queues), len(self.dimensions))) if found is None else found
        np.add.at(found, [left[job] for job in self.pods.job[rows].tolist()], self.requests(rows))
        return found

    def _closed_queues(self) -> Mask:
        strict = self.rules.closed_queue
        closed = [strict and (queue.closed or queue.closed_by is not None) for queue in self.queues.values()]
        return np.array(closed, np.bool_)

    def _job_at(self, index: int) -> Job:
        return self.jobs.at(index)

    def _make_job(self, index: int) -> Job:
        jobs, row = self.jobs, int(self.jobs.rows[index])
        pod_group = self.snapshot.pod_groups[row]
        assert pod_group is not None
        spec = pod_group.spec
        return Job(
            index=index,
            row=row,
            key=pod_group.key,
            pod_group=pod_group,
            queue=self.queues[pod_group.queue],
            priority=int(jobs.priority[index]),
            created=pod_group.metadata.created,
            min_available=spec.min_member,
            phase=pod_group.status.phase,
            counts=self.membership.counts[:, index].tolist(),
            pending_best_effort=int(self.membership.pending_best_effort[index]),
            allocated=self.job_allocated[index],
            min_resources=None if spec.min_resources is None else jobs.min_resources[index],
            view=self,
            conditions=pod_group.status.conditions,
            claims=jobs.claims is None or bool(jobs.claims[index]),
        )

    def make_groups(self, job: Job) -> Groups:
        """The groups of a job, and where they lie."""
        groups = Groups({})
        for sub_job, rows in make_sub_jobs(job):
            groups.sub_jobs[sub_job.uid] = sub_job
            nominated = self.environment.nominated_hyper_nodes.get(sub_job.uid)
            if nominated is not None:
                sub_job.nominated_hyper_node = self.topology.index.get(nominated, NOWHERE)
            if job.divided:
                self._rows_of_sub_job[sub_job.uid] = np.array(rows, np.intp)
                self._sub_job_of_row.update(dict.fromkeys(rows, sub_job))
        if has_topology(job):
            locate(job, groups, self.topology, self._nodes_held, hard=self.rules.hard_topology)
        return groups

    def _nodes_held(self, sub_job: SubJob) -> Rows:
        """The nodes of the pods of a group that hold a place; none when one of them is not there."""
        nodes = self.pods.node[self._holding(self.rows(sub_job))]
        return nodes.astype(np.intp) if (nodes >= 0).all() else NO_ROWS


def _shown(pods: PodColumns) -> PodColumns:
    return PodColumns(
        pods.records, read_only(pods.state), read_only(pods.node), read_only(pods.job), read_only(pods.pod_class)
    )


def _name_pods(queues: Iterable[Queue]) -> bool:
    """Whether any queue limits its number of pods."""
    for queue in queues:
        spec = queue.spec
        if (
            (spec.capability and "pods" in spec.capability)
            or (spec.deserved and "pods" in spec.deserved)
            or (spec.guarantee.resource and "pods" in spec.guarantee.resource)
            or (spec.borrowing_limit and "pods" in spec.borrowing_limit)
        ):
            return True
    return False


def _queues(snapshot: Snapshot, job_at: Callable[[int], Job]) -> dict[str, Queue]:
    return {
        name: Queue(
            index=index,
            name=name,
            spec=queue.spec,
            state=queue.status.state,
            created=queue.metadata.created,
            resource=queue,
            job_at=job_at,
        )
        for index, (name, queue) in enumerate(snapshot.queues.items())
    }


def _close_below(queues: Mapping[str, Queue]) -> None:
    """Close the descendants of closed queues, whatever their own state."""
    if not any(queue.closed for queue in queues.values()):
        return
    for queue in queues.values():
        above = islice(lineage(queue, queues), 1, None)
        queue.closed_by = next((each for each in above if each.closed), None)


def _by_arrival(pod: PodRecord) -> tuple[Any, ...]:
    return pod.index, pod.created, pod.uid


def claimless(snapshot: Snapshot) -> Rows:
    """The rows of pods that name a resource claim that does not exist."""
    claims: Mapping[str, Any] = snapshot.objects.get("ResourceClaim", {})
    named = snapshot.pod_facts.column("named claims", _named_claims)
    lacking = [number for number, names in enumerate(named.values[:]) if any(name not in claims for name in names)]
    return np.flatnonzero(np.isin(named.numbers, lacking))


def _named_claims(pod: PodRecord) -> tuple[str, ...] | None:
    """The resource claims that a pod names, None for none."""
    named = pod.pod_class.spec.resource_claims
    if not named:
        return None
    return tuple(keys.key(pod.namespace, each.resource_claim_name) for each in named if each.resource_claim_name)
