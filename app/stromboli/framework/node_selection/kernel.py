"""The placement kernel: which node a pod gets, and a gang's identical pods in one pass.

**One pod.** For one identity class, a `Board` holds the nodes that pass its predicates, those on which its pods fit
and, once there are any, the scores. It is made once per session and class, in O(nodes); afterwards only nodes that a
placement touched are looked at again. The best node has the highest score; ties go to the first in order. For a class
that is asked for again and again, `fast_board` speeds the board up.

**Many identical pods.** They are placed in one pass, see `batch`: one call of each plugin for each doubling of the
copies on a node, O(nodes + k log k) for k pods, and the same nodes as one at a time.

**When it is not exact.** Scores that are normalised over the candidate nodes (`batch_node_order`) all change when a
node fills up: the batch ends there and the caller starts another. Pods whose predicates or scores depend on other pods
are placed one at a time. If they depend on pods of the same node only (`varies_on_node`), as with host ports, cards or
anti-affinity between hosts, their board is kept, and only nodes where something changed are asked about again. If they
depend on pods elsewhere (`varies`), nothing is kept.

**The plain path.** `Engine(policy, plain=True)` has a kernel that keeps no board and places every pod separately, with
all plugins asked about all nodes. Its decisions are the same; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.nodes import Nodes
from stromboli.framework.node_selection.board import Board
from stromboli.framework.node_selection.boards import Boards
from stromboli.framework.node_selection.fast_board import FastBoard, LocalBoard
from stromboli.framework.runtime.node_questions import CALL, NodeQuestions
from stromboli.framework.runtime.points import Points
from stromboli.state.pods import PodRecord


class Kernel(NodeQuestions):
    """Chooses nodes. `within`, where given, is a mask over all nodes that limits the choice."""

    def __init__(
        self, nodes: Nodes, points: Points, request_of: Callable[[PodRecord], Vector], *, plain: bool = False
    ) -> None:
        """With `plain` nothing is kept, and every pod is placed separately."""
        super().__init__(nodes, points)
        self._request_of = request_of
        self.plain = plain
        self._boards = Boards()
        points.when_left = self.forget

    def possible(self, pod: PodRecord) -> Rows:
        """The rows of the nodes that all predicates pass, or fail for causes that go with pods; amounts aside."""
        return np.flatnonzero(self.feasible(pod, hopeful=True)) if self.varies(pod) else self._known_board(pod).rows

    def passes_everywhere(self, pod: PodRecord) -> bool:
        """Whether all predicates pass a pod that does not vary on all nodes, free capacity aside."""
        return len(self._known_board(pod, refresh=False).rows) == len(self.nodes)

    def whole_score(self, pod: PodRecord, rows: Rows) -> Vector:
        """All scores of some nodes to choose from, shape (rows,). They must not be changed."""
        own, of_set = self._own_score(pod, rows), self.set_scores(pod, rows)
        return own if of_set is None else own + of_set

    def _own_score(self, pod: PodRecord, rows: Rows) -> Vector:
        """The scores that depend on each node alone, from the board of the pod's class where it has them."""
        if self.varies(pod) or self.follows(pod):
            return self.score(pod, self.nodes.view(rows))
        board = self._known_board(pod)
        if len(rows) == len(board.rows):
            return board.scores
        at = np.searchsorted(board.rows, rows)
        return board.scores[at]

    # -- choosing --------------------------------------------------------------------------------------------------

    def board(self, pod: PodRecord) -> Board:
        """The board of a pod's class, up to date."""
        return self._new_board(pod) if self.varies(pod) else self._known_board(pod)

    def _best_board(self, pod: PodRecord) -> Board:
        """The board to choose from, with as much of it kept as may be."""
        anywhere, on_node = self._scope_of(pod)
        return self._new_board(pod) if anywhere else self._known_board(pod, local=on_node)

    def forget(self) -> None:
        """Drop caches with the answers of a plugin that was left out."""
        self._boards.clear()
        self._scope = None, 0, False, False

    def _known_board(self, pod: PodRecord, *, local: bool = False, refresh: bool = True) -> Board:
        if self.plain:
            return self._new_board(pod)
        if self.watch is not None:
            self.watch(CALL)
        key: Hashable = self.identity(pod)
        if local and not self.by_class(pod):
            # What others ask of a pod, and what it asks of those near it, tells it apart from its class.
            key = key, pod.namespace, pod.job, frozenset(pod.labels.items())
        board = self._boards.get(key)
        if board is None:
            board = LocalBoard(self, pod, self._request_of(pod)) if local else self._new_board(pod)
            self._boards.keep(key, board)
        elif refresh:
            board.refresh()
        return board

    @property
    def boards_kept(self) -> int:
        """Number of boards kept, for reports of work done."""
        return len(self._boards)

    def _new_board(self, pod: PodRecord, *, hopeful: bool = False) -> Board:
        mask = self.feasible(pod, hopeful=hopeful)
        # sooner than all()
        everywhere = len(mask) and mask[mask.argmin()]
        make = Board if self.plain else FastBoard
        return make(self, pod, self._request_of(pod), self.nodes.rows if everywhere else mask.nonzero()[0])

    def best(self, pod: PodRecord, within: Mask | None = None, *, hopeful: bool = False) -> tuple[int, bool] | None:
        """The node for a pod and whether it fits now (True) or only later; None when there is no node.

        `hopeful` also takes nodes that refuse the pod only for causes that go when pods go.
        """
        board = self._new_board(pod, hopeful=True) if hopeful and self.varies(pod) else self._best_board(pod)
        at = self._candidates(board, board.fits_idle, within)
        now = len(at) > 0
        if not now and not self.nodes.settled:
            at = self._candidates(board, board.fits_future, within)
        node = self._choose(pod, board, at) if len(at) else None
        return None if node is None else (node, now)

    def best_on(self, pod: PodRecord, node: int) -> tuple[int, bool] | None:
        """Whether a node can take a pod: the node, and whether now (True) or later (False); None if it cannot."""
        only = np.zeros(len(self.nodes), np.bool_)
        only[node] = True
        return self.best(pod, only)

    def best_effort(self, pod: PodRecord, within: Mask | None = None) -> int | None:
        """The node for a pod that requests nothing: it only counts as one of the node's pods."""
        board = self._best_board(pod)
        at = self._candidates(board, board.places(), within)
        return self._choose(pod, board, at) if len(at) else None

    def batch(self, pod: PodRecord, count: int, within: Mask | None = None) -> list[int]:
        """Nodes for up to `count` pods of one class that fit now, in order of placement.

        May return fewer than fit: the caller applies them and asks again until nothing comes back.
        """
        varies, local = self._scope_of(pod)
        if count > 1 and (varies or local or self.one_by_one(pod)):
            count = 1
        anywhere = count == 1 and within is None
        board = self._new_board(pod) if varies else self._known_board(pod, local=local, refresh=not anywhere)
        if anywhere and not board.relative:
            node = board.next()
            return [] if node is None else [node]
        if anywhere:
            board.refresh()
        at = self._candidates(board, board.fits_idle, within)
        if len(at) == 0:
            return []
        if count == 1 or not isinstance(board, FastBoard):
            node = self._choose(pod, board, at)
            return [] if node is None else [node]
        return board.in_one_pass(at, count)

    def _candidates(self, board: Board, fitting: Mask, within: Mask | None) -> Rows:
        if within is not None:
            fitting = fitting & within[board.rows]
        return np.flatnonzero(fitting)

    def _choose(self, pod: PodRecord, board: Board, at: Rows) -> int | None:
        """The best of some nodes; None when a plugin scores all of them minus infinity: it could not score."""
        if len(at) == 1:
            return int(board.rows[at[0]])
        everywhere = len(at) == len(board.rows)
        rows, scores = (board.rows, board.scores) if everywhere else (board.rows[at], board.scores[at])
        offsets = self.set_scores(pod, rows) if board.relative else None
        if offsets is not None:
            scores = scores + offsets
        best = int(scores.argmax())
        return int(rows[best]) if scores[best] > -np.inf else None
