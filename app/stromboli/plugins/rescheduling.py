"""rescheduling: moves pods from busy nodes to idle ones, with the action shuffle.

The strategy lowNodeUtilization compares the measured load of nodes with two sets of thresholds, in percent. Pods are
evicted from nodes above the target thresholds, least important first, as long as nodes below all lower thresholds can
take them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

from stromboli.api import duration, resources
from stromboli.api.duration import since
from stromboli.api.requests import pod_level
from stromboli.api.resources import CPU, MEMORY, Matrix, Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.state.pods import PodRecord

_INTERVAL = 300.0
_NAMES = ("cpu", "memory")


def _interval(written: object) -> float:
    """Seconds; an invalid duration gives the default."""
    try:
        return duration.parse(str(written))
    except ValueError:
        return _INTERVAL


class Thresholds(BaseModel):
    """Load in percent."""

    cpu: int = 100
    memory: int = 100

    @property
    def vector(self) -> Vector:
        """cpu and memory."""
        return np.array([self.cpu, self.memory], np.float64)


class LowNodeUtilization(BaseModel):
    """Parameters of the strategy. The defaults have no effect."""

    thresholds: Thresholds = Thresholds()
    """A node below all of these can receive pods."""
    target: Thresholds = Field(default=Thresholds(), alias="targetThresholds")
    """A node above any of these gives up pods."""


class Strategy(BaseModel):
    """A strategy and its parameters."""

    name: str
    params: LowNodeUtilization = LowNodeUtilization()


class ReschedulingArguments(Arguments):
    """Arguments of rescheduling."""

    interval: Annotated[float, BeforeValidator(_interval)] = _INTERVAL
    """Time between two rounds."""
    metrics_period: str = Field(default="5m", alias="metricsPeriod")
    """The period of the averages to read; nodes without an average over this period count as idle."""
    strategies: list[Strategy] = Field(default_factory=lambda: [Strategy(name="lowNodeUtilization")])


class Rescheduling(Plugin):
    name = "rescheduling"
    Arguments: ClassVar[type[BaseModel]] = ReschedulingArguments
    #: start of the last round, seconds since the epoch; None before the first
    left: float | None

    def open(self, view: View) -> None:
        self._view = view
        self._looked = self.left

    def leave(self) -> float | None:
        return self._looked

    def victim_tasks(self, running: Sequence[PodRecord]) -> list[PodRecord]:
        last = self.left
        now = self._view.time(math.inf)
        if last is not None and since(last, now) <= self.arguments.interval:
            self._view.time(last + self.arguments.interval)
            return []
        self._looked = now
        view, victims = self._view, dict[int, PodRecord]()
        # No pod can be placed in a closed queue again.
        running = [pod for pod in running if not view.shut[view.jobs[pod.job].index]]
        for strategy in self.arguments.strategies:
            if strategy.name == "lowNodeUtilization":
                victims.update((pod.row, pod) for pod in self._from_busy_nodes(running, strategy.params))
        return list(victims.values())

    def _from_busy_nodes(self, running: Sequence[PodRecord], params: LowNodeUtilization) -> list[PodRecord]:
        """The pods to move, from the busiest node on."""
        load = self._load()
        target = params.target.vector
        unschedulable = self._view.nodes.facts.unschedulable
        idle = (load < params.thresholds.vector[:, None]).all(axis=0) & ~unschedulable
        busy = ~idle & (load > target[:, None]).any(axis=0)
        if not idle.any() or idle.all() or not busy.any():
            return []
        spare = self._spare(np.flatnonzero(idle), load, target)
        on_node: dict[int, list[PodRecord]] = {}
        for pod in running:
            on_node.setdefault(int(self._view.pods.node[pod.row]), []).append(pod)
        nodes = np.flatnonzero(busy)
        victims = []
        for node in nodes[np.argsort(-load[:, nodes].sum(axis=0), kind="stable")].tolist():
            victims += self._from_node(node, on_node.get(node, []), load[:, node], target, spare)
        return victims

    def _from_node(
        self, node: int, pods: list[PodRecord], load: Vector, target: Vector, spare: Vector
    ) -> list[PodRecord]:
        """The pods to move from a node until its load is below the target; their requests are subtracted from
        `spare`."""
        capacity = self._capacity(node)
        victims = []
        for pod in sorted(pods, key=_importance):
            if not (load >= target).any() or (spare == 0).any():
                break
            request = self._view.request(pod)[[CPU, MEMORY]]
            spare -= request
            load = load - np.divide(request * 100, capacity, out=np.zeros(2), where=capacity > 0)
            victims.append(pod)
        return victims

    def _load(self) -> Matrix:
        """Measured load in percent, shape (2, nodes); 0 without an average over the period."""
        records = self._view.nodes.facts.records
        load = np.zeros((2, len(records)))
        for index, record in enumerate(records):
            usage = self._view.environment.node_usage.get(record.name)
            if usage is not None and usage.period == self.arguments.metrics_period:
                load[:, index] = usage.cpu, usage.memory
        return load

    def _spare(self, idle: Rows, load: Matrix, target: Vector) -> Vector:
        """The cpu and memory that idle nodes can receive until they reach the target."""
        percent = self._view.nodes.allocatable[[CPU, MEMORY]][:, idle] * 0.01
        spare: Vector = (np.trunc(target[:, None] * percent) - np.trunc(load[:, idle] * percent)).sum(axis=1)
        return spare

    def _capacity(self, node: int) -> Vector:
        capacity = self._view.nodes.facts.records[node].capacity
        return np.array([resources.amount(name, capacity.get(name, 0)) for name in _NAMES], np.float64)


def _importance(pod: PodRecord) -> tuple[Any, ...]:
    """Sort key, smallest first: no priority, low priority; best-effort, burstable, guaranteed."""
    return pod.spec_priority is not None, pod.spec_priority or 0, _quality(pod)


def _quality(pod: PodRecord) -> int:
    """The quality of service class: 0 best-effort, 1 burstable, 2 guaranteed."""
    spec = pod.pod_class.spec
    guaranteed, anything = True, False
    whole = [spec.resources] if pod_level(spec, "requests") or pod_level(spec, "limits") else []
    of_containers = (container.resources for container in (*(spec.containers or ()), *(spec.init_containers or ())))
    for amounts in whole or of_containers:
        requests, limits = (amounts.requests or {}, amounts.limits or {}) if amounts else ({}, {})
        for name in _NAMES:
            limit = resources.amount(name, limits.get(name, 0))
            request = resources.amount(name, requests[name]) if name in requests else limit
            anything = anything or request > 0 or limit > 0
            guaranteed = guaranteed and limit > 0 and request == limit
    return 2 if guaranteed and anything else int(anything)
