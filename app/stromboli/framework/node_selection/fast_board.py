"""A board for a class that is asked for again and again, as elastic jobs do: the answers of `Board`, with less work.

Three optimisations surround the plain board, none of which changes an answer: a ranking of the nodes (`ranking`),
scores cached by amounts (`amounts`), and choices made ahead of time (`lookahead`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector, fits
from stromboli.framework.cluster.nodes import first_best
from stromboli.framework.node_selection.amounts import MOST_LOOKED_UP, ByAmounts
from stromboli.framework.node_selection.batch import Batch, highest
from stromboli.framework.node_selection.board import Board
from stromboli.framework.node_selection.lookahead import Lookahead
from stromboli.framework.node_selection.ranking import Ranking
from stromboli.framework.runtime.node_questions import NodeQuestions
from stromboli.state.pods import PodRecord

#: single placements of a class until its nodes are worth a ranking
_RANKED_AFTER = 3


class FastBoard(Board):
    """A board that ranks nodes, knows scores by amounts and chooses ahead."""

    __slots__ = ("_by_amounts", "_lookahead", "_ranking", "_singles")

    def __init__(self, ask: NodeQuestions, pod: PodRecord, request: Vector, rows: Rows) -> None:
        self._ranking: Ranking | None = None
        self._lookahead: Lookahead | None = None
        #: number of searches for a best node
        self._singles = 0
        self._by_amounts = ByAmounts(ask, pod, request)
        super().__init__(ask, pod, request, rows)

    # -- the best ----------------------------------------------------------------------------------------------------

    def next(self) -> int | None:
        """The best node on which one pod fits now, None when there is none; the board need not be up to date."""
        if self._lookahead is not None:
            return self._next_ahead(self._lookahead)
        node = super().next()
        # Before the second pod nothing is known of others of the class; by amounts a choice takes few steps anyway.
        if node is not None and self._singles > 1 and not self._by_amounts.applies():
            self._lookahead = Lookahead(self._nodes, self.request, self.scoring, node)
        return node

    def _next_ahead(self, lookahead: Lookahead) -> int | None:
        node = lookahead.next()
        if node is None:
            self.refresh()
            node = lookahead.choose(self._several, self._one)
            if node is None:
                self._lookahead = None
        return node

    def _one(self) -> list[int]:
        top = self._top()
        return [] if top is None else [self.rows.item(top)]

    def _several(self, count: int) -> list[int] | None:
        """Choices for up to `count` pods; None if the effect of placements on scores is not known."""
        return self.in_one_pass(np.flatnonzero(self.fits_idle), count) if self._foresees() else None

    def _foresees(self) -> bool:
        """Whether it is known what a placement of the class does to the score of its node."""
        return not self.relative and not self._ask.one_by_one(self.pod)

    def _top(self) -> int | None:
        """The index in `rows` of the best node on which it fits now, None when there is none."""
        if self._ranking is None:
            if not self.fits_idle.any():
                return None
            self._singles += 1
            if self._singles < _RANKED_AFTER:
                return first_best(self.scores, self.fits_idle)
            self._ranking = Ranking(self.scores, self.fits_idle)
        return self._ranking.first(self.scores, self.fits_idle)

    def in_one_pass(self, at: Rows, count: int) -> list[int]:
        """Nodes for up to `count` pods of the class, of those at some indices, in order of placement; see `batch`."""
        offsets = self._ask.set_scores(self.pod, self.rows[at]) if self.relative else None
        scores = self.scores[at] if offsets is None else self.scores[at] + offsets
        candidates = highest(scores, count)
        batch = Batch(
            self._nodes,
            partial(self._ask.score, self.pod),
            self.request,
            self.scoring,
            self.rows[at[candidates]],
            None if offsets is None else offsets[candidates],
        )
        return batch.run(scores[candidates], count)

    # -- nodes that changed ------------------------------------------------------------------------------------------

    def _update(self, at: list[int], rows: list[int]) -> None:
        """Look again at some nodes, by their indices and rows."""
        ranking, scores = self._ranking, self._scores
        only_scores = scores is not None and self._fits_future is None and self._copies is None
        if scores is None or not only_scores or len(at) > MOST_LOOKED_UP or not self._by_amounts.applies():
            super()._update(at, rows)
            if ranking is not None and scores is not None:
                for index, score, fit in zip(at, scores[at].tolist(), self.fits_idle[at].tolist(), strict=True):
                    if fit:
                        ranking.changed(index, score)
            return
        for index, (fit, score) in zip(at, self._by_amounts.of(rows), strict=True):
            self.fits_idle[index], scores[index] = fit, score
            if fit and ranking is not None:
                ranking.changed(index, score)

    def _compute(self) -> None:
        super()._compute()
        self._ranking = None


class LocalBoard(FastBoard):
    """The board of a pod whose predicates change where pods come or go (`varies_on_node`).

    It has all nodes, and those that do not pass count as nodes on which it does not fit.
    """

    __slots__ = ("_passes",)

    def __init__(self, ask: NodeQuestions, pod: PodRecord, request: Vector) -> None:
        super().__init__(ask, pod, request, ask.nodes.rows)

    def _is_relative(self) -> bool:
        # Other nodes may come to pass that make it so.
        return self._ask.scores_sets

    def _foresees(self) -> bool:
        return False

    @property
    def fits_future(self) -> Mask:
        """The nodes that the pod fits on once terminating pods have gone and promised places are taken."""
        if self._fits_future is None:
            self._fits_future = super().fits_future & self._passes
        return self._fits_future

    def places(self) -> Mask:
        """The nodes that have room for one more pod by number, whatever else the pod requests."""
        return super().places() & self._passes

    def _update(self, at: list[int], rows: list[int]) -> None:
        passes = self._ask.passing(self.pod, self._nodes.view(np.array(rows)))
        self._passes[at] = passes
        self.fits_idle[at] = False
        if self._fits_future is not None:
            self._fits_future[at] = False
        passing = [row for row, passed in zip(rows, passes.tolist(), strict=True) if passed]
        if passing:
            super()._update(passing, passing)

    def _compute(self) -> None:
        ask, nodes = self._ask, self._nodes
        self._passes = ask.passing(self.pod, nodes.view(self.rows))
        self.fits_idle = fits(self.request, nodes.available(self.rows), nodes.always) & self._passes
        self._fits_future = self._copies = self._scores = self._ranking = None

    def _score_all(self) -> Vector:
        if self._passes.all():
            return super()._score_all()
        rows = np.flatnonzero(self._passes)
        scores = np.full(len(self.rows), -np.inf)
        scores[rows] = self._ask.score(self.pod, self._nodes.view(rows))
        return scores
