"""Per node, in vectors: what candidates for eviction hold, and a lower bound on the cost of a place.

Both are kept between searches, and computed again only for nodes that changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector, compared, copies_that_fit, fits
from stromboli.eviction.ordering import NO_VICTIMS, ascending
from stromboli.eviction.pod_index import PodIndex, Ranks
from stromboli.framework.cluster.nodes import Changes
from stromboli.framework.session.session import Session

#: the rank of candidates that never suffice
_NEVER = np.iinfo(np.intp).max


class HeldAmounts:
    """Candidates by node, and what they hold added up from the least important on; follows the session's operations.

    Evicted pods count as holding nothing.
    """

    def __init__(self, session: Session, pod_index: PodIndex, candidates: Mask, ranks: Ranks | None = None) -> None:
        """`candidates` has the shape (indexed pods,)."""
        self._view = view = session.view
        self.ranks = ranks = pod_index.ranks if ranks is None else ranks
        self.pod_index = pod_index
        at = ranks.by_node[candidates[ranks.by_node]]
        self.rows: Rows = pod_index.rows[at]
        self.node: Rows = pod_index.node[at]
        self.job: Rows = pod_index.job[at]
        self.rank: Rows = ranks.rank[at]
        dimensions, count = len(view.dimensions), len(view.nodes)
        #: where the candidates of each node begin and end
        self.starts: Rows = np.searchsorted(self.node, np.arange(count + 1))
        #: running sums of what candidates hold on their node, shape (dimensions, candidates)
        self.sums: Matrix = np.zeros((dimensions, len(at)))
        #: total of all candidates, and the largest of one, shape (dimensions, nodes)
        self.amounts: Matrix = np.zeros((dimensions, count))
        self.largest: Matrix = np.zeros((dimensions, count))
        #: when the last of them started, shape (nodes,)
        self.latest: Vector = np.zeros(count)
        self._changes = Changes(view.nodes)
        self._add_up(view.nodes.rows)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        changed = [node for node in self._changes.in_order() if self.starts[node] < self.starts[node + 1]]
        if changed:
            self._add_up(np.array(changed, np.intp))

    def _add_up(self, nodes: Rows) -> None:
        """Add up the holdings of candidates on some nodes."""
        at, of = self.candidates(nodes)
        rows = self.rows[at]
        alive = self.pod_index.alive(rows)
        # Amounts are whole numbers, of which floats hold too few to add up what a large cluster has.
        held = self._view.amounts(rows).astype(np.int64) * alive
        total = np.zeros((len(held), len(rows) + 1), np.int64)
        np.cumsum(held, axis=1, out=total[:, 1:])
        starts = np.searchsorted(of, np.arange(len(nodes) + 1))
        before = total.take(starts, axis=1)
        self.sums[:, at] = total[:, 1:] - before.take(of, axis=1)
        self.amounts[:, nodes] = np.diff(before, axis=1)
        occupied = np.flatnonzero(np.diff(starts))
        if len(occupied):
            began = np.where(alive, self.pod_index.began[rows], 0.0)
            self.largest[:, nodes[occupied]] = np.maximum.reduceat(held, starts[occupied], axis=1)
            self.latest[nodes[occupied]] = np.maximum.reduceat(began, starts[occupied])

    def candidates(self, nodes: Rows) -> tuple[Rows | slice, Rows]:
        """Where the candidates on some nodes are, node by node, and at which of these nodes each is."""
        if len(nodes) == len(self._view.nodes):
            return slice(None), self.node
        starts, counts = self.starts[nodes], self.starts[nodes + 1] - self.starts[nodes]
        of = np.repeat(np.arange(len(nodes)), counts)
        return np.arange(len(of)) + (starts - np.cumsum(counts) + counts)[of], of

    def on(self, node: int) -> Rows:
        """The rows of the candidates that are still on a node."""
        rows = self.rows[self.starts[node] : self.starts[node + 1]]
        return rows[self.pod_index.alive(rows)]

    def suffices(self, request: Vector, rows: Rows) -> Mask:
        """Mask of the given nodes that a request would fit on if all candidates there were evicted."""
        nodes = self._view.nodes
        return fits(request, nodes.future_idle(rows) + self.amounts.take(rows, axis=1), nodes.always)


class CostBounds:
    """Lower bounds on the next place's cost on each node: victims evicted one by one, the least important first."""

    def __init__(self, session: Session, held_amounts: HeldAmounts, request: Vector) -> None:
        self._nodes = session.view.nodes
        self._held_amounts = held_amounts
        self._request = request
        self._asked: list[int] = np.flatnonzero(compared(request, self._nodes.always)).tolist()
        count = len(self._nodes)
        #: at which rank there may be a place, shape (nodes,)
        self.level: Rows = np.full(count, _NEVER)
        #: lower bound on the number of victims, and upper bound on the number of places
        self._least: Vector = np.zeros(count)
        self._most: Vector = np.zeros(count)
        self._changes = Changes(self._nodes)
        held_amounts.refresh()
        self._look_at(self._nodes.rows)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        if changed := self._changes.in_order():
            self._held_amounts.refresh()
            self._look_at(np.array(changed, np.intp))

    def _look_at(self, nodes: Rows) -> None:
        """Compute the bounds of some nodes."""
        held_amounts, free = self._held_amounts, self._nodes.future_idle(nodes)
        at, of = held_amounts.candidates(nodes)
        enough = np.ones(len(of), np.bool_)
        least = np.zeros(len(nodes))
        for column in self._asked:
            wanted = self._request[column]
            lacks = wanted - free[column]
            enough &= held_amounts.sums[column][at] > (lacks - TOLERANCE)[of]
            largest = held_amounts.largest[column][nodes]
            few = np.divide(lacks, largest, out=np.zeros(len(nodes)), where=largest > 0)
            np.maximum(least, few, out=least)
        level = np.full(len(nodes), _NEVER)
        # Where some pods were enough, all prefixes that contain them are, too.
        first = enough.copy()
        first[1:] &= ~enough[:-1] | (of[1:] != of[:-1])
        level[of[first]] = held_amounts.rank[at][first]
        fitting = fits(self._request, free, self._nodes.always)
        level[fitting], least[fitting] = NO_VICTIMS, 0
        self.level[nodes], self._least[nodes] = level, least
        free = free + held_amounts.amounts.take(nodes, axis=1)
        self._most[nodes] = copies_that_fit(self._request, free, self._nodes.always)

    def heap(self, rows: Rows, place: Vector, count: int) -> tuple[list[tuple[Any, ...]], Vector]:
        """A heap of the nodes among some that may have places: by the lowest possible cost, then by the node's rank.

        Of equally cheap nodes those with many places for these pods come first, so that pods need few nodes. The second
        is each node's rank, shape (nodes,).
        """
        possible = self.level[rows] < _NEVER
        rows, place = rows[possible], place[possible]
        many = np.minimum(self._most[rows], count).clip(min=1)
        among = np.zeros(len(self._nodes))
        among[rows[np.lexsort((place, -many))]] = np.arange(len(rows))
        level, spared, age = self.level[rows], np.zeros(len(rows), np.bool_), np.zeros(len(rows))
        if len(rows):
            age = np.where(level == NO_VICTIMS, 0.0, -self._held_amounts.latest[rows])
        return ascending(level, spared, self._least[rows], age, among[rows], rows), among
