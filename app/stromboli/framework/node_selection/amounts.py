"""Whether pods of a class fit, and their scores, by the amounts of a node: nodes with equal amounts share both."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from stromboli.api.resources import Vector, fits
from stromboli.framework.runtime.node_questions import NodeQuestions
from stromboli.state.pods import PodRecord

#: up to this many nodes that changed at once are looked up; beyond that, computing whole columns is faster
MOST_LOOKED_UP = 64
#: answers are kept for up to this many different amounts, about 1 MB; then the cache is cleared
_MOST_KEPT = 4096


class ByAmounts:
    """The answers for one class, by the amounts of a node. Good while plugins say so by their hint `by_amounts`."""

    __slots__ = ("_ask", "_known", "_pod", "_request", "_told")

    def __init__(self, ask: NodeQuestions, pod: PodRecord, request: Vector) -> None:
        self._ask = ask
        self._pod = pod
        self._request = request
        #: by the amounts of a node: whether the pod fits, and its score
        self._known: dict[Hashable, tuple[bool, float]] = {}
        #: plugins' answers to the hint; None until they are asked
        self._told: bool | None = None

    def applies(self) -> bool:
        """Whether nodes with the same amounts have the same score, and fit as many pods."""
        if not self._ask.nodes.plain:
            return False
        if self._told is None:
            self._told = self._ask.by_amounts(self._pod)
        return self._told

    def of(self, rows: list[int]) -> list[tuple[bool, float]]:
        """Whether the pod fits on each of some nodes, and its score there."""
        amounts, known = self._ask.nodes.amounts, self._known
        if len(known) > _MOST_KEPT:
            known.clear()
        # Asked for one or two rows in each turn of an elastic job, nearly always known.
        unknown = list[int]()
        for row in rows:
            if amounts[row] not in known:
                unknown.append(row)
        if unknown:
            self._find(unknown)
        return [known[amounts[row]] for row in rows]

    def _find(self, rows: list[int]) -> None:
        nodes, at = self._ask.nodes, np.array(rows)
        fitting = fits(self._request, nodes.available(at), nodes.always)
        scores = self._ask.score(self._pod, nodes.view(at))
        for row, fit, score in zip(rows, fitting.tolist(), scores.tolist(), strict=True):
            self._known[nodes.amounts[row]] = fit, score
