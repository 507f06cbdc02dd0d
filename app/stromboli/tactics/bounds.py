"""What places cost on each node at least, in vectors: where it is worth looking for victims."""

from __future__ import annotations

import heapq

import numpy as np

from stromboli.api.resources import CPU, MEMORY, TOLERANCE, Mask, Matrix, Rows, Vector, fits
from stromboli.framework.kernel import copies_that_fit
from stromboli.framework.session import Session
from stromboli.tactics.holders import ByNode, Holders

#: the rank of nobody: there is room
NOBODY = -1


class Bounds:
    """What the next place costs on each node at least, when victims would go one by one, the least important first."""

    def __init__(self, holders: Holders, candidates: Mask, session: Session, request: Vector, rows: Rows) -> None:
        """`rows` are the nodes that come into question."""
        view = session.view
        at = np.flatnonzero(candidates & holders.alive())
        at = at[np.lexsort((holders.rank[at], holders.node[at]))]
        of, node, rank = holders.rows[at], holders.node[at], holders.rank[at]
        by_node = ByNode(session, of, node, holders.states)
        #: the rows of the candidates that are still on a node
        self.on = by_node.on
        #: rank of each candidate, by row
        self.rank_of: dict[int, int] = dict(zip(of.tolist(), rank.tolist(), strict=True))
        count = len(view.nodes)
        self.known = set(rows.tolist())
        #: rows that are worth a look: which of the nodes, at which rank, with how many victims at least
        self._level = np.full(count, np.iinfo(np.intp).max)
        self._least = np.zeros(count)
        #: the place of nodes among equals
        self.place: dict[int, float] = {}
        room = view.nodes.future_idle()
        self._find(room, view.requests(of), node, rank, request)
        self._most = copies_that_fit(request, room + by_node.amounts())
        fitting = fits(request, room)
        self._level[fitting], self._least[fitting] = NOBODY, 0
        self._candidates = rows

    def _find(self, room: Matrix, held: Matrix, node: Rows, rank: Rows, request: Vector) -> None:
        if not len(node):
            return
        asked = request > 0
        asked[[CPU, MEMORY]] = True
        enough = np.ones(len(node), np.bool_)
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        begins = np.repeat(starts, np.diff(starts, append=len(node)))
        for column in np.flatnonzero(asked):
            amounts = held[:, column]
            total = np.cumsum(amounts)
            before = np.concatenate([[0.0], total])[begins]
            enough &= room[column, node] + total - before > request[column] - TOLERANCE
            largest = np.maximum.reduceat(amounts, starts)
            lacks = request[column] - room[column, node[starts]]
            with np.errstate(divide="ignore", invalid="ignore"):
                least = np.where(largest > 0, lacks / largest, 0.0)
            self._least[node[starts]] = np.maximum(self._least[node[starts]], least)
        first = np.flatnonzero(enough)
        nodes, at = np.unique(node[first], return_index=True)
        self._level[nodes] = rank[first[at]]

    def heap(self, place: Vector, count: int) -> list[tuple[int, bool, float, float, int]]:
        """The nodes that may have places, the least price that they can have first, then place among equals and node.

        Of equals those with many places come first, so that pods need few nodes.
        """
        rows = self._candidates
        possible = self._level[rows] < np.iinfo(np.intp).max
        rows, place = rows[possible], place[possible]
        many = np.minimum(self._most[rows], count).clip(min=1)
        order = np.lexsort((place, -many))
        among = np.empty(len(rows))
        among[order] = np.arange(len(rows))
        self.place = dict(zip(rows.tolist(), among.tolist(), strict=True))
        levels, least = self._level[rows].tolist(), self._least[rows].tolist()
        spared = [False] * len(rows)
        heap = list(zip(levels, spared, least, among.tolist(), rows.tolist(), strict=True))
        heapq.heapify(heap)
        return heap
