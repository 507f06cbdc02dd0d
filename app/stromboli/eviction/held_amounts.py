"""What candidates hold on each node, in vectors: the index of who holds what where, for one set of candidates."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector, fits
from stromboli.eviction.pod_index import PodIndex, Ranks
from stromboli.framework.nodes import Changes
from stromboli.framework.session import Session


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
        self.rank: Rows = ranks.rank[at]
        #: where the candidates of each node begin and end
        self.starts: Rows = np.searchsorted(self.node, np.arange(len(view.nodes) + 1))
        # Amounts are whole numbers, of which floats hold too few to add up what a large cluster has.
        held = view.amounts(self.rows).astype(np.int64)
        alive = pod_index.alive()[at]
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
        self._latest: Vector | None = None
        #: number of candidates, shape (nodes,)
        self.counts: Rows = np.bincount(self.node[alive], minlength=len(view.nodes))
        self._changes = Changes(view.nodes)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        for node in self._changes.take():
            part = slice(self.starts[node], self.starts[node + 1])
            if part.start < part.stop:
                alive = self._alive(self.rows[part])
                held = self._view.requests(self.rows[part]).T * alive
                self.sums[:, part] = held.cumsum(axis=1)
                self.amounts[:, node] = self.sums[:, part.stop - 1]
                self.largest[:, node] = held.max(axis=1)
                self.counts[node] = alive.sum()
                if self._latest is not None:
                    self._latest[node] = self.pod_index.began[self.rows[part]].max(where=alive, initial=0.0)

    @property
    def latest(self) -> Vector:
        """When the last candidate on each node started, shape (nodes,). Only equal costs are told apart by it."""
        if self._latest is None:
            self._latest = np.zeros(len(self._view.nodes))
            occupied = np.flatnonzero(np.diff(self.starts))
            if len(occupied):
                began = np.where(self._alive(self.rows), self.pod_index.began[self.rows], 0.0)
                self._latest[occupied] = np.maximum.reduceat(began, self.starts[occupied])
        return self._latest

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

    def suffices(self, request: Vector, rows: Rows) -> Mask:
        """Which of some nodes would have room for a request if all candidates there were evicted."""
        nodes = self._view.nodes
        return fits(request, nodes.future_idle(rows) + self.amounts.take(rows, axis=1), nodes.always)

    def _alive(self, rows: Rows) -> Mask:
        alive: Mask = self.pod_index.held[self._view.pods.state[rows]]
        return alive
