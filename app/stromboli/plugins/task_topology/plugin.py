"""task-topology: roles of a job that belong on one node, or must not share one.

The PodGroup's annotations name groups of roles with affinity and anti-affinity, and the order of roles. The job's pods
are sorted into buckets: a bucket takes pods as long as more of its roles attract than repel them. Full buckets are
placed first, and a pod prefers nodes that hold more of its bucket already or fit the rest of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.pod_state import PodState
from stromboli.api.resources import MEMORY, TOLERANCE, Matrix, Rows, Vector, fits
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Key, Plugin
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.recent import Recent
from stromboli.plugins.task_topology.roles import Roles, names_roles, read_roles
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

_ROLE = "volcano.sh/task-spec"
_SCORE = 100.0
#: the most roles of a job for which the places of repelling pods are cached
_MOST_ROLES_KEPT = 16


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
            self._grow()
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

    def _grow(self) -> None:
        left = self._classes[self._waits]
        self._size = len(left)
        self._classes = np.concatenate([left, np.zeros(len(left) + 8, np.intp)])
        self._waits = np.arange(len(self._classes)) < len(left)
        self._at = {row: at for at, row in enumerate(self._at)}


class TaskTopologyArguments(Arguments):
    """Arguments of task-topology."""

    weight: int = Field(default=1, alias="task-topology.weight")
    """Multiplies the score."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Pods that are to share a node."""

    index: int
    #: shape (dimensions,)
    request: Vector
    waiting: Waiting = field(default_factory=Waiting)
    #: number of its pods, and of those on each node
    size: int = 0
    nodes: Counter[int] = field(default_factory=Counter)

    @property
    def load(self) -> float:
        """Its waiting requests as one number, in which a core, a Gi and a device weigh about the same."""
        amounts: list[float] = self.request.tolist()
        amounts[MEMORY] /= 2**20
        return sum(amounts)


class Plan:
    """The buckets of a job."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.bucket_of: dict[int, Bucket] = {}
        #: number of pods of the largest bucket
        self.largest = 0
        self._buckets: list[Bucket] = []
        #: by bucket, how many of its pods attract each role, less those that repel it, and its load, with spare columns
        self._attraction = np.zeros((4, len(roles.number)), np.int64)
        self._load = np.zeros(4)
        #: node and number of the role of each pod placed in this session, and 1, or -1 where one was taken off again
        self._placed: list[tuple[int, int, int]] = []
        #: by number of the role, number of placed pods on each node that repel it, shape (nodes,)
        self._repelled: Recent[int, Vector] = Recent(_MOST_ROLES_KEPT)
        #: the bucket that was asked for last, and the number of its pods on each node, shape (nodes,)
        self._last: Bucket | None = None
        self._on_node: Vector = np.zeros(0)

    def add(self, bucket: Bucket, pod: PodRecord, node: int, request: Vector) -> None:
        """Put a pod into a bucket; `node` is where it is, negative when it waits."""
        self.bucket_of[pod.row] = bucket
        bucket.size += 1
        if node < 0:
            bucket.waiting.add(pod)
            bucket.request += request
        else:
            bucket.nodes[node] += 1
        self.largest = max(self.largest, bucket.size)
        self._attraction[bucket.index] += self.roles.attraction[:, self.roles.number[_role(pod)]]
        self._load[bucket.index] = bucket.load

    def new_bucket(self, request: Vector) -> Bucket:
        """An empty bucket; `request` is a vector of zeros."""
        bucket = Bucket(len(self._buckets), request)
        self._buckets.append(bucket)
        if len(self._buckets) > len(self._load):
            self._attraction = np.concatenate([self._attraction, np.zeros_like(self._attraction)])
            self._load = np.concatenate([self._load, np.zeros_like(self._load)])
        return bucket

    def most_attractive(self, role: str) -> Bucket | None:
        """The bucket that attracts a role most, the least loaded one on a tie; None if all repel it."""
        attraction = self._attraction[: len(self._buckets), self.roles.number[role]]
        if attraction.max(initial=-1) < 0:
            return None
        best = np.flatnonzero(attraction == attraction.max())
        return self._buckets[int(best[self._load[best].argmin()])]

    def count(self, bucket: Bucket | None, role: str, node: int, sign: int) -> None:
        """A pod of a role was placed on a node (1), or taken off again (-1)."""
        number = self.roles.number.get(role)
        if number is not None:
            self._placed.append((node, number, sign))
            for other, repelled in self._repelled.items():
                repelled[node] += sign * self.roles.apart[other, number]
        if bucket is not None:
            bucket.nodes[node] += sign
            if bucket is self._last:
                self._on_node[node] += sign

    def pull(self, bucket: Bucket, role: str, nodes: int) -> Vector:
        """Number of pods of a bucket on each node, less those that were placed and repel a role, shape (nodes,)."""
        if bucket is not self._last:
            self._last, self._on_node = bucket, np.zeros(nodes)
            self._on_node[list(bucket.nodes)] = list(bucket.nodes.values())
        number = self.roles.number[role]
        out: Vector = self._on_node - self._repelled.get(number, lambda: self._count_repelled(number, nodes))
        return out

    def _count_repelled(self, number: int, nodes: int) -> Vector:
        """Number of placed pods on each node that repel a role, shape (nodes,)."""
        repelled, placed = np.zeros(nodes), np.array(self._placed, np.intp).reshape(-1, 3)
        np.add.at(repelled, placed[:, 0], placed[:, 2] * self.roles.apart[number, placed[:, 1]])
        return repelled


class TaskTopology(Plugin):
    name = "task-topology"
    #: pods of a bucket vary
    reads = Reads(whole=True)
    Arguments: ClassVar[type[BaseModel]] = TaskTopologyArguments

    def open(self, view: View) -> None:
        self._view = view
        #: of jobs that were asked about, None where nothing is said of roles
        self._plans: dict[str, Plan | None] = {}
        #: node of each pod placed in this session, by row
        self._placed: dict[int, int] = {}
        says = view.jobs.holds((TaskTopology, "says"), lambda group: names_roles(group))
        self._planned = frozenset(
            map(view.jobs.key, np.flatnonzero(says & (view.jobs.count(PodState.Pending) > 0)).tolist())
        )

    # -- order and scores ----------------------------------------------------------------------------------------

    def task_order(self, pod: PodRecord) -> Key:
        plan, bucket = self._bucket(pod)
        if plan is None or bucket is None:
            return plan is not None, 0, 0, (0, 0)
        return False, -len(bucket.waiting), bucket.index, plan.roles.rank(_role(pod))

    def varies_on_node(self, pod: PodRecord) -> bool:
        return self._bucket(pod)[1] is not None

    def by_class(self, pod: PodRecord) -> bool:
        return not self.varies_on_node(pod)

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
        """Number of waiting pods of a bucket that each node could take together, shape (nodes,) if not all the same.

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
        # If idle amounts fit all of them, what terminating pods leave adds nothing.
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
            plan, bucket = self._bucket(pod, operation)
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

    def _bucket(self, pod: PodRecord, done: Operation | None = None) -> tuple[Plan | None, Bucket | None]:
        """The plan of a pod's job and its bucket; those of an operation just done are where they were."""
        if pod.job not in self._planned:
            return None, None
        if pod.job not in self._plans:
            job = self._view.jobs[pod.job]
            roles = read_roles(job)
            before = {each.row: done.origin for each in done.pods} if done is not None else {}
            self._plans[pod.job] = None if roles is None else self._plan(job, roles, before)
        plan = self._plans[pod.job]
        return plan, plan.bucket_of.get(pod.row) if plan else None

    # -- buckets -------------------------------------------------------------------------------------------------

    def _plan(self, job: Job, roles: Roles, before: Mapping[int, int]) -> Plan:
        """Sort a job's pods into buckets: first those that have a node, a bucket for each, then the others.

        `before` has the nodes of pods, by row, that count instead of where they are.
        """
        plan = Plan(roles)
        view = self._view
        pods = [pod for pod in view.members(job) if _role(pod) in roles.weight]
        at = {pod.row: before.get(pod.row, int(view.pods.node[pod.row])) for pod in pods}
        by_node: dict[int, Bucket] = {}
        for pod in sorted(pods, key=lambda pod: (*self._place(at[pod.row]), roles.rank(_role(pod)), pod.name)):
            node = at[pod.row]
            if node >= 0:
                bucket = by_node.get(node) or plan.new_bucket(view.vector(None))
                by_node[node] = bucket
            else:
                bucket = plan.most_attractive(_role(pod)) or plan.new_bucket(view.vector(None))
            plan.add(bucket, pod, node, view.request(pod))
        return plan

    def _place(self, node: int) -> tuple[bool, str]:
        """Whether a pod has no node, and the name of its node."""
        return node < 0, self._view.nodes.name(node) if node >= 0 else ""


def _first_that_fit(left: Matrix, free: Matrix, always: Collection[int]) -> Rows:
    """The first of amounts that become less, shape (steps, dimensions), that fits each of some nodes, shape (nodes,).

    `free` is what nodes have, shape (dimensions, nodes). As many as there are steps where none of them fits.
    """
    first = np.zeros(free.shape[1], np.intp)
    for column, amounts in enumerate(left.T):
        # Resources that no pod asks for are not compared.
        asked = len(amounts) if column in always else int(np.searchsorted(-amounts, 0.0))
        if asked:
            fitting = np.searchsorted(TOLERANCE - amounts, -free[column], side="right")
            np.maximum(first, np.minimum(fitting, asked), out=first)
    return first


def _role(pod: PodRecord) -> str:
    """The role for this plugin: only the annotation counts."""
    role: str = pod.annotations.get(_ROLE, "")
    return role
