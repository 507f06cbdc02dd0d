"""What places cost on each node at least, in vectors: where it is worth looking for victims.

A `Stock` is what candidates hold, node by node and added up from the least important on. `Bounds` follow from it for
one request. Both outlast a purchase: only nodes that changed are looked at again.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector, compared, copies_that_fit, fits
from stromboli.framework.nodes import Changes
from stromboli.framework.session import Session
from stromboli.tactics.frontier import Frontier
from stromboli.tactics.holders import Holders

#: the rank of nobody: there is room
NOBODY = -1
#: the rank of what is never sufficient
_NEVER = np.iinfo(np.intp).max


class Stock:
    """What candidates hold on each node. Those who went count as holding nothing."""

    def __init__(self, session: Session, holders: Holders, candidates: Mask) -> None:
        self._view = view = session.view
        self._holders = holders
        at = holders.by_rank[candidates[holders.by_rank]]
        self.rows: Rows = holders.rows[at]
        self.node: Rows = holders.node[at]
        self.rank: Rows = holders.rank[at]
        #: where the candidates of each node begin and end
        self.starts: Rows = np.searchsorted(self.node, np.arange(len(view.nodes) + 1))
        # Amounts are whole numbers, of which floats hold too few to add up what a large cluster has.
        held = view.amounts(self.rows).astype(np.int64)
        alive = holders.alive()[at]
        if not alive.all():
            held *= alive
        total = np.zeros((len(held), len(at) + 1), np.int64)
        np.cumsum(held, axis=1, out=total[:, 1:])
        before = total.take(self.starts, axis=1)
        #: what each holds together with those before it on its node, shape (dimensions, candidates)
        self.sums: Matrix = np.subtract(total[:, 1:], before.take(self.node, axis=1)).astype(np.float64)
        #: what all hold, and the most that one does, shape (dimensions, nodes)
        self.amounts: Matrix = np.diff(before, axis=1).astype(np.float64)
        self.largest: Matrix = np.zeros_like(self.amounts)
        occupied = np.flatnonzero(np.diff(self.starts))
        if len(occupied):
            self.largest[:, occupied] = np.maximum.reduceat(held, self.starts[occupied], axis=1)
        self._changes = Changes(view.nodes)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        for node in self._changes.take():
            part = slice(self.starts[node], self.starts[node + 1])
            if part.start < part.stop:
                held = self._view.requests(self.rows[part]).T * self._alive(self.rows[part])
                self.sums[:, part] = held.cumsum(axis=1)
                self.amounts[:, node] = self.sums[:, part.stop - 1]
                self.largest[:, node] = held.max(axis=1)

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
        return rows[self._alive(rows)]

    def left(self) -> Rows:
        """The rows of all candidates that are still there."""
        return self.rows[self._alive(self.rows)]

    def _alive(self, rows: Rows) -> Mask:
        alive: Mask = self._holders.held[self._view.pods.state[rows]]
        return alive


class Bounds:
    """What the next place costs on each node at least, when victims would go one by one, the least important first."""

    def __init__(self, session: Session, stock: Stock, request: Vector) -> None:
        self._nodes = session.view.nodes
        self._stock = stock
        self._request = request
        self._asked: list[int] = np.flatnonzero(compared(request, self._nodes.always)).tolist()
        count = len(self._nodes)
        #: at which rank there may be a place, shape (nodes,)
        self.level: Rows = np.full(count, _NEVER)
        #: how many victims that takes at least, and for how many pods there are places at most
        self._least: Vector = np.zeros(count)
        self._most: Vector = np.zeros(count)
        self._changes = Changes(self._nodes)
        stock.refresh()
        self._look_at(self._nodes.rows)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        changed = self._changes.take()
        if changed:
            self._stock.refresh()
            self._look_at(np.array(sorted(changed), np.intp))

    def _look_at(self, nodes: Rows) -> None:
        """Work out anew what places cost on some nodes."""
        stock, room = self._stock, self._nodes.future_idle(nodes)
        at, of = stock.candidates(nodes)
        enough = np.ones(len(of), np.bool_)
        least = np.zeros(len(nodes))
        for column in self._asked:
            wanted = self._request[column]
            lacks = wanted - room[column]
            enough &= stock.sums[column][at] > (lacks - TOLERANCE)[of]
            largest = stock.largest[column][nodes]
            few = np.divide(lacks, largest, out=np.zeros(len(nodes)), where=largest > 0)
            np.maximum(least, few, out=least)
        level = np.full(len(nodes), _NEVER)
        # With those that were enough whoever comes after them on the node is, too.
        first = enough.copy()
        first[1:] &= ~enough[:-1] | (of[1:] != of[:-1])
        level[of[first]] = stock.rank[at][first]
        fitting = fits(self._request, room, self._nodes.always)
        level[fitting], least[fitting] = NOBODY, 0
        self.level[nodes], self._least[nodes] = level, least
        room = room + stock.amounts.take(nodes, axis=1)
        self._most[nodes] = copies_that_fit(self._request, room, self._nodes.always)

    def frontier(self, rows: Rows, place: Vector, count: int) -> tuple[Frontier, Vector]:
        """Those of some nodes that may have places, the least price that they can have first, then place among equals.

        Of equals those with many places for so many pods come first, so that pods need few nodes. The second is the
        place of all nodes, shape (nodes,).
        """
        possible = self.level[rows] < _NEVER
        rows, place = rows[possible], place[possible]
        many = np.minimum(self._most[rows], count).clip(min=1)
        among = np.zeros(len(self._nodes))
        among[rows[np.lexsort((place, -many))]] = np.arange(len(rows))
        spared = np.zeros(len(rows), np.bool_)
        return Frontier((self.level[rows], spared, self._least[rows], among[rows], rows)), among
