"""binpack: fills nodes up. The score is the weighted average of how full a node's resources are with the pod on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.resources import CPU, MEMORY, Matrix, Vector
from stromboli.fairness.resource_weights import ResourceWeights
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Plugin
from stromboli.framework.view import View
from stromboli.kube.allocation import highest, sum_of_rows
from stromboli.state.pods import PodRecord

_MAX_SCORE = 100


class BinpackArguments(ResourceWeights):
    """Arguments of binpack. `binpack.resources.NAME` sets the weight (1) of a resource that `resources` lists."""

    prefix: ClassVar[str] = "binpack"

    weight: int = Field(default=1, alias="binpack.weight")
    """Multiplies the score; 0 turns it off."""
    cpu: int = Field(default=1, alias="binpack.cpu")
    """Weight of cpu. Negative weights count as 1."""
    memory: int = Field(default=1, alias="binpack.memory")
    """Weight of memory."""
    resources: str = Field(default="", alias="binpack.resources")
    """More resources that count, separated by commas."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod class requests of the k resources that count for it."""

    columns: slice | list[int]
    #: shape (k, 1)
    request: Matrix
    #: the same; None when all are 1
    weights: Matrix | None
    total_weight: float
    #: whether every node has all of the resources
    complete: bool


class Binpack(Plugin):
    name = "binpack"
    Arguments: ClassVar[type[BaseModel]] = BinpackArguments

    def open(self, view: View) -> None:
        self._request = view.request
        weights = self.arguments.weights()
        self._weights = np.array([weights.get(name, 0) for name in view.dimensions], np.float64)
        self._counted = np.flatnonzero(self._weights > 0).tolist() if self.arguments.weight else []
        #: whether all that counts has the weight 1
        self._equal = bool((self._weights[self._counted] == 1.0).all())
        #: columns of the resources that every node has
        self._everywhere = set(np.flatnonzero((view.nodes.allocatable > 0).all(axis=1)).tolist())
        self._asks: dict[int, Ask | None] = {}

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        ask = self._ask(pod)
        if ask is None:
            return None
        used, whole = nodes.used[ask.columns] + ask.request, nodes.allocatable[ask.columns]
        if ask.complete and ask.weights is None:
            used /= whole
            # The share of a larger whole number is above 1, whatever is rounded.
            too_full = used > 1.0 if highest(used) > 1.0 else None
        else:
            has = whole > 0
            too_full = has & (used > whole)
            if ask.weights is not None:
                used *= ask.weights
            used = np.divide(used, whole, out=np.zeros_like(used), where=has)
        score = sum_of_rows(used)
        if too_full is not None:
            score[np.logical_or.reduce(too_full)] = 0.0
        score /= ask.total_weight
        score *= _MAX_SCORE * self.arguments.weight
        return score

    def by_amounts(self, pod: PodRecord) -> bool:
        return True

    def _ask(self, pod: PodRecord) -> Ask | None:
        """What counts for a pod; None when nothing does."""
        key = pod.pod_class.id
        if key not in self._asks:
            request = self._request(pod)
            counted = [column for column in self._counted if request[column] > 0]
            columns = slice(0, 2) if counted == [CPU, MEMORY] else counted
            weights = self._weights[columns, None]
            self._asks[key] = (
                Ask(
                    columns=columns,
                    request=request[columns, None],
                    weights=None if self._equal else weights,
                    total_weight=float(weights.sum()),
                    complete=self._everywhere.issuperset(counted),
                )
                if counted
                else None
            )
        return self._asks[key]
