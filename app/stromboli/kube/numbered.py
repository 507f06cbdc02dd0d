"""Numbers by key, where most keys have a single one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np

from stromboli.api.resources import Rows

K = TypeVar("K", bound=Hashable)


class Numbered(Generic[K]):
    """Numbers that are added in ascending order, and only become more, so that snapshots share them."""

    def __init__(self) -> None:
        self._first: dict[K, int] = {}
        #: all of those that have more than one
        self._all: dict[K, list[int]] = {}
        self._arrays: dict[K, Rows] = {}

    def add(self, key: K, number: int) -> None:
        """One more number of a key."""
        first = self._first.setdefault(key, number)
        if first != number:
            self._all.setdefault(key, [first]).append(number)

    def get(self, key: K, size: int) -> int | Rows | None:
        """The numbers of a key below `size`, as one or as an array; None for none."""
        listed = self._all.get(key)
        if listed is None:
            first = self._first.get(key)
            return first if first is not None and first < size else None
        array = self._arrays.get(key)
        if array is None or len(array) < len(listed):
            array = self._arrays[key] = np.array(listed)
        return array if array[-1] < size else array[array < size]
