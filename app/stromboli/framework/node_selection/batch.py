"""Nodes for many identical pods in one pass.

Placing one pod changes the score of one node. So k pods can only ever land on the k best nodes of the moment: a node
outside of them would first have to be reached after k better ones, each of which is taken at least once. For those
candidates the scores with 0, 1, 2, … copies are computed as one table by showing plugins nodes that do not exist yet
(`NodeView` with copies); its depth doubles when a node's column runs out. A heap then replays the choice pod by pod.
The placement is the same as one at a time, at O(nodes + k log k) for a gang instead of O(k * nodes); the table costs
one call of each plugin per doubling.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from stromboli.api.resources import Rows, Vector, copies_that_fit
from stromboli.framework.cluster.nodes import Nodes, NodeView


class Batch:
    """One replay of the choice of nodes for identical pods."""

    def __init__(
        self,
        nodes: Nodes,
        score: Callable[[NodeView], Vector],
        request: Vector,
        scoring: tuple[float, float],
        rows: Rows,
        offsets: Vector | None,
    ) -> None:
        """For candidates in `rows`; `offsets` is the part of their scores that stays while the set of nodes does."""
        self._nodes = nodes
        self._score = score
        self._request, self._scoring = request, scoring
        self._rows = rows
        self._offsets = offsets
        self._copies = copies_that_fit(request, nodes.available(rows), nodes.always).tolist()

    def run(self, scores: Vector, count: int) -> list[int]:
        columns = [[score] for score in scores.tolist()]
        heap = [(-column[0], i) for i, column in enumerate(columns)]
        heapq.heapify(heap)
        taken = [0] * len(columns)
        rows = self._rows.tolist()
        placed: list[int] = []
        while heap:
            i = heap[0][1]
            placed.append(rows[i])
            taken[i] += 1
            if len(placed) == count:
                break
            if taken[i] == self._copies[i]:
                heapq.heappop(heap)
                if self._offsets is not None:
                    break
                continue
            if taken[i] == len(columns[i]):
                self._deepen(columns, count)
            heapq.heapreplace(heap, (-columns[i][taken[i]], i))
        return placed

    def _deepen(self, columns: list[list[float]], count: int) -> None:
        """Compute the scores for as many more copies per node as are known already, for all candidates at once."""
        depth = len(columns[0])
        new = range(depth, min(2 * depth, count) if depth > 1 else 2)
        copies = np.repeat(np.array(new, dtype=np.float64), len(self._rows))
        rows = np.tile(self._rows, len(new))
        view = NodeView(self._nodes, rows).with_copies(copies, self._request, self._scoring)
        table = self._score(view).reshape(len(new), len(self._rows))
        if self._offsets is not None:
            table = table + self._offsets
        for column, more in zip(columns, table.T.tolist(), strict=True):
            column.extend(more)


def highest(scores: Vector, count: int) -> Rows:
    """Indices, ascending, of the `count` highest scores; ties go to the first."""
    if count >= len(scores):
        return np.arange(len(scores))
    # not np.partition: it is ten times slower where most nodes are alike
    threshold = np.sort(scores)[len(scores) - count]
    above = scores > threshold
    chosen = np.flatnonzero(above)
    equal = np.flatnonzero(scores == threshold)[: count - len(chosen)]
    return np.sort(np.concatenate([chosen, equal]))
