"""A bounded cache that keeps the most recently used values by key."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache of values that can be recomputed; none of them is None."""

    __slots__ = ("_most", "_values")

    def __init__(self, most: int) -> None:
        """`most` values are kept."""
        self._most = most
        #: in the order in which they were asked for
        self._values: dict[K, V] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is not kept."""
        values = self._values
        found = values.pop(key, None)
        values[key] = found = make() if found is None else found
        if len(values) > self._most:
            del values[next(iter(values))]
        return found

    def values(self) -> ValuesView[V]:
        """The values that are kept."""
        return self._values.values()

    def items(self) -> ItemsView[K, V]:
        """The values that are kept, by key."""
        return self._values.items()
