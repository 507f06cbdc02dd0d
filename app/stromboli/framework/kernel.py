"""The placement kernel: which node a pod gets, and a gang's identical pods in one pass.

**One pod.** A `Board` holds, for one identity class, the nodes that its predicates pass, which of them have room, and,
once one of them has, their scores. It is made once per session and class, O(nodes); afterwards only nodes that a
placement touched are looked at again, found through `Nodes.log`, and not even those when scores follow from amounts
alone (`by_amounts`) and a node with the same amounts was scored before. The best node is the highest score, of equals
the first in order. A class that is asked for again and again, as elastic jobs do, gets a ranking of its nodes: O(log
nodes) for each pod. Where amounts do not tell the scores, and nobody else places anything in between, its choices are
made ahead in one pass, and given out while they stand.

**Many identical pods.** They are placed in one pass, see `batch`: one call of each plugin for each doubling of the
copies on a node, O(nodes + k log k) for k pods, and the same nodes as one at a time.

**When it is not exact.** Scores that are normalised over the nodes to choose from (`batch_node_order`) change for all
when a node fills up: the batch ends there and the caller starts another. Pods whose predicates or scores depend on
other pods go one at a time. When they depend on pods of the same node alone (`varies_on_node`), as with host ports,
cards or anti-affinity between hosts, their board is kept, and only a node where something changed is asked again. When
they depend on pods elsewhere (`varies`), nothing is kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import cast

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, Mask, Rows, Vector, copies_that_fit, fits
from stromboli.framework import answers
from stromboli.framework.answers import AnswerError
from stromboli.framework.batch import Batch, highest
from stromboli.framework.nodes import Nodes, NodeView, first_best
from stromboli.framework.plugin import Failed, Passing
from stromboli.framework.points import Points
from stromboli.state.pods import PodRecord

_FLOAT = np.dtype(np.float64)
#: in the identity of a pod of which a plugin could not say it
_ALONE = "alone"
#: single placements of a class until its nodes are worth a ranking
_RANKED_AFTER = 3
#: nodes that are put into its heap at a time
_MOST_RANKED = 128
#: single placements of a class, with nothing else in between, until choices are made ahead, and how many at most
_AHEAD_AFTER, _MOST_AHEAD = 8, 256
#: a board that missed more than this share of its nodes is computed anew
_REFRESH_ALL = 0.25
#: nodes on all boards that are kept, at 17 bytes each; a dropped board is made anew when its class is asked for
_MOST_KEPT = 8_000_000
#: what a question to plugins takes beside the nodes that it is about, in steps
_CALL = 2_000
#: so many nodes that changed are looked up by their amounts, and of so many amounts the answers are kept
_MOST_TWINS, _MOST_AMOUNTS = 64, 4096


class Board:
    """Feasibility, room and scores of the nodes for one identity class. Arrays have shape (feasible nodes,)."""

    __slots__ = (
        "_ahead",
        "_copies",
        "_fits_future",
        "_full",
        "_kernel",
        "_ranking",
        "_scores",
        "_seen",
        "_singles",
        "_streak",
        "_told_by_amounts",
        "_twins",
        "fits_idle",
        "pod",
        "relative",
        "request",
        "rows",
        "scoring",
    )

    def __init__(self, kernel: Kernel, pod: PodRecord, request: Vector, rows: Rows) -> None:
        self._kernel = kernel
        self.pod = pod
        self.request = request
        self.scoring = pod.pod_class.scoring_request
        #: nodes that the predicates pass, ascending
        self.rows = rows
        self._full = len(rows) == len(kernel.nodes)
        self._ranking: _Ranking | None = None
        self._singles = 0
        #: the choices that were made last, and how many were taken before without anything else in between
        self._ahead: _Ahead | None = None
        self._streak = 0
        #: by the amounts of a node: whether it has room for the pod, and its score
        self._twins: dict[Hashable, tuple[bool, float]] = {}
        #: whether plugins say that these tell the score; None until they are asked
        self._told_by_amounts: bool | None = None
        self.fits_idle: Mask
        self._scores: Vector | None
        self._fits_future: Mask | None
        self._copies: Vector | None
        self._compute()
        self._seen = len(kernel.nodes.log)
        #: whether scores depend on which nodes there are to choose from, or on what their neighbours got
        self.relative = self._is_relative()

    def _is_relative(self) -> bool:
        kernel, pod, rows = self._kernel, self.pod, self.rows
        return len(rows) > 1 and (kernel.follows(pod) or kernel.set_scores(pod, rows) is not None)

    def refresh(self) -> None:
        """Look again at the nodes that changed since the last call."""
        log = self._kernel.nodes.log
        if self._seen == len(log):
            return
        changed = sorted(set(log[self._seen :]))
        self._seen = len(log)
        at, rows = (changed, changed) if self._full else self._known(changed)
        self._kernel.nodes_rescored += len(at)
        if len(at) > _REFRESH_ALL * len(self.rows):
            self._compute()
        elif at:
            self._update(at, rows)

    def _known(self, changed: list[int]) -> tuple[list[int], list[int]]:
        """The nodes on the board among some that are given in order: their indices, and their rows."""
        if not len(self.rows):
            return [], []
        at = np.searchsorted(self.rows, changed)
        known = self.rows.take(at, mode="clip") == changed
        return at[known].tolist(), np.array(changed)[known].tolist()

    def next(self) -> int | None:
        """The best node with room now for one pod, None when there is none; the board need not be up to date."""
        if self._ahead is not None:
            return self._next_ahead(self._ahead)
        self.refresh()
        top = self._top()
        if top is None:
            return None
        node: int = self.rows.item(top)
        # Before the second pod nothing is known of others of the class, and by amounts a choice takes few steps anyway.
        if self._singles > 1 and not self._by_amounts():
            self._ahead, self._streak = _Ahead(self._kernel.nodes, self, [node]), 0
            self._ahead.take()
        return node

    def _next_ahead(self, ahead: _Ahead) -> int | None:
        """The same from choices that are made ahead when some were taken before with nothing else in between."""
        stands = ahead.stands()
        if stands and ahead.left:
            return ahead.take()
        self.refresh()
        self._streak = self._streak + ahead.length if stands else 0
        if self._streak >= _AHEAD_AFTER and self._foresees():
            chosen = self._kernel.in_one_pass(self, np.flatnonzero(self.fits_idle), min(self._streak, _MOST_AHEAD))
        else:
            top = self._top()
            chosen = [] if top is None else [self.rows.item(top)]
        self._ahead = _Ahead(self._kernel.nodes, self, chosen) if chosen else None
        return self._ahead.take() if self._ahead else None

    def _foresees(self) -> bool:
        """Whether it is known what a placement of the class does to the score of its node."""
        return not self.relative and not self._kernel.one_by_one(self.pod)

    def _top(self) -> int | None:
        """The index in `rows` of the best node with room now, None when there is none."""
        if self._ranking is None:
            if not self.fits_idle.any():
                return None
            self._singles += 1
            if self._singles < _RANKED_AFTER:
                return first_best(self.scores, self.fits_idle)
            self._ranking = _Ranking(self.scores, self.fits_idle)
        return self._ranking.first(self.scores, self.fits_idle)

    @property
    def scores(self) -> Vector:
        """The scores, made when somebody first asks: nobody does while no node has room."""
        if self._scores is None:
            self._scores = self._score_all()
        return self._scores

    def _score_all(self) -> Vector:
        return self._kernel.score(self.pod, self._kernel.nodes.view(self.rows))

    @property
    def fits_future(self) -> Mask:
        """Where there is room when terminating pods have gone, and promised places are taken."""
        if self._fits_future is None:
            self._fits_future = fits(self.request, self._kernel.nodes.future_idle(self.rows), self._kernel.nodes.always)
        return self._fits_future

    @property
    def copies(self) -> Vector:
        """For how many pods each node has room, now or when terminating pods have gone; it may be negative."""
        if self._copies is None:
            self._copies = self._count_copies(self.rows)
        return self._copies

    def places(self) -> Mask:
        """Where the pod could be one of the node's pods, whatever else it requests."""
        places: Mask = self._kernel.nodes.idle[PODS, self.rows] >= 1 - TOLERANCE
        return places

    def _count_copies(self, rows: Rows) -> Vector:
        nodes = self._kernel.nodes
        now, later = (
            copies_that_fit(self.request, room, nodes.always) for room in (nodes.idle[:, rows], nodes.future_idle(rows))
        )
        return np.maximum(now, later)

    def _update(self, at: list[int], rows: list[int]) -> None:
        """Look again at some nodes, by their indices and rows."""
        scores = self._scores
        beside = self._fits_future is not None or self._copies is not None
        if scores is None or beside or len(at) > _MOST_TWINS or not self._by_amounts():
            self._update_in_arrays(np.array(at), np.array(rows))
        else:
            self._update_as_twins(at, rows, scores)

    def _update_in_arrays(self, at: Rows, rows: Rows) -> None:
        nodes = self._kernel.nodes
        self.fits_idle[at] = fits(self.request, nodes.room(rows), nodes.always)
        if self._fits_future is not None:
            self._fits_future[at] = fits(self.request, nodes.future_idle(rows), nodes.always)
        if self._copies is not None:
            self._copies[at] = self._count_copies(rows)
        if self._scores is not None:
            self._scores[at] = scores = self._kernel.score(self.pod, nodes.view(rows))
            for index, score, fit in zip(at.tolist(), scores.tolist(), self.fits_idle[at].tolist(), strict=True):
                if fit and self._ranking is not None:
                    heapq.heappush(self._ranking.heap, (-score, index))

    def _update_as_twins(self, at: list[int], rows: list[int], scores: Vector) -> None:
        """Update by what is known of nodes with the same amounts."""
        amounts, known = self._kernel.nodes.amounts, self._twins
        heap = self._ranking.heap if self._ranking else None
        if len(known) > _MOST_AMOUNTS:
            known.clear()
        unknown = [row for row in rows if amounts[row] not in known]
        if unknown:
            self._ask_for_twins(unknown)
        for index, row in zip(at, rows, strict=True):
            self.fits_idle[index], scores[index] = fit, score = known[amounts[row]]
            if not fit or heap is None:
                continue
            if heap and heap[0][1] == index:
                # It was chosen last.
                heapq.heapreplace(heap, (-score, index))
            else:
                heapq.heappush(heap, (-score, index))

    def _by_amounts(self) -> bool:
        """Whether nodes with the same amounts have the same score, and room for as many."""
        if not self._kernel.nodes.plain:
            return False
        if self._told_by_amounts is None:
            self._told_by_amounts = self._kernel.by_amounts(self.pod)
        return self._told_by_amounts

    def _ask_for_twins(self, rows: list[int]) -> None:
        """Find out what holds of some nodes and of all that have the same amounts."""
        nodes, at = self._kernel.nodes, np.array(rows)
        room, scores = fits(self.request, nodes.room(at), nodes.always), self._kernel.score(self.pod, nodes.view(at))
        for row, fit, score in zip(rows, room.tolist(), scores.tolist(), strict=True):
            self._twins[nodes.amounts[row]] = fit, score

    def _compute(self) -> None:
        nodes, rows = self._kernel.nodes, self.rows
        self.fits_idle = fits(self.request, nodes.room(rows), nodes.always)
        self._fits_future = self._copies = self._scores = self._ranking = None


class _Ranking:
    """The nodes with room by score, of equals the first in front. Few are ever chosen: the others stay in an array."""

    __slots__ = ("_at", "_bound", "_scores", "heap")

    def __init__(self, scores: Vector, fits_idle: Mask) -> None:
        at = np.flatnonzero(fits_idle)
        #: indices and scores as they were, the best first, of those that are not in the heap
        self._at: Rows = at[np.argsort(-scores[at], kind="stable")]
        self._scores: Vector = scores[self._at]
        #: (-score, index) of all others and of nodes that changed; what is out of date in it is passed over
        self.heap: list[tuple[float, int]] = []
        #: the smallest of the rest
        self._bound = self._extend()

    def first(self, scores: Vector, fits_idle: Mask) -> int | None:
        """The index of the best node, None when there is none."""
        heap = self.heap
        while heap or len(self._at):
            if not heap or heap[0] > self._bound:
                self._bound = self._extend()
                continue
            score, index = heap[0]
            if fits_idle[index] and scores[index] == -score:
                return index
            heapq.heappop(heap)
        return None

    def _extend(self) -> tuple[float, float]:
        for entry in zip((-self._scores[:_MOST_RANKED]).tolist(), self._at[:_MOST_RANKED].tolist(), strict=True):
            heapq.heappush(self.heap, entry)
        self._at, self._scores = self._at[_MOST_RANKED:], self._scores[_MOST_RANKED:]
        return (-self._scores.item(0), self._at.item(0)) if len(self._at) else (np.inf, np.inf)


class _LocalBoard(Board):
    """The board of a pod whose predicates change where pods come or go (`varies_on_node`).

    It has all nodes, and those that do not pass count as nodes without room.
    """

    __slots__ = ("_passes",)

    def __init__(self, kernel: Kernel, pod: PodRecord, request: Vector) -> None:
        super().__init__(kernel, pod, request, kernel.nodes.rows)

    def _is_relative(self) -> bool:
        # Others may come that make it so.
        return self._kernel.scores_sets

    def _foresees(self) -> bool:
        return False

    @property
    def fits_future(self) -> Mask:
        if self._fits_future is None:
            self._fits_future = super().fits_future & self._passes
        return self._fits_future

    def places(self) -> Mask:
        return super().places() & self._passes

    def _update(self, at: list[int], rows: list[int]) -> None:
        passes = self._kernel.passing(self.pod, self._kernel.nodes.view(np.array(rows)))
        self._passes[at] = passes
        self.fits_idle[at] = False
        if self._fits_future is not None:
            self._fits_future[at] = False
        passing = [row for row, passed in zip(rows, passes.tolist(), strict=True) if passed]
        if passing:
            super()._update(passing, passing)

    def _compute(self) -> None:
        kernel, nodes = self._kernel, self._kernel.nodes
        self._passes = kernel.passing(self.pod, nodes.view(self.rows))
        self.fits_idle = fits(self.request, nodes.room(self.rows), nodes.always) & self._passes
        self._fits_future = self._copies = self._scores = self._ranking = None

    def _score_all(self) -> Vector:
        kernel = self._kernel
        if self._passes.all():
            return super()._score_all()
        rows = np.flatnonzero(self._passes)
        scores = np.full(len(self.rows), -np.inf)
        scores[rows] = kernel.score(self.pod, kernel.nodes.view(rows))
        return scores


class _Ahead:
    """Choices for pods of a class that come one at a time. They stand while all that happens is that each is taken."""

    __slots__ = ("_amounts", "_board", "_logged", "_node", "_nodes", "left", "length")

    def __init__(self, nodes: Nodes, board: Board, chosen: list[int]) -> None:
        self._nodes = nodes
        self._board = board
        self.length = len(chosen)
        #: those that are left, the next at the end
        self.left = chosen[::-1]

    def take(self) -> int:
        """The next choice."""
        nodes, board = self._nodes, self._board
        self._node = node = self.left.pop()
        self._logged = len(nodes.log) + 1
        if self.left:
            idle, scoring = (nodes.idle[:, node] - board.request).tolist(), nodes.scoring[:, node].tolist()
            #: what the node has when the pod is there
            self._amounts = idle, [have + more for have, more in zip(scoring, board.scoring, strict=True)]
        return node

    def stands(self) -> bool:
        """Whether the last choice was taken, and nothing else happened."""
        nodes, node = self._nodes, self._node
        if len(nodes.log) != self._logged or nodes.log[-1] != node:
            return False
        return not self.left or self._amounts == (nodes.idle[:, node].tolist(), nodes.scoring[:, node].tolist())


class Kernel:
    """Chooses nodes. `within`, where given, is a mask over all nodes that limits the choice."""

    def __init__(self, nodes: Nodes, points: Points, request_of: Callable[[PodRecord], Vector]) -> None:
        self.nodes = nodes
        self._points = points
        self._request_of = request_of
        #: by class, those that were asked for last at the end
        self._boards: dict[Hashable, Board] = {}
        self._kept = 0
        #: classes that were asked for, and the last of them, while that was its only time
        self._asked: set[Hashable] = set()
        self._once: Hashable = None
        points.when_left = self.forget
        #: nodes whose score was computed, for reports of work done
        self.nodes_scored = 0
        #: nodes looked at again because they had changed since a class was last asked about
        self.nodes_rescored = 0
        #: work done, about in nodes looked at; the same on every machine
        self.steps = 0

    # -- what plugins say ------------------------------------------------------------------------------------------

    @property
    def filters(self) -> bool:
        """Whether anybody looks at nodes beyond their room."""
        return bool(self._points.all("predicate"))

    def varies(self, pod: PodRecord) -> bool:
        """Whether what plugins say of this pod depends on other pods: it must be placed one at a time."""
        return self._points.anybody("varies", pod) or self._varies_on_node(pod)

    def _varies_on_node(self, pod: PodRecord) -> bool:
        return self._points.anybody("varies_on_node", pod)

    @property
    def identifies(self) -> bool:
        """Whether pods of one class may have different identities."""
        return bool(self._points.all("identity"))

    def identity(self, pod: PodRecord) -> Hashable:
        """Pods with the same identity have the same predicates and scores."""
        methods = self._points.all("identity")
        if not methods:
            return pod.pod_class.id
        return (pod.pod_class.id, *[self._answer_of_identity(method, pod) for method in methods])

    def _answer_of_identity(self, method: answers.Method, pod: PodRecord) -> Hashable:
        """What a plugin says of a pod's identity; who cannot be told from others shares nothing with them."""
        try:
            return cast(Hashable, answers.hashable(method, method(pod)))
        except BaseException as error:
            self._points.tell("identity", method, error)
            return _ALONE, pod.uid

    def follows(self, pod: PodRecord) -> bool:
        """Whether placements raise the scores of their neighbours."""
        return any(True for _ in self._neighbourhoods(pod))

    def together(self, pod: PodRecord, nodes: list[int]) -> list[int]:
        """The nodes up to the first that is in another neighbourhood than the one before it.

        While placements stay in one neighbourhood its scores only gain on the others: what was best with the scores of
        the beginning is best. Beyond, the scores have to be asked anew.
        """
        if len(nodes) < 2:
            return nodes
        for of_node in self._neighbourhoods(pod):
            left = np.flatnonzero(of_node[nodes] != of_node[nodes[0]])
            nodes = nodes[: left[0]] if len(left) else nodes
        return nodes

    def _neighbourhoods(self, pod: PodRecord) -> Iterator[Rows]:
        for method in self._points.all("neighbourhoods"):
            try:
                found = answers.rows(method, method(pod), len(self.nodes))
            except BaseException as error:
                self._points.leave_out("neighbourhoods", method, error)
                continue
            if found is not None:
                yield found

    def feasible(self, pod: PodRecord, *, hopeful: bool = False) -> Mask:
        """The nodes that all predicates pass, room not considered.

        `hopeful` adds those that refuse the pod only for causes that go when pods go.
        """
        return self.passing(pod, self.nodes.view(self.nodes.rows), hopeful=hopeful)

    def passing(self, pod: PodRecord, view: NodeView, *, hopeful: bool = False) -> Mask:
        """The same of the nodes of a view, shape (nodes of the view,)."""
        passed = np.ones(len(view), np.bool_)
        for cause, mask in self._filters(pod, view):
            if not (hopeful and isinstance(cause, Passing)):
                passed &= mask
        return passed

    def possible(self, pod: PodRecord) -> Rows:
        """The rows of the nodes that all predicates pass, or fail for causes that go when pods go; room aside."""
        return np.flatnonzero(self.feasible(pod, hopeful=True)) if self.varies(pod) else self._known_board(pod).rows

    def causes(self, pod: PodRecord) -> list[tuple[str, Mask]]:
        """Why nodes are not feasible: each cause with the nodes that fail it first."""
        left = np.ones(len(self.nodes), np.bool_)
        out = []
        for cause, mask in self._filters(pod, self.nodes.view(self.nodes.rows)):
            failed = left & ~mask
            if failed.any():
                out.append((cause, failed))
            left &= mask
        return out

    def _filters(self, pod: PodRecord, view: NodeView) -> Iterator[tuple[str, Mask]]:
        self.steps += len(view) + _CALL
        for method in self._points.all("predicate"):
            try:
                # At once: what is raised where the pairs are read is not the plugin's.
                pairs = list(answers.filters(method, method(pod, view), len(view)))
            except BaseException as error:
                refusal = self._points.refusal("predicate", method, error, (pod,))
                pairs = [(Failed(refusal.message), np.zeros(len(view), np.bool_))]
            yield from pairs

    def score(self, pod: PodRecord, view: NodeView) -> Vector:
        """The sum of the scores that depend on each node alone, shape (nodes of the view,)."""
        self.nodes_scored += len(view)
        self.steps += len(view) + _CALL
        total = self._sum("node_order", pod, view)
        return np.zeros(len(view)) if total is None else total

    @property
    def scores_sets(self) -> bool:
        """Whether anybody's scores depend on the set of nodes."""
        return bool(self._points.all("batch_node_order"))

    def set_scores(self, pod: PodRecord, rows: Rows) -> Vector | None:
        """The sum of the scores that depend on the set of nodes, shape (rows,); None when they are all equal."""
        if not self.scores_sets:
            return None
        return self._sum("batch_node_order", pod, self.nodes.view(rows))

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

    def _sum(self, point: str, pod: PodRecord, view: NodeView) -> Vector | None:
        """The sum of the scores of all plugins; None when nobody prefers any node."""
        total: Vector | None = None
        own = False
        for method in self._points.all(point):
            try:
                scores = method(pod, view)
                if scores is None:
                    continue
                if type(scores) is not np.ndarray or scores.dtype is not _FLOAT or scores.shape != view.rows.shape:
                    scores = answers.scores(method, scores, len(view))
            except BaseException as error:
                self._points.leave_out(point, method, error)
                continue
            if total is None:
                total = scores
            else:
                total, own = np.add(total, scores, out=total if own else None), True
        if total is not None and not answers.numbers(total):
            self._blame(point, pod, view)
            return self._sum(point, pod, view)
        # the only one may belong to the plugin
        return total if total is None or own else total.copy()

    def _blame(self, point: str, pod: PodRecord, view: NodeView) -> None:
        """Leave out who scores with what is no number, or all where only the sum is none."""
        methods = self._points.all(point)
        for method in methods:
            try:
                scores = method(pod, view)
                if scores is not None:
                    answers.finite(method, scores)
            except BaseException as error:
                self._points.leave_out(point, method, error)
        if methods == self._points.all(point):
            for method in methods:
                self._points.leave_out(point, method, AnswerError(method, "scores whose sum is a number", None))

    # -- choosing --------------------------------------------------------------------------------------------------

    def board(self, pod: PodRecord) -> Board:
        """The board of a pod's class, up to date."""
        return self._new_board(pod) if self.varies(pod) else self._known_board(pod)

    def _best_board(self, pod: PodRecord) -> Board:
        """The board to choose from, with as much of it kept as may be."""
        if self._points.anybody("varies", pod):
            return self._new_board(pod)
        return self._known_board(pod, local=self._varies_on_node(pod))

    def forget(self) -> None:
        """Drop what was worked out by the answers of a plugin that was left out."""
        self._boards.clear()
        self._asked.clear()
        self._kept, self._once = 0, None

    def _known_board(self, pod: PodRecord, *, local: bool = False, refresh: bool = True) -> Board:
        key, boards = self.identity(pod), self._boards
        if local:
            # What others ask of a pod, and what it asks of those near it, tells it apart from its class.
            key = key, pod.namespace, pod.job, frozenset(pod.labels.items())
        board = boards.get(key)
        if board is None:
            board = _LocalBoard(self, pod, self._request_of(pod)) if local else self._new_board(pod)
            self._make_place(key, board)
        else:
            if refresh:
                board.refresh()
            if key == self._once:
                self._once = None
            del boards[key]
        boards[key] = board
        return board

    @property
    def boards_kept(self) -> int:
        """How many boards there are, for reports of work done."""
        return len(self._boards)

    def _make_place(self, key: Hashable, board: Board) -> None:
        """Drop boards for a new one: that of the last class, if it was asked for but once, and the oldest."""
        boards = self._boards
        self._kept += len(board.rows)
        if self._once in boards:
            self._kept -= len(boards.pop(self._once).rows)
        while self._kept > _MOST_KEPT and boards:
            self._kept -= len(boards.pop(next(iter(boards))).rows)
        self._once = None if key in self._asked else key
        self._asked.add(key)

    def _new_board(self, pod: PodRecord, *, hopeful: bool = False) -> Board:
        mask = self.feasible(pod, hopeful=hopeful)
        # sooner than all()
        everywhere = len(mask) and mask[mask.argmin()]
        return Board(self, pod, self._request_of(pod), self.nodes.rows if everywhere else mask.nonzero()[0])

    def best(self, pod: PodRecord, within: Mask | None = None, *, hopeful: bool = False) -> tuple[int, bool] | None:
        """The node for a pod and whether it has room now (True) or only later; None when there is no node.

        `hopeful` also takes nodes that refuse the pod only for causes that go when pods go.
        """
        board = self._new_board(pod, hopeful=True) if hopeful and self.varies(pod) else self._best_board(pod)
        at = self._candidates(board, board.fits_idle, within)
        now = len(at) > 0
        if not now:
            at = self._candidates(board, board.fits_future, within)
        node = self._choose(pod, board, at) if len(at) else None
        return None if node is None else (node, now)

    def best_on(self, pod: PodRecord, node: int) -> tuple[int, bool] | None:
        """The same when there is only one node to choose from."""
        only = np.zeros(len(self.nodes), np.bool_)
        only[node] = True
        return self.best(pod, only)

    def best_effort(self, pod: PodRecord, within: Mask | None = None) -> int | None:
        """The node for a pod that requests nothing: all that it needs is to be one of the node's pods."""
        board = self._best_board(pod)
        at = self._candidates(board, board.places(), within)
        return self._choose(pod, board, at) if len(at) else None

    def batch(self, pod: PodRecord, count: int, within: Mask | None = None) -> list[int]:
        """Nodes with room now for up to `count` pods of one class, in order of placement.

        May return fewer than fit: the caller applies them and asks again until nothing comes back.
        """
        varies = self._points.anybody("varies", pod)
        local = not varies and self._varies_on_node(pod)
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
        if count == 1:
            node = self._choose(pod, board, at)
            return [] if node is None else [node]
        return self.in_one_pass(board, at, count)

    def in_one_pass(self, board: Board, at: Rows, count: int) -> list[int]:
        """Nodes for up to `count` pods of a board's class, of those at some of its indices, in order of placement."""
        offsets = self.set_scores(board.pod, board.rows[at]) if board.relative else None
        scores = board.scores[at] if offsets is None else board.scores[at] + offsets
        candidates = highest(scores, count)
        batch = Batch(
            self.nodes,
            partial(self.score, board.pod),
            board.request,
            board.scoring,
            board.rows[at[candidates]],
            None if offsets is None else offsets[candidates],
        )
        return batch.run(scores[candidates], count)

    def by_amounts(self, pod: PodRecord) -> bool:
        """Whether nodes with the same amounts have the same score."""
        return self._points.everybody("by_amounts", "node_order", pod)

    def one_by_one(self, pod: PodRecord) -> bool:
        """Whether a placement changes the score of its node in more than the amounts."""
        return self._points.anybody("one_by_one", pod)

    def _candidates(self, board: Board, room: Mask, within: Mask | None) -> Rows:
        if within is not None:
            room = room & within[board.rows]
        return np.flatnonzero(room)

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
