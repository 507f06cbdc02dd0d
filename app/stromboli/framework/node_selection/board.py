"""The nodes for the pods of one identity class: which pass, which it fits, their scores, and the best.

A `Board` is made with one question to plugins about all nodes. Afterwards only nodes that changed are looked at again.
It is the plain way; `fast_board` has the same answers with less work.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import PODS, TOLERANCE, Mask, Rows, Vector, copies_that_fit, fits
from stromboli.framework.cluster.nodes import Changes, first_best
from stromboli.framework.runtime.node_questions import NodeQuestions
from stromboli.state.pods import PodRecord

#: if more than this share of the nodes changed, a board is recomputed: whole columns are then faster
#: computed than picked
_REFRESH_ALL = 0.25


class Board:
    """Feasibility, free capacity and scores. Arrays have shape (feasible nodes,)."""

    __slots__ = (
        "_ask",
        "_changes",
        "_copies",
        "_fits_future",
        "_full",
        "_nodes",
        "_scores",
        "fits_idle",
        "pod",
        "relative",
        "request",
        "rows",
        "scoring",
    )

    def __init__(self, ask: NodeQuestions, pod: PodRecord, request: Vector, rows: Rows) -> None:
        self._ask = ask
        self._nodes = ask.nodes
        self.pod = pod
        self.request = request
        self.scoring = pod.pod_class.scoring_request
        #: nodes that the predicates pass, ascending
        self.rows = rows
        self._full = len(rows) == len(ask.nodes)
        #: where a pod fits now
        self.fits_idle: Mask
        #: these are made when they are first asked for
        self._scores: Vector | None
        self._fits_future: Mask | None
        self._copies: Vector | None
        self._compute()
        self._changes = Changes(ask.nodes)
        #: whether scores depend on which nodes there are to choose from, or on what their neighbours got
        self.relative = self._is_relative()

    def _is_relative(self) -> bool:
        ask, pod, rows = self._ask, self.pod, self.rows
        return len(rows) > 1 and (ask.follows(pod) or ask.set_scores(pod, rows) is not None)

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def scores(self) -> Vector:
        """The scores, made when they are first read: never while it fits on no node."""
        if self._scores is None:
            self._scores = self._score_all()
        return self._scores

    def _score_all(self) -> Vector:
        return self._ask.score(self.pod, self._nodes.view(self.rows))

    @property
    def fits_future(self) -> Mask:
        """The nodes that the pod fits on once terminating pods have gone and promised places are taken."""
        if self._fits_future is None:
            self._fits_future = fits(self.request, self._nodes.future_idle(self.rows), self._nodes.always)
        return self._fits_future

    @property
    def copies(self) -> Vector:
        """Number of pods that fit on each node, now or when terminating pods have gone; may be negative."""
        if self._copies is None:
            self._copies = self._count_copies(self.rows)
        return self._copies

    def places(self) -> Mask:
        """The nodes that have room for one more pod by number, whatever else the pod requests."""
        places: Mask = self._nodes.idle[PODS, self.rows] >= 1 - TOLERANCE
        return places

    def _count_copies(self, rows: Rows) -> Vector:
        nodes = self._nodes
        now, later = (
            copies_that_fit(self.request, free, nodes.always) for free in (nodes.idle[:, rows], nodes.future_idle(rows))
        )
        return np.maximum(now, later)

    # -- the best ----------------------------------------------------------------------------------------------------

    def next(self) -> int | None:
        """The best node on which one pod fits now, None when there is none; the board need not be up to date."""
        self.refresh()
        top = self._top()
        return None if top is None else self.rows.item(top)

    def _top(self) -> int | None:
        """The index in `rows` of the best node on which it fits now, None when there is none."""
        return first_best(self.scores, self.fits_idle) if self.fits_idle.any() else None

    # -- nodes that changed ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look again at the nodes that changed since the last call."""
        changed = self._changes.in_order()
        if not changed:
            return
        at, rows = (changed, changed) if self._full else self._known(changed)
        self._ask.nodes_rescored += len(at)
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

    def _update(self, at: list[int], rows: list[int]) -> None:
        """Look again at some nodes, by their indices and rows."""
        self._update_in_arrays(np.array(at), np.array(rows))

    def _update_in_arrays(self, at: Rows, rows: Rows) -> None:
        nodes = self._nodes
        self.fits_idle[at] = fits(self.request, nodes.available(rows), nodes.always)
        if self._fits_future is not None:
            self._fits_future[at] = fits(self.request, nodes.future_idle(rows), nodes.always)
        if self._copies is not None:
            self._copies[at] = self._count_copies(rows)
        if self._scores is not None:
            self._scores[at] = self._ask.score(self.pod, nodes.view(rows))

    def _compute(self) -> None:
        nodes = self._nodes
        self.fits_idle = fits(self.request, nodes.available(self.rows), nodes.always)
        self._fits_future = self._copies = self._scores = None
