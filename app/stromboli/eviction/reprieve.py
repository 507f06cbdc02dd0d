"""Which evicted units pods can do without: as many pods fit when such a unit stays, by amounts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from stromboli.api.resources import Matrix, Rows, Vector, copies_that_fit
from stromboli.framework.session.statement import Statement


class Reprieve:
    """How many identical pods fit on some nodes while evicted units are given back there."""

    def __init__(self, request: Vector, free: Matrix, most: Vector, always: Collection[int]) -> None:
        """`free` is what is left on nodes once all units are evicted and no pod is placed, shape (dimensions, nodes).

        `most` says how many of the pods each node takes at most.
        """
        self._request = request
        self._free = free
        self._most = most
        self._always = always
        #: how many of the pods fit on each node
        self.copies: Vector = copies_that_fit(request, free, always).clip(0, most)

    def spare(self, units: Sequence[Statement], place: Rows, needed: int) -> Iterator[Statement]:
        """The units without which `needed` pods still fit, in order; those that the caller discards are given back.

        `place` has the number of each of the session's nodes among these, negative for others.
        """
        released = [_released(unit, place) for unit in units]
        owner = np.repeat(np.arange(len(units)), [len(at) for at, _ in released])
        at = np.concatenate([at for at, _ in released])
        fewer = self._copies_without(at, np.concatenate([amounts for _, amounts in released], axis=1))
        lost = np.bincount(owner, self.copies[at] - fewer, minlength=len(units))
        # A unit that cannot be spared now cannot be spared once another was given back.
        for number in np.flatnonzero(self.copies.sum() - lost >= needed).tolist():
            unit, (at, amounts) = units[number], released[number]
            fewer = self._copies_without(at, amounts)
            if self.copies.sum() - self.copies[at].sum() + fewer.sum() >= needed:
                yield unit
                if not unit:
                    self._free[:, at] -= amounts
                    self.copies[at] = fewer

    def _copies_without(self, at: Rows, amounts: Matrix) -> Vector:
        """How many pods fit on some nodes with so much less."""
        less = self._free[:, at] - amounts
        fewer: Vector = copies_that_fit(self._request, less, self._always).clip(0, self._most[at])
        return fewer


def _released(unit: Statement, place: Rows) -> tuple[Rows, Matrix]:
    """The nodes on which a unit is evicted, by their places, and what it releases there."""
    released: dict[int, Vector] = {}
    for operation in unit.operations:
        node = operation.nodes[0]
        at = int(place[node]) if node >= 0 else -1
        if at >= 0:
            released[at] = released[at] + operation.request if at in released else operation.request
    dimensions = len(unit.operations[0].request)
    return np.array(list(released), np.intp), np.array(list(released.values())).reshape(-1, dimensions).T
