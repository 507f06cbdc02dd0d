"""task-topology: roles of a job that belong on one node, or must not share one.

The PodGroup's annotations name groups of roles with affinity and anti-affinity, and the order of roles. The job's pods
are sorted into buckets: a bucket takes pods as long as more of its roles attract than repel them. Full buckets are
placed first, and a pod prefers nodes that hold more of its bucket already or have room for the rest of it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.pod_state import PodState
from stromboli.api.resources import MEMORY, TOLERANCE, Matrix, Rows, Vector, fits
from stromboli.framework.job import Job
from stromboli.framework.nodes import NodeView
from stromboli.framework.operation import Operation
from stromboli.framework.plugin import Arguments, Key, Plugin
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

_AFFINITY = "volcano.sh/task-topology-affinity"
_ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
_ORDER = "volcano.sh/task-topology-task-order"
_ROLE = "volcano.sh/task-spec"
_SCORE = 100.0

#: how much a role's place matters, by the kind of group that it is in; the largest counts
_APART_FROM_ITSELF, _TOGETHER_WITH_OTHERS, _TOGETHER_WITH_ITSELF, _APART_FROM_OTHERS = 4, 3, 2, 1


class TaskTopologyArguments(Arguments):
    """Arguments of task-topology."""

    weight: int = Field(default=1, alias="task-topology.weight")
    """Multiplies the score."""


@dataclass(slots=True)
class Roles:
    """What a job says about its roles."""

    #: pairs of roles that attract or repel each other, in both orders
    together: set[tuple[str, str]] = field(default_factory=set)
    apart: set[tuple[str, str]] = field(default_factory=set)
    #: how much the place of a role matters; roles in no group are not in it
    weight: dict[str, int] = field(default_factory=dict)
    #: position in the order that the job names, the first is the largest; 0 for others
    position: Counter[str] = field(default_factory=Counter)

    def rank(self, role: str) -> tuple[int, int]:
        """Roles of a smaller rank are placed first."""
        return -self.position[role], -self.weight.get(role, 0)

    def attraction(self, role: str, there: Counter[str]) -> int:
        """How many pods that are there attract a role, less those that repel it."""
        together, apart = self.together, self.apart
        return sum(count * (((role, other) in together) - ((role, other) in apart)) for other, count in there.items())

    def repulsion(self, role: str, there: Counter[str]) -> int:
        """How many pods that are there repel a role."""
        return sum(count for other, count in there.items() if (role, other) in self.apart)

    def add(self, group: list[str], pairs: set[tuple[str, str]], alone: int, with_others: int) -> None:
        """Note a group of roles; a group of one is about the pods of that role among themselves."""
        weight = alone if len(group) == 1 else with_others
        for role in group:
            self.weight[role] = max(self.weight.get(role, 0), weight)
            pairs.update((role, other) for other in group if other != role or len(group) == 1)


class Waiting:
    """Pods that wait for a place, in the order in which they began to."""

    __slots__ = ("_at", "_classes", "_size", "_waits")

    def __init__(self) -> None:
        #: the position of each pod, by row
        self._at: dict[int, int] = {}
        self._size = 0
        #: by position, a pod's class and whether it still waits
        self._classes: Rows = np.zeros(8, np.intp)
        self._waits = np.zeros(8, np.bool_)

    def __len__(self) -> int:
        return len(self._at)

    def add(self, pod: PodRecord) -> None:
        """Put a pod at the end."""
        if self._size == len(self._classes):
            self._make_room()
        self._at[pod.row] = self._size
        self._classes[self._size], self._waits[self._size] = pod.pod_class.id, True
        self._size += 1

    def remove(self, pod: PodRecord) -> bool:
        """Take a pod out; False when it did not wait."""
        at = self._at.pop(pod.row, None)
        if at is not None:
            self._waits[at] = False
        return at is not None

    def classes_without(self, pod: PodRecord) -> Rows:
        """The classes of all others, in order."""
        waits, own = self._waits[: self._size], self._at.get(pod.row)
        if own is not None:
            waits = waits.copy()
            waits[own] = False
        found: Rows = self._classes[: self._size][waits]
        return found

    def _make_room(self) -> None:
        left = self._classes[self._waits]
        self._size = len(left)
        self._classes = np.concatenate([left, np.zeros(len(left) + 8, np.intp)])
        self._waits = np.arange(len(self._classes)) < len(left)
        self._at = {row: at for at, row in enumerate(self._at)}


@dataclass(slots=True, eq=False)
class Bucket:
    """Pods that are to share a node."""

    index: int
    #: shape (dimensions,)
    request: Vector
    waiting: Waiting = field(default_factory=Waiting)
    #: how many pods of each role it has, and how many of them are on each node
    roles: Counter[str] = field(default_factory=Counter)
    nodes: Counter[int] = field(default_factory=Counter)

    @property
    def load(self) -> float:
        """Its waiting requests as one number, in which a core, a Gi and a device weigh about the same."""
        amounts: list[float] = self.request.tolist()
        amounts[MEMORY] /= 2**20
        return sum(amounts)

    @property
    def size(self) -> int:
        """All its pods."""
        return sum(self.roles.values())


@dataclass(slots=True, eq=False)
class Plan:
    """The buckets of a job."""

    roles: Roles
    buckets: list[Bucket] = field(default_factory=list)
    bucket_of: dict[int, Bucket] = field(default_factory=dict)
    #: roles of the pods placed in this session, by node
    placed: dict[int, Counter[str]] = field(default_factory=dict)
    #: number of pods of the largest bucket
    largest: int = 0
    #: by role that was asked for, how many pods that repel it were placed on each node, shape (nodes,)
    repelled: dict[str, Vector] = field(default_factory=dict)
    #: the bucket that was asked for last, and how many of its pods are on each node, shape (nodes,)
    last: Bucket | None = None
    on_node: Vector = field(default_factory=lambda: np.zeros(0))
    #: by role that was asked for, the buckets by attraction; entries of an older load or attraction count no more
    _ranked: dict[str, list[tuple[int, float, int, int]]] = field(default_factory=dict)
    #: how often each bucket changed
    _changes: list[int] = field(default_factory=list)

    def add(self, bucket: Bucket, pod: PodRecord, node: int, request: Vector) -> None:
        """Put a pod into a bucket; `node` is where it is, negative when it waits."""
        self.bucket_of[pod.row] = bucket
        bucket.roles[_role(pod)] += 1
        if node < 0:
            bucket.waiting.add(pod)
            bucket.request += request
        else:
            bucket.nodes[node] += 1
        self.largest = max(self.largest, bucket.size)
        self._changes[bucket.index] += 1
        for role, ranked in self._ranked.items():
            heapq.heappush(ranked, self._rank(role, bucket))

    def new_bucket(self, request: Vector) -> Bucket:
        """An empty bucket; `request` is a vector of zeros."""
        bucket = Bucket(len(self.buckets), request)
        self.buckets.append(bucket)
        self._changes.append(0)
        return bucket

    def most_attractive(self, role: str) -> Bucket | None:
        """The bucket that attracts a role most, of equals the one with the least load; None when all repel it."""
        ranked = self._ranked.get(role)
        if ranked is None:
            ranked = self._ranked[role] = [self._rank(role, bucket) for bucket in self.buckets]
            heapq.heapify(ranked)
        while ranked and ranked[0][3] != self._changes[ranked[0][2]]:
            heapq.heappop(ranked)
        return self.buckets[ranked[0][2]] if ranked and ranked[0][0] <= 0 else None

    def _rank(self, role: str, bucket: Bucket) -> tuple[int, float, int, int]:
        return -self.roles.attraction(role, bucket.roles), bucket.load, bucket.index, self._changes[bucket.index]

    def count(self, bucket: Bucket | None, role: str, node: int, sign: int) -> None:
        """A pod of a role was placed on a node (1), or taken off again (-1)."""
        self.placed.setdefault(node, Counter())[role] += sign
        for other, repelled in self.repelled.items():
            if (other, role) in self.roles.apart:
                repelled[node] += sign
        if bucket is not None:
            bucket.nodes[node] += sign
            if bucket is self.last:
                self.on_node[node] += sign

    def pull(self, bucket: Bucket, role: str, nodes: int) -> Vector:
        """How many pods of a bucket are on each node, less those that were placed and repel a role, shape (nodes,)."""
        if bucket is not self.last:
            self.last, self.on_node = bucket, np.zeros(nodes)
            self.on_node[list(bucket.nodes)] = list(bucket.nodes.values())
        repelled = self.repelled.get(role)
        if repelled is None:
            repelled = self.repelled[role] = np.zeros(nodes)
            for node, there in self.placed.items():
                repelled[node] = self.roles.repulsion(role, there)
        out: Vector = self.on_node - repelled
        return out


class TaskTopology(Plugin):
    name = "task-topology"
    #: whoever is in a bucket varies
    reads = Reads(whole=True)
    Arguments: ClassVar[type[BaseModel]] = TaskTopologyArguments

    def open(self, view: View) -> None:
        self._view = view
        self._plans: dict[str, Plan] = {}
        #: node of each pod placed in this session, by row
        self._placed: dict[int, int] = {}
        for job in view.jobs.of(view.jobs.count(PodState.Pending) > 0):
            roles = _read_roles(job)
            if roles is not None:
                self._plans[job.key] = self._plan(job, roles)

    # -- order and scores ----------------------------------------------------------------------------------------

    def task_order(self, pod: PodRecord) -> Key:
        plan, bucket = self._bucket(pod)
        if plan is None or bucket is None:
            return plan is not None, 0, 0, (0, 0)
        return False, -len(bucket.waiting), bucket.index, plan.roles.rank(_role(pod))

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._bucket(pod)[1] is not None

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        plan, bucket = self._bucket(pod)
        if plan is None or bucket is None:
            return None
        score = plan.pull(bucket, _role(pod), len(self._view.nodes))
        if len(nodes) < len(self._view.nodes):
            score = score.take(nodes.rows)
        score += self._joined(bucket, pod, nodes)
        score *= self.arguments.weight * _SCORE / plan.largest
        return score

    def _joined(self, bucket: Bucket, pod: PodRecord, nodes: NodeView) -> Vector | int:
        """How many of the waiting pods of a bucket each node could take together, shape (nodes,) if not all the same.

        Others are left out in their order until the rest fits; the pod itself is counted in any case.
        """
        waiting, classes = len(bucket.waiting), bucket.waiting.classes_without(pod)
        if not len(classes):
            return waiting
        requests = self._view.snapshot.requests[classes, : len(bucket.request)]
        left = bucket.request - np.concatenate([np.zeros((1, len(bucket.request))), np.cumsum(requests, axis=0)])
        idle, releasing = self._view.nodes.idle, self._view.nodes.releasing
        if len(nodes) < len(self._view.nodes):
            idle, releasing = idle.take(nodes.rows, axis=1), releasing.take(nodes.rows, axis=1)
        # Where what is idle takes all of them, what terminating pods leave adds nothing.
        short = np.flatnonzero(~fits(left[0], idle, self._view.nodes.always))
        if not len(short):
            return waiting
        joined = np.full(len(nodes), float(waiting))
        left_out = _first_that_fit(
            left, idle.take(short, axis=1) + releasing.take(short, axis=1), self._view.nodes.always
        )
        joined[short] -= np.minimum(left_out, len(classes))
        return joined

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            plan, bucket = self._bucket(pod)
            if plan is None:
                continue
            self._placed[pod.row] = node
            waited = bucket is not None and bucket.waiting.remove(pod)
            plan.count(bucket if waited else None, _role(pod), node, +1)
            if bucket is not None and waited:
                bucket.request -= operation.request

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            plan, bucket = self._bucket(pod)
            node = self._placed.pop(pod.row, None)
            if plan is None or node is None:
                continue
            plan.count(bucket, _role(pod), node, -1)
            if bucket is not None:
                bucket.waiting.add(pod)
                bucket.request += operation.request

    def _bucket(self, pod: PodRecord) -> tuple[Plan | None, Bucket | None]:
        plan = self._plans.get(pod.job)
        return plan, plan.bucket_of.get(pod.row) if plan else None

    # -- buckets -------------------------------------------------------------------------------------------------

    def _plan(self, job: Job, roles: Roles) -> Plan:
        """Sort a job's pods into buckets: first those that have a node, a bucket for each, then the others."""
        plan = Plan(roles)
        view = self._view
        pods = [pod for pod in view.members(job) if _role(pod) in roles.weight]
        by_node: dict[int, Bucket] = {}
        for pod in sorted(pods, key=lambda pod: (*self._place(pod), roles.rank(_role(pod)), pod.name)):
            node = int(view.pods.node[pod.row])
            if node >= 0:
                bucket = by_node.get(node) or plan.new_bucket(view.vector(None))
                by_node[node] = bucket
            else:
                bucket = plan.most_attractive(_role(pod)) or plan.new_bucket(view.vector(None))
            plan.add(bucket, pod, node, view.request(pod))
        return plan

    def _place(self, pod: PodRecord) -> tuple[bool, str]:
        """Whether a pod has no node, and the name of its node."""
        node = int(self._view.pods.node[pod.row])
        return node < 0, self._view.nodes.name(node) if node >= 0 else ""


def _first_that_fit(left: Matrix, room: Matrix, always: Collection[int]) -> Rows:
    """The first of amounts that become less, shape (steps, dimensions), that fits each of some nodes, shape (nodes,).

    `room` is what nodes have, shape (dimensions, nodes). As many as there are steps where none of them fits.
    """
    first = np.zeros(room.shape[1], np.intp)
    for column, amounts in enumerate(left.T):
        # What nobody asks for is not compared.
        asked = len(amounts) if column in always else int(np.searchsorted(-amounts, 0.0))
        if asked:
            fitting = np.searchsorted(TOLERANCE - amounts, -room[column], side="right")
            np.maximum(first, np.minimum(fitting, asked), out=first)
    return first


def _read_roles(job: Job) -> Roles | None:
    """What a job's annotations say; None when they say nothing or name roles that it does not have."""
    annotations = job.pod_group.metadata.annotations
    if not {_AFFINITY, _ANTI_AFFINITY, _ORDER} & annotations.keys():
        return None
    together, apart = _groups(annotations.get(_AFFINITY)), _groups(annotations.get(_ANTI_AFFINITY))
    order = [role for role in annotations.get(_ORDER, "").split(",") if role]
    known = {pod.role for pod in job.members(job)}
    if not all(_is_valid(group, known) for group in (*together, *apart, order)):
        return None
    roles = Roles()
    for group in together:
        roles.add(group, roles.together, _TOGETHER_WITH_ITSELF, _TOGETHER_WITH_OTHERS)
    for group in apart:
        roles.add(group, roles.apart, _APART_FROM_ITSELF, _APART_FROM_OTHERS)
    roles.position.update({role: len(order) - index for index, role in enumerate(order)})
    return roles


def _groups(annotation: str | None) -> list[list[str]]:
    """Groups of roles: `a,b;c` is [[a, b], [c]]."""
    groups = [[role for role in group.split(",") if role] for group in (annotation or "").split(";")]
    return [group for group in groups if group]


def _is_valid(group: Iterable[str], known: set[str]) -> bool:
    group = list(group)
    return len(set(group)) == len(group) and known.issuperset(group)


def _role(pod: PodRecord) -> str:
    """The role for this plugin: only the annotation counts."""
    role: str = pod.annotations.get(_ROLE, "")
    return role
