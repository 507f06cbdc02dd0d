"""The cheapest entries of many: those known from the beginning in sorted columns, what is put in later in a heap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stromboli.api.resources import Mask

#: so many entries of the columns are made Python's at first, and twice as many each further time
_FIRST = 32


class LazyHeap:
    """Entries are tuples, the smallest first. Of thousands few are looked at, so few are made."""

    __slots__ = ("_at", "_columns", "_heap", "_next", "_sizes")

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        """`columns` have the parts of the entries, the most important first."""
        order = np.lexsort(columns[::-1])
        self._columns = [column[order] for column in columns]
        self._at = 0
        self._sizes = (_FIRST * 2**number for number in count())
        #: the next of the columns' entries, the first at the end
        self._next: list[tuple[Any, ...]] = []
        self._heap: list[tuple[Any, ...]] = []
        self._fetch()

    def __bool__(self) -> bool:
        return bool(self._next or self._heap)

    def push(self, entry: tuple[Any, ...]) -> None:
        """Put an entry in."""
        heapq.heappush(self._heap, entry)

    def first(self) -> tuple[Any, ...]:
        """The smallest entry."""
        if not self._next or (self._heap and self._heap[0] < self._next[-1]):
            return self._heap[0]
        return self._next[-1]

    def pop(self) -> tuple[Any, ...]:
        """Take the smallest entry out."""
        if not self._next or (self._heap and self._heap[0] < self._next[-1]):
            return heapq.heappop(self._heap)
        entry = self._next.pop()
        if not self._next:
            self._fetch()
        return entry

    def keep(self, wanted: Mask) -> int:
        """Drop the entries whose last part is a row that is not wanted; how many they were."""
        before = len(self._heap) + len(self._next) + len(self._columns[-1]) - self._at
        self._heap = [entry for entry in self._heap if wanted[entry[-1]]]
        heapq.heapify(self._heap)
        self._next = [entry for entry in self._next if wanted[entry[-1]]]
        self._columns = [column[self._at :] for column in self._columns]
        stays = wanted[self._columns[-1]]
        self._columns, self._at = [column[stays] for column in self._columns], 0
        if not self._next:
            self._fetch()
        return before - len(self._heap) - len(self._next) - len(self._columns[-1]) + self._at

    def _fetch(self) -> None:
        size = next(self._sizes)
        parts = [column[self._at : self._at + size].tolist() for column in self._columns]
        self._next = list(zip(*parts, strict=True))[::-1]
        self._at += size
