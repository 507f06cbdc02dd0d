"""The nodes of a board that a pod fits, by score: the best is found in O(log nodes) after each change of one node."""

from __future__ import annotations

import heapq

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector

#: nodes that are put into the heap at a time: few are ever chosen, so most stay in a sorted array
MOST_RANKED = 128


class Ranking:
    """The nodes by descending score; ties keep the order of the nodes."""

    __slots__ = ("_at", "_bound", "_heap", "_scores")

    def __init__(self, scores: Vector, fits_idle: Mask) -> None:
        at = np.flatnonzero(fits_idle)
        #: indices and scores as they were, the best first, of those that are not in the heap
        self._at: Rows = at[np.argsort(-scores[at], kind="stable")]
        self._scores: Vector = scores[self._at]
        #: (-score, index) of all others and of nodes that changed; what is out of date in it is passed over
        self._heap: list[tuple[float, int]] = []
        #: the smallest entry of those that are not in the heap
        self._bound = self._extend()

    def changed(self, index: int, score: float) -> None:
        """Record the new score of a node that the pod fits on."""
        if self._heap and self._heap[0][1] == index:
            # It was chosen last.
            heapq.heapreplace(self._heap, (-score, index))
        else:
            heapq.heappush(self._heap, (-score, index))

    def first(self, scores: Vector, fits_idle: Mask) -> int | None:
        """The index of the best node, None when there is none."""
        heap = self._heap
        while heap or len(self._at):
            if not heap or heap[0] > self._bound:
                self._bound = self._extend()
                continue
            score, index = heap[0]
            if fits_idle[index] and scores[index] == -score:
                return index
            heapq.heappop(heap)
        return None

    def _extend(self) -> tuple[float, float]:
        for entry in zip((-self._scores[:MOST_RANKED]).tolist(), self._at[:MOST_RANKED].tolist(), strict=True):
            heapq.heappush(self._heap, entry)
        self._at, self._scores = self._at[MOST_RANKED:], self._scores[MOST_RANKED:]
        return (-self._scores.item(0), self._at.item(0)) if len(self._at) else (np.inf, np.inf)
