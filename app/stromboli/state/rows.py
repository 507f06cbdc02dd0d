"""Numbers for the rows of a table whose entries come and go."""

from __future__ import annotations

from heapq import heappop, heappush


class RowNumbers:
    """Gives the lowest free number, so that the end of the table empties and can be cut off."""

    __slots__ = ("_free", "_heap", "size")

    def __init__(self) -> None:
        #: all numbers in use are smaller
        self.size = 0
        self._free: set[int] = set()
        #: the free numbers, and some that are no longer free
        self._heap: list[int] = []

    def copy(self) -> RowNumbers:
        """An independent copy."""
        out = RowNumbers()
        out.size, out._free, out._heap = self.size, self._free.copy(), self._heap.copy()
        return out

    def take(self) -> int:
        """A number that is not in use."""
        while self._heap:
            number = heappop(self._heap)
            if number in self._free:
                self._free.remove(number)
                return number
        self.size += 1
        return self.size - 1

    def give_back(self, number: int) -> None:
        """Free a number; `size` shrinks when it was the last."""
        self._free.add(number)
        heappush(self._heap, number)
        while self.size - 1 in self._free:
            self.size -= 1
            self._free.remove(self.size)
