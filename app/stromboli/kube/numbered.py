"""Lists of numbers by key; most have a single entry."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from stromboli.api.resources import Rows

K = TypeVar("K", bound=Hashable)


class Numbered(Generic[K]):
    """Numbers added in ascending order and never removed, so that snapshots can share the lists."""

    def __init__(self) -> None:
        self._first: dict[K, int] = {}
        #: the numbers of keys with more than one
        self._all: dict[K, list[int]] = {}
        self._arrays: dict[K, Rows] = {}

    def add(self, key: K, number: int) -> None:
        """Add a number to a key."""
        first = self._first.setdefault(key, number)
        if first != number:
            self._all.setdefault(key, [first]).append(number)

    def get(self, key: K, size: int) -> Rows | None:
        """The numbers of a key below `size`; None for none."""
        listed = self._all.get(key)
        if listed is None:
            first = self._first.get(key)
            return None if first is None or first >= size else np.array([first])
        array = self._arrays.get(key)
        if array is None or len(array) < len(listed):
            array = self._arrays[key] = np.array(listed)
        return array if array[-1] < size else array[array < size]

    def each(self, keys: Iterable[K], size: int) -> list[Rows]:
        """The numbers below `size` of each of some keys, without keys that have none."""
        return [numbers for key in keys if (numbers := self.get(key, size)) is not None]

    def of(self, keys: Iterable[K], size: int) -> Rows:
        """The numbers of some keys below `size`, concatenated."""
        found = self.each(keys, size)
        if len(found) < 2:
            return found[0] if found else _NONE
        return np.concatenate(found)


_NONE: Rows = np.zeros(0, np.intp)
