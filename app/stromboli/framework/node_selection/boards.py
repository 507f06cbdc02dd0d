"""Which boards are kept: a bounded cache, from which those that were asked for longest ago are dropped."""

from __future__ import annotations

from collections.abc import Hashable

from stromboli.framework.node_selection.board import Board

#: the total of nodes on all kept boards, at 17 bytes each; a dropped board is rebuilt when its class comes again
MOST_KEPT = 8_000_000


class Boards:
    """Boards by class. Of classes asked for only once, just the latest board is kept: most never come again."""

    __slots__ = ("_asked", "_boards", "_once", "_size")

    def __init__(self) -> None:
        #: those that were asked for last at the end
        self._boards: dict[Hashable, Board] = {}
        #: nodes on all of them
        self._size = 0
        #: classes that were asked for, and the last of them, while that was its only time
        self._asked: set[Hashable] = set()
        self._once: Hashable = None

    def __len__(self) -> int:
        return len(self._boards)

    def get(self, key: Hashable) -> Board | None:
        """The board of a class, which has been asked for now; None when it is not kept."""
        board = self._boards.pop(key, None)
        if board is not None:
            if key == self._once:
                self._once = None
            self._boards[key] = board
        return board

    def keep(self, key: Hashable, board: Board) -> None:
        """Keep a new board, dropping others to make room: the one asked for only once, and the oldest."""
        boards = self._boards
        self._size += len(board.rows)
        if self._once in boards:
            self._size -= len(boards.pop(self._once).rows)
        while self._size > MOST_KEPT and boards:
            self._size -= len(boards.pop(next(iter(boards))).rows)
        self._once = None if key in self._asked else key
        self._asked.add(key)
        boards[key] = board

    def clear(self) -> None:
        """Drop all boards."""
        self._boards.clear()
        self._asked.clear()
        self._size, self._once = 0, None
