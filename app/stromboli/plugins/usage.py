"""usage: keeps pods off busy nodes and prefers idle ones, by measured load.

Measurements are late: the usage of pods placed since is estimated from their requests and added to the load. On busy
nodes the estimates are raised by a risk factor. Nodes without a recent measurement accept all pods and have no score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticUseDefault

from stromboli.api import resources
from stromboli.api.duration import since
from stromboli.api.pod_state import STATES, PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.environment import NodeUsage
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.framework.plugin.operation import Operation
from stromboli.state.classes import PodClass
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import derived

_SCORE = 100.0
#: older measurements are ignored, seconds
_FRESH = 300.0
_UNMEASURED = NodeUsage(0.0, 0.0, measured=-np.inf)
_MI = 1 << 20
_RUNNING = int(PodState.Running)
#: states of pods on their way to a node
_COMING = np.isin(np.arange(STATES), (PodState.Allocated, PodState.Binding, PodState.Bound))

Number = TypeVar("Number", int, float)


def _between(low: float, high: float = np.inf) -> AfterValidator:
    """Numbers out of bounds leave the default in force."""

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
    """Load in percent above which a node accepts no more pods."""

    cpu: Percent = 80
    mem: Percent = 80


class Estimator(Arguments):
    """Estimate of a pod's usage until measurements show it."""

    request_ratio: Ratio = 0.7
    """Factor of its request."""
    burst_ratio: Ratio = 0.0
    """Factor of the difference between its limit and its request."""
    risk_threshold: Ratio = 0.6
    """Load of a node, 0 to 1, from which estimates are raised."""
    risk_factor: Annotated[float, _between(1)] = 1.2
    """Factor by which they are raised."""
    be_cpu: Annotated[float, _amount("cpu", 1), _between(0)] = 250.0
    """Estimate of a pod without requests: milli-CPU, or a quantity."""
    be_mem: Annotated[float, _amount("memory", _MI), _between(0)] = 200.0 * _MI
    """Estimate of a pod without requests: MiB, or a quantity."""


class UsageArguments(Arguments):
    """Arguments of usage. Numbers out of bounds give the default."""

    weight: Weight = Field(default=5, alias="usage.weight")
    cpu_weight: Weight = Field(default=1, alias="cpu.weight")
    memory_weight: Weight = Field(default=1, alias="memory.weight")
    thresholds: Thresholds = Field(default_factory=Thresholds)
    estimator: Estimator = Field(default_factory=Estimator)


class _Estimate(NamedTuple):
    """The estimate of a pod's usage without risk, and at most: cpu and memory, shape (2, 1)."""

    expected: Matrix
    most: Matrix


class Usage(Plugin):
    name = "usage"
    Arguments: ClassVar[type[BaseModel]] = UsageArguments

    def open(self, view: View) -> None:
        self._view = view
        known = view.environment.node_usage
        usage = [known.get(record.name, _UNMEASURED) for record in view.nodes.facts.records]
        #: cpu and memory of each node, here and below of shape (2, nodes): capacity, measured load in percent
        self._capacity = derived(view.nodes.facts, _capacity)
        self._load: Matrix = np.array([[of.cpu for of in usage], [of.memory for of in usage]], np.float64)
        #: estimated usage of pods that no measurement shows yet
        self._expected = np.zeros_like(self._load)
        #: estimate for each of them, shape (2, pods), and its node, -1 for none, shape (pods,)
        self._estimates: Matrix = np.zeros((2, len(view.pods.node)))
        self._expected_on: Rows = np.full(len(view.pods.node), -1)
        measured = [of.measured for of in usage]
        now = view.time(math.inf)
        fresh = {then: since(then, now) <= _FRESH for then in set(measured)}
        view.time(min((then + _FRESH for then, is_fresh in fresh.items() if is_fresh), default=math.inf))
        self._fresh: Mask = np.array([fresh[then] for then in measured], np.bool_)
        self._weights = np.array([[self.arguments.cpu_weight], [self.arguments.memory_weight]], np.float64)
        self._all_weights = float(self._weights.sum())
        #: by class
        self._asks: dict[int, _Estimate] = {}
        self._count_running()

    def one_by_one(self, pod: PodRecord) -> bool:
        return True

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        stale, load = ~self._fresh[nodes.rows], self._load[:, nodes.rows]
        yield "node(s) had a cpu load above the threshold", stale | (load[0] <= self.arguments.thresholds.cpu)
        yield "node(s) had a memory load above the threshold", stale | (load[1] <= self.arguments.thresholds.mem)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        if not self._all_weights:
            return None
        free = self._weighted(1 - self._utilization(nodes.rows))
        return np.where(self._fresh[nodes.rows], free * (_SCORE * self.arguments.weight), 0.0)

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            self._forget(pod)
        ask = self._ask(operation.pods[0].pod_class)
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            if node >= 0:
                # One at a time; slices are faster than index arrays of one element.
                self._expect(slice(pod.row, pod.row + 1), slice(node, node + 1), ask)

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            self._forget(pod)

    def _forget(self, pod: PodRecord) -> None:
        node = self._expected_on[pod.row]
        if node >= 0:
            self._expected[:, node] = np.maximum(self._expected[:, node] - self._estimates[:, pod.row], 0)
            self._expected_on[pod.row] = -1

    def _expect(self, pods: Rows | slice, nodes: Rows | slice, ask: _Estimate) -> None:
        """Add estimates for pods on distinct nodes."""
        how = self.arguments.estimator
        busy = self._weighted(self._utilization(nodes)) if self._all_weights else np.zeros(1)
        risk = np.where(busy >= how.risk_threshold, how.risk_factor, 1.0)
        estimates = np.minimum(ask.expected * risk, ask.most)
        self._estimates[:, pods] = estimates
        self._expected_on[pods] = self._view.nodes.rows[nodes]
        self._expected[:, nodes] += estimates

    def _ask(self, pod_class: PodClass) -> _Estimate:
        ask = self._asks.get(pod_class.id)
        if ask is None:
            how, (request, limit) = self.arguments.estimator, map(_amounts_of, (pod_class.request, pod_class.limit))
            limit = np.maximum(limit, request)
            ask = _Estimate(request * how.request_ratio + (limit - request) * how.burst_ratio, limit)
            if pod_class.best_effort:
                ask = _Estimate(np.array([[how.be_cpu], [how.be_mem]]), np.full((2, 1), np.inf))
            self._asks[pod_class.id] = ask
        return ask

    def _utilization(self, rows: Rows | slice) -> Matrix:
        """Measured and estimated load of nodes, 0 to 1, shape (2, rows)."""
        capacity = self._capacity[:, rows]
        used = self._load[:, rows] / 100 * capacity + self._expected[:, rows]
        parts: Matrix = np.divide(used, capacity, out=np.zeros_like(used), where=capacity > 0)
        np.maximum(parts, 0.0, out=parts)
        return np.minimum(parts, 1.0, out=parts)

    def _weighted(self, parts: Matrix) -> Vector:
        weighted = parts * self._weights
        mean: Vector = (weighted[0] + weighted[1]) / self._all_weights
        return mean

    # -- opening -------------------------------------------------------------------------------------------------

    def _count_running(self) -> None:
        view, pods = self._view, self._view.pods
        running = (pods.node >= 0) & (pods.state == _RUNNING)
        if running.any():
            column = view.snapshot.pod_facts.column("started", attrgetter("started"))
            started = np.array([*column.values, np.inf])[column.numbers]
            # time until a running pod shows in a measurement
            interval = view.policy.metrics_interval
            shown = started + interval
            running &= (started == 0) | (shown > view.time(math.inf))
            view.time(float(shown[running & (started > 0)].min(initial=math.inf)))
        rows = np.flatnonzero(running | ((pods.node >= 0) & _COMING[pods.state]))
        nodes = pods.node[rows].astype(np.intp)
        while len(rows):
            # Pods of one node one after the other.
            now, first = np.unique(nodes, return_index=True)
            self._expect(rows[first], now, self._asks_of(rows[first]))
            rows, nodes = np.delete(rows, first), np.delete(nodes, first)

    def _asks_of(self, rows: Rows) -> _Estimate:
        """The estimates of some pods, shape (2, pods)."""
        classes, of_pod = np.unique(self._view.pods.pod_class[rows], return_inverse=True)
        known = [self._ask(self._view.snapshot.classes[number]) for number in classes.tolist()]
        return _Estimate(*(np.concatenate(part, axis=1)[:, of_pod] for part in zip(*known, strict=True)))


def _amounts_of(amounts: Mapping[str, float]) -> Matrix:
    return np.array([[amounts.get("cpu", 0)], [amounts.get("memory", 0)]], np.float64)


def _capacity(facts: NodeFacts) -> Matrix:
    """cpu and memory of each node, shape (2, nodes)."""
    return np.array(
        [
            [float(resources.amount(name, record.capacity.get(name, 0))) for record in facts.records]
            for name in ("cpu", "memory")
        ]
    )
