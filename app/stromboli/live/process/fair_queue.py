"""A queue of pending writes in which namespaces take turns: the wait of one depends on the number of namespaces, not on
how many writes the others have queued."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class FairQueue(asyncio.Queue[T]):
    """Items of one namespace come out in the order in which they were put in."""

    def __init__(self, namespace: Callable[[T], str]) -> None:
        """`namespace` says whose an item is."""
        self._namespace = namespace
        #: the namespace whose turn it is first
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        self._size = 0
        super().__init__()

    def qsize(self) -> int:
        """Number of items that wait."""
        return self._size

    def empty(self) -> bool:
        """Whether none waits."""
        return not self._size

    def waiting(self, namespace: str) -> int:
        """Number of items of a namespace that wait."""
        return len(self._lanes.get(namespace, ()))

    def _put(self, item: T) -> None:
        self._lanes.setdefault(self._namespace(item), deque()).append(item)
        self._size += 1

    def _get(self) -> T:
        namespace, lane = next(iter(self._lanes.items()))
        item = lane.popleft()
        self._size -= 1
        if lane:
            self._lanes.move_to_end(namespace)
        else:
            del self._lanes[namespace]
        return item
