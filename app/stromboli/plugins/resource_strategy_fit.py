"""resource-strategy-fit: scores the utilization of each resource, as MostAllocated or LeastAllocated.

For every requested resource that the policy names, the node's utilization with the pod raises the score
(`MostAllocated`) or lowers it (`LeastAllocated`), by weight. A pod's annotations can override direction and weights.
`sra` keeps pods off nodes with scarce resources that they do not request, and `proportional` reserves cpu and memory
there for pods that do.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import readers
from stromboli.api.resources import CPU, MEMORY, Vector, compared
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.policy.arguments import AnyCase
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

Strategy = Literal["LeastAllocated", "MostAllocated"]

_TYPE = "volcano.sh/resource-strategy-scoring-type"
_WEIGHT = "volcano.sh/resource-strategy-weight"
_SCORE = 100.0
_DEFAULT_WEIGHT = 10
#: unit of memory in `resourceProportion`: from GB per unit to bytes per thousandth of a unit
_GB_PER_UNIT = 1e6


class ResourceStrategy(AnyCase, Arguments):
    """The strategy of one resource."""

    type: Strategy = "LeastAllocated"
    weight: int = 1
    """Its weight in the score; 0 and less count as 1."""


class Sra(AnyCase, Arguments):
    """Keeps pods off nodes with resources that they do not request."""

    enable: bool = False
    resources: str = ""
    """Names of scarce resources, separated by commas."""
    weight: int = 0
    resource_weight: dict[str, int] = Field(default_factory=dict, alias="resourceWeight")
    """Weight of each resource, 1 if absent or negative."""


class Proportional(AnyCase, Arguments):
    """Reserves cpu and memory for idle units of resources."""

    enable: bool = False
    resources: str = ""
    """Names of resources, separated by commas."""
    resource_proportion: dict[str, float | int] = Field(default_factory=dict, alias="resourceProportion")
    """`RESOURCE.cpu` cores and `RESOURCE.memory` GB reserved for each idle unit, 1 if absent or negative."""


class ResourceStrategyFitArguments(Arguments):
    """Arguments of resource-strategy-fit."""

    weight: int = Field(default=_DEFAULT_WEIGHT, alias="resourceStrategyFitWeight")
    """Multiplies the score. Below 0 the default is used."""
    resources: dict[str, ResourceStrategy] = Field(default_factory=dict)
    """By name, or by a prefix with a trailing `*`. By default cpu and memory are spread."""
    sra: Sra = Field(default_factory=Sra)
    proportional: Proportional = Field(default_factory=Proportional)


class ResourceStrategyFit(Plugin):
    name = "resource-strategy-fit"
    reads = Reads(annotations=(_TYPE, _WEIGHT))
    Arguments: ClassVar[type[BaseModel]] = ResourceStrategyFitArguments

    def open(self, view: View) -> None:
        self._view = view
        named = self.arguments.resources or {"cpu": ResourceStrategy(), "memory": ResourceStrategy()}
        #: (direction, weight) of each dimension, None for dimensions that do not count
        self._strategies = [_strategy(name, named) for name in view.dimensions]
        self._weight = self.arguments.weight if self.arguments.weight >= 0 else _DEFAULT_WEIGHT
        columns = {name: column for column, name in enumerate(view.dimensions)}
        #: the weight of each resource in sra, and its column if some node or pod has it
        self._scarce = (
            [(columns.get(name), _weight(sra.resource_weight, name)) for name in _names(sra.resources)]
            if (sra := self.arguments.sra).enable
            else []
        )
        #: column, and cpu and memory reserved for each idle thousandth
        self._proportions = (
            [
                (columns[name], *(_weight(kept.resource_proportion, f"{name}.{what}") for what in ("cpu", "memory")))
                for name in _names(kept.resources)
                if name in columns
            ]
            if (kept := self.arguments.proportional).enable
            else []
        )

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        request = self._view.request(pod)
        if any(request[column] > 0 for column, _, _ in self._proportions):
            return
        idle = nodes.allocatable - nodes.used
        for column, cpu, memory in self._proportions:
            kept = idle[column]
            enough = (idle[CPU] - request[CPU] >= kept * cpu) & (
                idle[MEMORY] - request[MEMORY] >= kept * memory * _GB_PER_UNIT
            )
            name = self._view.dimensions[column]
            yield f"node(s) reserve cpu and memory for idle {name}", enough | (nodes.allocatable[column] == 0)

    def varies(self, pod: PodRecord) -> bool:
        request = self._view.request(pod)
        return bool(self._proportions) and not any(request[column] > 0 for column, _, _ in self._proportions)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        score = self._strategy_score(pod, nodes) * (_SCORE * self._weight)
        if self._scarce:
            score += self._sra_score(pod, nodes)
        return score

    def _strategy_score(self, pod: PodRecord, nodes: NodeView) -> Vector:
        """The weighted mean of the resources' scores, from 0 to 1; 0 where one does not fit."""
        request = self._view.request(pod)
        score, fits, weights = np.zeros(len(nodes)), np.ones(len(nodes), np.bool_), 0
        for column, (strategy, weight) in self._of(pod).items():
            if column in (CPU, MEMORY) or request[column] > 0:
                weights += weight
                used, whole = nodes.used[column] + request[column], nodes.allocatable[column]
                if not weight or strategy is None:
                    continue
                part = np.divide(used, whole, out=np.zeros(len(nodes)), where=whole > 0)
                fits &= (used <= whole) | (whole == 0)
                score += weight * np.where(whole > 0, part if strategy == "MostAllocated" else 1 - part, 0.0)
        return np.where(fits, score / weights if weights > 0 else score, 0.0)

    def _of(self, pod: PodRecord) -> dict[int, tuple[Strategy | None, int]]:
        """The strategies for a pod, by column: those of its annotations, else the policy's."""
        strategy = pod.annotations.get(_TYPE)
        if not strategy:
            return {column: known for column, known in enumerate(self._strategies) if known}
        weights = _weights_of(pod)
        own = next((known for known in get_args(Strategy) if known == strategy), None)
        return {column: (own, weights[name]) for column, name in enumerate(self._view.dimensions) if name in weights}

    def _sra_score(self, pod: PodRecord, nodes: NodeView) -> Vector:
        """Higher for nodes with fewer scarce resources; 0 where a requested resource is missing."""
        request = self._view.request(pod)
        usable = (nodes.allocatable[compared(request, (CPU, MEMORY))] > 0).all(axis=0)
        have = np.zeros(len(nodes))
        for column, weight in self._scarce:
            if column is not None:
                have += weight * (nodes.allocatable[column] > 0)
        total = sum(weight for _, weight in self._scarce)
        score = 1 - have / total if total > 0 else have
        return np.where(usable, score * (_SCORE * max(0, self.arguments.sra.weight)), 0.0)


def _strategy(resource: str, named: dict[str, ResourceStrategy]) -> tuple[Strategy | None, int] | None:
    """The strategy of the name, else of its longest matching prefix."""
    best = resource if resource in named else ""
    if not best:
        beginnings = [key for key in named if _is_beginning(key) and resource.startswith(key[:-1])]
        best = max(beginnings, key=len, default="")
    if not best:
        return None
    return named[best].type, named[best].weight if named[best].weight > 0 else 1


def _is_beginning(key: str) -> bool:
    return len(key) > 1 and key.endswith("*") and key.count("*") == 1


def _weights_of(pod: PodRecord) -> dict[str, int]:
    """The weights in a pod's annotation, empty if it is invalid."""
    return readers.json(pod.annotations.get(_WEIGHT), dict[str, readers.Integer]) or {}


def _names(listed: str) -> list[str]:
    return [name for name in (part.strip() for part in listed.split(",")) if name]


def _weight(weights: dict[str, Any], name: str) -> Any:
    weight = weights.get(name, 1)
    return weight if weight >= 0 else 1
