"""The cheapest entries of many: those known from the beginning in sorted columns, what is put in later in a heap."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: so many entries of the columns are made Python's at first, and twice as many each further time
_FIRST = 32


class LazyHeap:
    """Entries are tuples, the smallest first. Of thousands few are looked at, so few are made."""

    __slots__ = ("_heap", "_known", "_next")

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        """`columns` have the parts of the entries, the most important first."""
        order = np.lexsort(columns[::-1])
        self._known = _entries([column[order] for column in columns])
        self._heap: list[tuple[Any, ...]] = []
        self._make_next()

    def _make_next(self) -> None:
        """Put the next entry of the columns in: it stands for all that follow, None when there are no more."""
        self._next = next(self._known, None)
        if self._next is not None:
            self.push(self._next)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, entry: tuple[Any, ...]) -> None:
        """Put an entry in."""
        heapq.heappush(self._heap, entry)

    def pop(self) -> tuple[Any, ...]:
        """Take the smallest entry out."""
        entry = heapq.heappop(self._heap)
        if entry is self._next:
            self._make_next()
        return entry


def _entries(columns: Sequence[NDArray[Any]]) -> Iterator[tuple[Any, ...]]:
    at, size = 0, _FIRST
    while at < len(columns[0]):
        yield from zip(*(column[at : at + size].tolist() for column in columns), strict=True)
        at, size = at + size, 2 * size
