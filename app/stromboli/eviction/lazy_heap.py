"""The cheapest entries of many: those known from the beginning in sorted columns, what is put in later in a heap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class LazyHeap:
    """Entries are tuples, the smallest first. Of thousands few are looked at, so few are made."""

    __slots__ = ("_heap", "_known", "_next")

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        """`columns` have the parts of the entries, the most important first."""
        order = np.lexsort(columns[::-1])
        #: entries of Python's numbers
        self._known = zip(*(column[order].data for column in columns), strict=True)
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
