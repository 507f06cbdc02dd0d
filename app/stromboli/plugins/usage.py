"""usage: keeps pods off nodes that are busy, and prefers those that are idle, by their measured load.

Measurements lag behind: what pods placed since then will use is estimated from their requests and added to the load.
Where a node is busy already, estimates are raised by a factor of risk. Nodes without a fresh measurement take
everybody and are preferred by nobody.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticUseDefault

from stromboli.api import resources
from stromboli.api.duration import since
from stromboli.api.pod_state import STATES, PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.environment import NodeUsage
from stromboli.framework.nodes import NodeView
from stromboli.framework.operation import Operation
from stromboli.framework.plugin import Arguments, Filters, Plugin
from stromboli.framework.view import View
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import derived

_SCORE = 100.0
#: older measurements count as none, seconds
_FRESH = 300.0
_MI = 1 << 20
_RUNNING = int(PodState.Running)
#: states of pods that are on their way to a node
_COMING = np.isin(np.arange(STATES), (PodState.Allocated, PodState.Binding, PodState.Bound))

Number = TypeVar("Number", int, float)


def _between(low: float, high: float = np.inf) -> AfterValidator:
    """Numbers outside of the bounds leave the default in force."""

    def check(value: Number) -> Number:
        if not low <= value <= high:
            raise PydanticUseDefault
        return value

    return AfterValidator(check)


def _amount(resource: str, unit: int) -> BeforeValidator:
    """A quantity, or an integer in `unit`, as an amount of a resource."""

    def read(value: Any) -> float:
        if isinstance(value, str):
            return float(resources.amount(resource, value))
        if type(value) is int and value >= 0:
            return float(value * unit)
        raise PydanticUseDefault

    return BeforeValidator(read)


Ratio = Annotated[float, _between(0, 1)]
Weight = Annotated[int, _between(0)]
Percent = Annotated[int, _between(0, 100)]


class Thresholds(Arguments):
    """Load in percent above which a node takes no more pods."""

    cpu: Percent = 80
    mem: Percent = 80


class Estimator(Arguments):
    """What a pod is expected to use until it shows in the measurements."""

    request_ratio: Ratio = 0.7
    """Part of its request."""
    burst_ratio: Ratio = 0.0
    """Part of what its limit is above its request."""
    risk_threshold: Ratio = 0.6
    """Load of a node, 0 to 1, from which estimates are raised."""
    risk_factor: Annotated[float, _between(1)] = 1.2
    """By how much they are raised."""
    be_cpu: Annotated[float, _amount("cpu", 1), _between(0)] = 250.0
    """A pod without requests: milli-CPU, or a quantity."""
    be_mem: Annotated[float, _amount("memory", _MI), _between(0)] = 200.0 * _MI
    """A pod without requests: MiB, or a quantity."""


class UsageArguments(Arguments):
    """Arguments of usage. Numbers out of bounds are the default."""

    weight: Weight = Field(default=5, alias="usage.weight")
    cpu_weight: Weight = Field(default=1, alias="cpu.weight")
    memory_weight: Weight = Field(default=1, alias="memory.weight")
    thresholds: Thresholds = Field(default_factory=Thresholds)
    estimator: Estimator = Field(default_factory=Estimator)


class Usage(Plugin):
    name = "usage"
    Arguments: ClassVar[type[BaseModel]] = UsageArguments

    def open(self, view: View) -> None:
        self._view = view
        records = view.nodes.facts.records
        usage = [view.environment.node_usage.get(record.name) for record in records]
        #: cpu and memory of each node, as all below of shape (2, nodes): capacity, measured load in percent
        self._capacity = derived(view.nodes.facts, _capacity)
        self._load: Matrix = np.array(
            [[u.cpu if u else 0.0 for u in usage], [u.memory if u else 0.0 for u in usage]], np.float64
        )
        #: what pods that no measurement shows yet are expected to use
        self._expected = np.zeros_like(self._load)
        #: what was added for each of them, shape (2, pods), and its node, -1 for none, shape (pods,)
        self._estimates: Matrix = np.zeros((2, len(view.pods.node)))
        self._expected_on: Rows = np.full(len(view.pods.node), -1)
        self._fresh: Mask = np.array([_is_fresh(u, view.time()) for u in usage], np.bool_)
        self._weights = np.array([self.arguments.cpu_weight, self.arguments.memory_weight], np.float64)
        self._count_running()

    def one_by_one(self, pod: PodRecord) -> bool:
        return True

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        stale, load = ~self._fresh[nodes.rows], self._load[:, nodes.rows]
        yield "node(s) had a cpu load above the threshold", stale | (load[0] <= self.arguments.thresholds.cpu)
        yield "node(s) had a memory load above the threshold", stale | (load[1] <= self.arguments.thresholds.mem)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if not self._weights.any():
            return None
        free = self._weighted(1 - self._utilization(nodes.rows))
        return np.where(self._fresh[nodes.rows], free * (_SCORE * self.arguments.weight), 0.0)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            self._forget(pod)
        self._expect(np.array([pod.row for pod in operation.pods]), np.array(operation.nodes))

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            self._forget(pod)

    def _forget(self, pod: PodRecord) -> None:
        node = self._expected_on[pod.row]
        if node >= 0:
            self._expected[:, node] = np.maximum(self._expected[:, node] - self._estimates[:, pod.row], 0)
            self._expected_on[pod.row] = -1

    def _expect(self, rows: Rows, nodes: Rows) -> None:
        """Add what pods are expected to use, shape (pods,); those of one node one after the other."""
        while len(rows):
            now, first = np.unique(nodes, return_index=True)
            pods = rows[first]
            self._estimates[:, pods] = estimates = self._estimate(pods, now)
            self._expected_on[pods] = now
            self._expected[:, now] += estimates
            rows, nodes = np.delete(rows, first), np.delete(nodes, first)

    def _estimate(self, rows: Rows, nodes: Rows) -> Matrix:
        """What pods are expected to use on nodes of their own: cpu and memory, shape (2, pods)."""
        how = self.arguments.estimator
        busy = self._weighted(self._utilization(nodes)) if self._weights.any() else np.zeros(len(nodes))
        risk = np.where(busy >= how.risk_threshold, how.risk_factor, 1.0)
        classes, of_pod = np.unique(self._view.pods.pod_class[rows], return_inverse=True)
        known = [self._view.snapshot.classes[number] for number in classes.tolist()]
        request, limit = (
            np.array([[of(c).get(name, 0) for c in known] for name in ("cpu", "memory")], np.float64)[:, of_pod]
            for of in (attrgetter("request"), attrgetter("limit"))
        )
        limit = np.maximum(limit, request)
        expected = (request * how.request_ratio + (limit - request) * how.burst_ratio) * risk
        nothing = np.array([c.best_effort for c in known], np.bool_)[of_pod]
        best_effort = np.array([[how.be_cpu], [how.be_mem]]) * risk
        return np.where(nothing, best_effort, np.minimum(expected, limit))

    def _utilization(self, rows: Any) -> Matrix:
        """Measured and expected load of nodes, 0 to 1, shape (2, rows)."""
        capacity = self._capacity[:, rows]
        used = self._load[:, rows] / 100 * capacity + self._expected[:, rows]
        parts: Matrix = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
        return parts.clip(0, 1)

    def _weighted(self, parts: Matrix) -> Vector:
        mean: Vector = (parts * self._weights[:, None]).sum(axis=0) / self._weights.sum()
        return mean

    # -- opening -------------------------------------------------------------------------------------------------

    def _count_running(self) -> None:
        view, pods = self._view, self._view.pods
        running = (pods.node >= 0) & (pods.state == _RUNNING)
        if running.any():
            column = view.snapshot.pod_facts.column("started", lambda pod: pod.started)
            started = np.array([*column.values, np.inf])[column.numbers]
            # how long it takes until a running pod shows in a measurement
            interval = view.policy.metrics_interval
            running &= (started == 0) | (view.time() - started < interval)
        rows = np.flatnonzero(running | ((pods.node >= 0) & _COMING[pods.state]))
        self._expect(rows, pods.node[rows].astype(np.intp))


def _capacity(facts: NodeFacts) -> Matrix:
    """cpu and memory of each node, shape (2, nodes)."""
    return np.array(
        [
            [float(resources.amount(name, record.capacity.get(name, 0))) for record in facts.records]
            for name in ("cpu", "memory")
        ]
    )


def _is_fresh(usage: NodeUsage | None, now: float) -> bool:
    return usage is not None and since(usage.measured, now) <= _FRESH
