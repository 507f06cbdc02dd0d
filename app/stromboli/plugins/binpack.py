"""binpack: fills nodes up. The score is the weighted average of how full a node's resources are with the pod on it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.resources import Vector
from stromboli.framework.nodes import NodeView
from stromboli.framework.plugin import Plugin
from stromboli.framework.resource_weights import ResourceWeights
from stromboli.framework.session import Session
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


class Binpack(Plugin):
    name = "binpack"
    Arguments: ClassVar[type[BaseModel]] = BinpackArguments

    def open(self, session: Session) -> None:
        self._request = session.request
        weights = self.arguments.weights()
        self._weights = [(c, weights[name]) for c, name in enumerate(session.dimensions) if name in weights]

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        request = self._request(pod).tolist()
        counted = [(column, weight) for column, weight in self._weights if request[column] > 0]
        total = sum(weight for _, weight in counted)
        if self.arguments.weight == 0 or total == 0:
            return None
        score = np.zeros(len(nodes))
        misfit = np.zeros(len(nodes), np.bool_)
        for column, weight in counted:
            if weight:
                used, whole = nodes.used[column] + request[column], nodes.allocatable[column]
                has = whole > 0
                misfit |= has & (used > whole)
                used *= weight
                score += np.divide(used, whole, out=np.zeros(len(nodes)), where=has)
        score[misfit] = 0.0
        score /= total
        score *= _MAX_SCORE * self.arguments.weight
        return score
