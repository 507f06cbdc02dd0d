"""What candidates for eviction hold on each node, in vectors: amounts of one set of candidates."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector, fits
from stromboli.eviction.pod_index import PodIndex, Ranks
from stromboli.framework.cluster.nodes import Changes
from stromboli.framework.session.session import Session


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
        dimensions, count = len(view.dimensions), len(view.nodes)
        #: where the candidates of each node begin and end
        self.starts: Rows = np.searchsorted(self.node, np.arange(count + 1))
        #: what each holds together with those before it on its node, shape (dimensions, candidates)
        self.sums: Matrix = np.zeros((dimensions, len(at)))
        #: what all hold, and the most that one does, shape (dimensions, nodes)
        self.amounts: Matrix = np.zeros((dimensions, count))
        self.largest: Matrix = np.zeros((dimensions, count))
        #: number of candidates, and when the last of them started, shape (nodes,)
        self.counts: Rows = np.zeros(count, np.intp)
        self.latest: Vector = np.zeros(count)
        self._changes = Changes(view.nodes)
        self._add_up(view.nodes.rows)

    def refresh(self) -> None:
        """Look again at the nodes that changed."""
        changed = [node for node in self._changes.in_order() if self.starts[node] < self.starts[node + 1]]
        if changed:
            self._add_up(np.array(changed, np.intp))

    def _add_up(self, nodes: Rows) -> None:
        """Add up what the candidates of some nodes hold."""
        at, of = self.candidates(nodes)
        rows = self.rows[at]
        alive = self._alive(rows)
        # Amounts are whole numbers, of which floats hold too few to add up what a large cluster has.
        held = self._view.amounts(rows).astype(np.int64) * alive
        total = np.zeros((len(held), len(rows) + 1), np.int64)
        np.cumsum(held, axis=1, out=total[:, 1:])
        starts = np.searchsorted(of, np.arange(len(nodes) + 1))
        before = total.take(starts, axis=1)
        self.sums[:, at] = total[:, 1:] - before.take(of, axis=1)
        self.amounts[:, nodes] = np.diff(before, axis=1)
        self.counts[nodes] = np.bincount(of[alive], minlength=len(nodes))
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
        return rows[self._alive(rows)]

    def left(self) -> Rows:
        """The rows of all candidates that are still there."""
        return self.rows[self._alive(self.rows)]

    def suffices(self, request: Vector, rows: Rows) -> Mask:
        """On which of some nodes a request would fit if all candidates there were evicted."""
        nodes = self._view.nodes
        return fits(request, nodes.future_idle(rows) + self.amounts.take(rows, axis=1), nodes.always)

    def _alive(self, rows: Rows) -> Mask:
        alive: Mask = self.pod_index.held[self._view.pods.state[rows]]
        return alive
