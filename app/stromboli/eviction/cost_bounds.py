"""Lower bounds of the cost of a place on each node, in vectors: where it is worth looking for victims.

They outlast a search: only nodes that changed are looked at again.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import TOLERANCE, Rows, Vector, compared, copies_that_fit, fits
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.lazy_heap import LazyHeap
from stromboli.eviction.ordering import NO_VICTIMS
from stromboli.framework.cluster.nodes import Changes
from stromboli.framework.session.session import Session

#: the rank of what is never sufficient
_NEVER = np.iinfo(np.intp).max


class CostBounds:
    """What the next place costs on each node at least, when victims would go one by one, the least important first."""

    def __init__(self, session: Session, held_amounts: HeldAmounts, request: Vector) -> None:
        self._nodes = session.view.nodes
        self._held_amounts = held_amounts
        self._request = request
        self._asked: list[int] = np.flatnonzero(compared(request, self._nodes.always)).tolist()
        count = len(self._nodes)
        #: at which rank there may be a place, shape (nodes,)
        self.level: Rows = np.full(count, _NEVER)
        #: how many victims that takes at least, and for how many pods there are places at most
        self._least: Vector = np.zeros(count)
        self._most: Vector = np.zeros(count)
        self._changes = Changes(self._nodes)
        held_amounts.refresh()
        self._look_at(self._nodes.rows)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        changed = self._changes.take()
        if changed:
            self._held_amounts.refresh()
            self._look_at(np.array(sorted(changed), np.intp))

    def _look_at(self, nodes: Rows) -> None:
        """Work out anew what places cost on some nodes."""
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

    def heap(self, rows: Rows, place: Vector, count: int) -> tuple[LazyHeap, Vector]:
        """The nodes that may have places, of some: the lowest cost that they can have first, then place among equals.

        Of equals those with many places for so many pods come first, so that pods need few nodes. The second is the
        place of all nodes, shape (nodes,).
        """
        possible = self.level[rows] < _NEVER
        rows, place = rows[possible], place[possible]
        many = np.minimum(self._most[rows], count).clip(min=1)
        among = np.zeros(len(self._nodes))
        among[rows[np.lexsort((place, -many))]] = np.arange(len(rows))
        level, spared, age = self.level[rows], np.zeros(len(rows), np.bool_), np.zeros(len(rows))
        if len(rows):
            age = np.where(level == NO_VICTIMS, 0.0, -self._held_amounts.latest[rows])
        return LazyHeap((level, spared, self._least[rows], age, among[rows], rows)), among
