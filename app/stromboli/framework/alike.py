"""Nodes with equal amounts: what follows from amounts alone is worked out once for all of them.

Many pods that each ask for something else are scored on all nodes each. In most clusters nodes are of few models, and
of thousands many are empty or hold the same, so there are fewer kinds of nodes than nodes, whichever amounts they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.api.resources import Matrix, Rows, Vector

#: nodes that are looked at to see whether it is worth looking at all
_SAMPLE = 256
#: kinds are worth it while there are so many times as many nodes
_WORTH = 4


class Kinds:
    """The kinds of a session's nodes, as of the last `update`."""

    __slots__ = ("_matrices", "_most", "_numbers", "_parts", "_stacked", "amounts", "few", "of_node")

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        """`matrices` are the amounts of nodes, shape (amounts, nodes) each. Whoever changes them calls `update`."""
        self._matrices = matrices
        ends = np.cumsum([len(matrix) for matrix in matrices]).tolist()
        self._parts = [slice(end - len(matrix), end) for end, matrix in zip(ends, matrices, strict=True)]
        self._most = matrices[0].shape[1] // _WORTH
        #: the amounts of kinds one below the other, shape (all amounts, kinds and room for more)
        self._stacked: Matrix = np.zeros((0, 0))
        self._numbers: dict[bytes, int] = {}
        #: the amounts of the kinds, shape (amounts, kinds) each, in the order of the matrices
        self.amounts: list[Matrix] = []
        #: the kind of each node, shape (nodes,)
        self.of_node: Rows = np.zeros(0, np.intp)
        #: whether there are so few kinds that it is worth asking for them
        self.few = False
        self._sort()

    def update(self, nodes: Iterable[int]) -> None:
        """Some nodes have changed."""
        numbers = self._numbers
        for node in set(nodes) if self.few else ():
            column = np.concatenate([matrix[:, node] for matrix in self._matrices])
            number = numbers.setdefault(column.tobytes(), len(numbers))
            if number == self._most:
                self._sort()
                return
            self._stacked[:, number] = column
            self.of_node[node] = number
        self._show()

    def _sort(self) -> None:
        """Find the kinds that there are now."""
        rows = [row for matrix in self._matrices for row in matrix]
        mixed = np.zeros(len(rows[0]))
        for weight, row in zip(np.sqrt(np.arange(2.0, 2.0 + len(rows))).tolist(), rows, strict=True):
            mixed += weight * row
        some = mixed[:: 1 + len(mixed) // _SAMPLE]
        self.few = 2 * len(set(some.tolist())) <= len(some)
        if self.few:
            self._number(mixed)

    def _number(self, mixed: Vector) -> None:
        """Number them; nodes with equal amounts have the same in `mixed`."""
        amounts = np.concatenate(self._matrices)
        _, first, of_node = np.unique(mixed, return_index=True, return_inverse=True)
        # The same mixture may come about in several ways.
        self.few = 2 * len(first) <= self._most and bool((amounts == amounts[:, first][:, of_node]).all())
        if self.few:
            self._stacked = np.zeros((len(amounts), self._most))
            self._stacked[:, : len(first)] = amounts[:, first]
            self._numbers = {column.tobytes(): number for number, column in enumerate(amounts[:, first].T)}
            self.of_node = of_node
            self._show()

    def _show(self) -> None:
        count = len(self._numbers)
        self.amounts = [self._stacked[part, :count] for part in self._parts]
