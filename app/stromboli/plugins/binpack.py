"""binpack: packs nodes. The score is the weighted average utilization of a node's resources with the pod on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.resources import CPU, MEMORY, Matrix, Vector
from stromboli.fairness.resource_weights import ResourceWeights
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.kube.allocation import highest, sum_of_rows
from stromboli.state.pods import PodRecord

_NATIVE = [CPU, MEMORY]
_MAX_SCORE = 100


class BinpackArguments(ResourceWeights):
    """Arguments of binpack. `binpack.resources.NAME` sets the weight (1) of a resource that `resources` lists."""

    prefix: ClassVar[str] = "binpack"

    weight: int = Field(default=1, alias="binpack.weight")
    """Multiplies the score; 0 disables it."""
    cpu: int = Field(default=1, alias="binpack.cpu")
    """Weight of cpu. Negative weights count as 1."""
    memory: int = Field(default=1, alias="binpack.memory")
    """Weight of memory."""
    resources: str = Field(default="", alias="binpack.resources")
    """Further resources that count, separated by commas."""


@dataclass(frozen=True, slots=True)
class WeighedRequest:
    """The request of a pod class in the k resources that count for it."""

    columns: slice | list[int]
    #: request, shape (k, 1)
    request: Matrix
    #: weights, shape (k, 1)
    weights: Matrix
    total_weight: float
    #: whether they are cpu and memory, which all nodes have, with equal weights of 1
    plain: bool
    #: the requests of cpu and memory
    cpu: float
    memory: float


class Binpack(Plugin):
    name = "binpack"
    Arguments: ClassVar[type[BaseModel]] = BinpackArguments

    def open(self, view: View) -> None:
        self._request = view.request
        weights = self.arguments.weights()
        self._weights = np.array([weights.get(name, 0) for name in view.dimensions], np.float64)
        self._weight_of: list[float] = self._weights.tolist()
        self._counted = np.flatnonzero(self._weights > 0).tolist() if self.arguments.weight else []
        #: whether every node has cpu and memory, and both have the weight 1
        self._equal = bool((self._weights[:2] == 1.0).all() and (view.nodes.allocatable[:2] > 0).all())
        self._asks: dict[int, WeighedRequest | None] = {}

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        ask = self._ask(pod)
        if ask is None:
            return None
        if ask.plain:
            shares = nodes.fullness(ask.cpu, ask.memory)
            # A request larger than the node has a share above 1, however it is rounded.
            too_full = shares > 1.0 if highest(shares) > 1.0 else None
            score: Vector = shares[0] + shares[1]
        else:
            used, whole = nodes.used[ask.columns] + ask.request, nodes.allocatable[ask.columns]
            has = whole > 0
            too_full = has & (used > whole)
            used *= ask.weights
            score = sum_of_rows(np.divide(used, whole, out=np.zeros_like(used), where=has))
        if too_full is not None:
            score[np.logical_or.reduce(too_full)] = 0.0
        score /= ask.total_weight
        score *= _MAX_SCORE * self.arguments.weight
        return score

    def by_amounts(self, pod: PodRecord) -> bool:
        return True

    def _ask(self, pod: PodRecord) -> WeighedRequest | None:
        """The resources that count for a pod; None if none does."""
        key = pod.pod_class.id
        if key not in self._asks:
            request = self._request(pod)
            # Reading single numbers from lists is faster than from arrays.
            amounts = request.tolist()
            counted = [column for column in self._counted if amounts[column] > 0]
            columns = slice(0, 2) if counted == _NATIVE else counted
            self._asks[key] = (
                WeighedRequest(
                    columns=columns,
                    request=request[columns, None],
                    weights=self._weights[columns, None],
                    total_weight=sum(self._weight_of[column] for column in counted),
                    plain=self._equal and counted == _NATIVE,
                    cpu=amounts[CPU],
                    memory=amounts[MEMORY],
                )
                if counted
                else None
            )
        return self._asks[key]
