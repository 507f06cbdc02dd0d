"""Queues, jobs (PodGroups) and their sub groups, as a session knows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

import numpy as np

from stromboli.api import crds
from stromboli.api.pod_state import ALLOCATED_STATES, READY_STATES, STATES, PodState
from stromboli.api.resources import Rows, Vector
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import PodColumns

NO_ROWS: Rows = np.zeros(0, np.intp)
#: no HyperNode; otherwise it is an index into the session's `topology`
NOWHERE = -1

_READY = tuple(int(s) for s in READY_STATES)
_VALID = (*_READY, int(PodState.Pipelined), int(PodState.Pending))
#: states of pods that have a node or had one
SCHEDULED_STATES = (PodState.Bound, PodState.Running, PodState.Releasing, PodState.Succeeded, PodState.Failed)
_SCHEDULED = tuple(map(int, SCHEDULED_STATES))
#: the counts of those states, from a list of counts by state
_ready, _valid, _scheduled = itemgetter(*_READY), itemgetter(*_VALID), itemgetter(*_SCHEDULED)
_allocated = itemgetter(*map(int, ALLOCATED_STATES))


class Namespaces(Protocol):
    """The namespaces that may use a queue."""

    @property
    def queue(self) -> str:
        """The queue whose namespaces these are."""

    @property
    def told(self) -> str:
        """A description of these namespaces in words."""

    def include(self, namespace: str) -> bool:
        """Whether a namespace is one of them."""


@dataclass(slots=True, eq=False)
class Queue:
    """A queue in a session."""

    #: index in vectors over queues
    index: int
    name: str
    spec: crds.QueueSpec
    #: Open, Closed, Closing, Unknown, or empty when it was never set
    state: str
    #: seconds since the epoch
    created: float
    resource: crds.Queue
    #: makes the object of the job with an index; set by the session
    job_at: Callable[[int], Job]
    #: the indices of its jobs in the session
    indices: Rows = field(default_factory=lambda: NO_ROWS)
    #: the nearest queue above it that is closed or closing, which closes it, too
    closed_by: Queue | None = None
    #: the namespaces that may use it; None for all
    tenants: Namespaces | None = None

    @property
    def jobs(self) -> list[Job]:
        """Its jobs in the session; reading `indices` instead creates no Job objects."""
        return [self.job_at(index) for index in self.indices.tolist()]

    @property
    def has_jobs(self) -> bool:
        """Whether it has jobs in the session."""
        return len(self.indices) > 0

    @property
    def open(self) -> bool:
        """Whether it takes new work."""
        return self.state == "Open" and self.closed_by is None

    @property
    def closed(self) -> bool:
        """Whether it was closed. The root cannot be closed, and a queue whose state was never set is not closed."""
        return self.state in ("Closed", "Closing") and self.name != "root"

    @property
    def parent(self) -> str:
        """The name of its parent; a queue without one is a child of root."""
        return "" if self.name == "root" else self.spec.parent or "root"


def lineage(queue: Queue, queues: Mapping[str, Queue]) -> Iterator[Queue]:
    """A queue and those above it, upwards, each once: parents that are mistaken may lead in a circle."""
    seen = set[str]()
    at: Queue | None = queue
    while at is not None and at.name not in seen:
        yield at
        seen.add(at.name)
        at = queues.get(at.parent)


@dataclass(slots=True, eq=False)
class SubJob:
    """Pods of a job that are placed together. A job without sub groups is one group of all its pods."""

    job: Job
    #: identifies it in the session
    uid: str
    #: its sub group policy; empty for the default group
    policy: str
    #: values of the policy's matchLabelKeys
    values: tuple[str, ...]
    min_available: int
    #: highest priority among its pods
    priority: int = 0
    network_topology: crds.NetworkTopology | None = None
    #: number of pods by state
    counts: list[int] = field(default_factory=list)
    #: pending pods without requests
    pending_best_effort: int = 0
    #: number of the first of `values`, 0 when it is none; groups go in this order
    ordinal: int = 0
    #: highest tier of HyperNodes over which its pods may spread; None when nothing binds them
    highest_tier: int | None = None
    #: HyperNode below which its pods lie
    allocated_hyper_node: int = NOWHERE
    #: HyperNode near which its next pod is placed: `allocated_hyper_node`, until an attempt places pods elsewhere
    anchor: int = NOWHERE
    #: HyperNode in which victims were evicted for all its pods; each of them has a nominated node there
    nominated_hyper_node: int = NOWHERE
    #: whether the nominated nodes of its pods did not work out
    nominations_void: bool = False

    @property
    def ready_count(self) -> int:
        """Pods that hold a place."""
        return sum(_ready(self.counts))

    @property
    def waiting_count(self) -> int:
        """Pods that get a place when others have gone."""
        return self.counts[PodState.Pipelined]

    @property
    def size(self) -> int:
        """All its pods."""
        return sum(self.counts)


@dataclass(slots=True, eq=False)
class Groups:
    """The groups of a job by uid, and how the network topology constrains the job."""

    sub_jobs: dict[str, SubJob]
    highest_tier: int | None = None
    allocated_hyper_node: int = NOWHERE


def called(jobs: Mapping[str, Job], key: str) -> str:
    """The title, without the kind, of the job with a key, even if the job is not in the session."""
    job = jobs.get(key)
    return job.called if job is not None else key


def title_of(jobs: Mapping[str, Job], key: str) -> str:
    """The display name of the job with a key, even if the job is not in the session."""
    job = jobs.get(key)
    return crds.title_of(job.pod_group if job is not None else None, key)


class RoleCounts:
    """The pods of a job by role."""

    __slots__ = ("by_state", "pending_best_effort")

    def __init__(self, pods: Iterable[PodRecord], state_of: Callable[[int], int]) -> None:
        #: by role, the number of pods by state
        self.by_state: defaultdict[str, list[int]] = defaultdict(lambda: [0] * STATES)
        #: by role, pending pods without requests
        self.pending_best_effort: Counter[str] = Counter()
        for pod in pods:
            state = state_of(pod.row)
            self.by_state[pod.role][state] += 1
            if state == PodState.Pending and pod.pod_class.best_effort:
                self.pending_best_effort[pod.role] += 1

    def move(self, pods: Sequence[PodRecord], old: int, new: int) -> None:
        """Account for pods of one class that change their state."""
        pending = (new == PodState.Pending) - (old == PodState.Pending) if pods[0].pod_class.best_effort else 0
        for pod in pods:
            counts = self.by_state[pod.role]
            counts[old] -= 1
            counts[new] += 1
            if pending:
                self.pending_best_effort[pod.role] += pending


class JobView(Protocol):
    """Knows the pods of the jobs of a session."""

    @property
    def pods(self) -> PodColumns:
        """All pods."""

    def members(self, job: Job) -> list[PodRecord]:
        """All pods of a job."""

    def make_groups(self, job: Job) -> Groups:
        """The groups of a job, and where they lie."""


@dataclass(slots=True, eq=False)
class Job:
    """A PodGroup and its pods in a session."""

    #: index in vectors over jobs
    index: int
    #: row in the snapshot
    row: int
    #: `NAMESPACE/NAME`
    key: str
    pod_group: crds.PodGroup
    queue: Queue
    priority: int
    #: seconds since the epoch
    created: float
    min_available: int
    #: the phase, changed by the actions
    phase: str
    #: number of pods by state
    counts: list[int]
    #: pending pods without requests
    pending_best_effort: int
    #: requests of pods with a place, shape (dimensions,)
    allocated: Vector
    #: the PodGroup's minResources; None when it has none
    min_resources: Vector | None
    #: knows its pods; set by the session
    view: JobView
    #: conditions as they are to be written: the PodGroup's own list until plugins change one at the end
    conditions: list[crds.PodGroupCondition]
    #: whether this session found that the job cannot run now
    unschedulable: bool = False
    #: whether it was admitted with its minResources, so that they count beyond what it holds
    claims: bool = True
    #: its pods without a place, kept by the view until one of its pods changes its state
    known_pending: list[PodRecord] | None = None

    _known_groups: Groups | None = None
    _by_role: RoleCounts | None = None
    #: minTaskMember, when it is in force: with less than its sum as minMember it is not
    min_by_role: Mapping[str, int] = field(init=False)
    #: whether it has sub group policies
    divided: bool = field(init=False)

    def __post_init__(self) -> None:
        roles = self.pod_group.spec.min_task_member
        self.min_by_role = roles if not roles or self.min_available >= sum(roles.values()) else {}
        self.divided = bool(self.pod_group.spec.sub_group_policy)

    @property
    def _groups(self) -> Groups:
        """Its groups and where they lie, found when it is first asked: most jobs are left alone."""
        if self._known_groups is None:
            self._known_groups = self.view.make_groups(self)
        return self._known_groups

    def forget_groups(self) -> None:
        """Drop its groups, which hold references to it."""
        self._known_groups = None

    @property
    def sub_jobs(self) -> dict[str, SubJob]:
        """Its groups by uid."""
        return (self._known_groups or self._groups).sub_jobs

    @property
    def opened_sub_jobs(self) -> Collection[SubJob]:
        """Its groups, if they have been created; otherwise none."""
        return self._known_groups.sub_jobs.values() if self._known_groups else ()

    @property
    def highest_tier(self) -> int | None:
        """Highest tier of HyperNodes over which its pods may spread; None when nothing binds them."""
        return (self._known_groups or self._groups).highest_tier

    @property
    def allocated_hyper_node(self) -> int:
        """HyperNode below which its pods lie."""
        return self._groups.allocated_hyper_node

    @allocated_hyper_node.setter
    def allocated_hyper_node(self, hyper_node: int) -> None:
        self._groups.allocated_hyper_node = hyper_node

    @property
    def namespace(self) -> str:
        return self.pod_group.metadata.namespace

    @property
    def name(self) -> str:
        return self.pod_group.metadata.name

    @property
    def title(self) -> str:
        """Its display name: the workload, such as `RayJob default/train`, or else the PodGroup."""
        return self.pod_group.title

    @property
    def called(self) -> str:
        """Its title without the kind, `default/train`."""
        return self.pod_group.called

    @property
    def pending_phase(self) -> bool:
        """Whether it waits for admission."""
        return self.phase in ("", "Pending")

    @property
    def size(self) -> int:
        """All its pods."""
        return sum(self.counts)

    @property
    def ready_count(self) -> int:
        """Pods that hold a place or are done."""
        return sum(_ready(self.counts))

    @property
    def allocated_count(self) -> int:
        """Pods that hold a place."""
        return sum(_allocated(self.counts))

    @property
    def waiting_count(self) -> int:
        """Pods that get a place when others have gone."""
        return self.counts[PodState.Pipelined]

    @property
    def valid_count(self) -> int:
        """Pods that hold a place or may still get one."""
        return sum(_valid(self.counts))

    @property
    def scheduled_count(self) -> int:
        """Pods that have a node or had one; bindings of this session are not confirmed and do not count."""
        return sum(_scheduled(self.counts))

    def held_by_role(self, *, best_effort: bool, promised: bool = False) -> dict[str, int]:
        """Number of pods of each role that hold a place, with pending best-effort pods and promised places if asked."""
        held = {
            role: sum(_ready(counts)) + (counts[PodState.Pipelined] if promised else 0)
            for role, counts in self._roles.by_state.items()
        }
        if best_effort:
            for role, count in self._roles.pending_best_effort.items():
                held[role] += count
        return held

    def valid_by_role(self) -> dict[str, int]:
        """Number of pods of each role that hold a place or may still get one."""
        return {role: sum(_valid(counts)) for role, counts in self._roles.by_state.items()}

    @property
    def _roles(self) -> RoleCounts:
        """Its pods by role, counted when it is first asked."""
        if self._by_role is None:
            self._by_role = RoleCounts(self.view.members(self), self.view.pods.state.__getitem__)
        return self._by_role

    def move(self, sub_job: SubJob, old: int, new: int, pods: Sequence[PodRecord]) -> None:
        """Account for pods of one class that change their state."""
        self.known_pending = None
        count = len(pods)
        own, group = self.counts, sub_job.counts
        own[old] -= count
        own[new] += count
        if group is not own:
            group[old] -= count
            group[new] += count
        if pods[0].pod_class.best_effort:
            delta = count * ((new == PodState.Pending) - (old == PodState.Pending))
            self.pending_best_effort += delta
            sub_job.pending_best_effort += delta
        if self._by_role is not None:
            self._by_role.move(pods, old, new)
