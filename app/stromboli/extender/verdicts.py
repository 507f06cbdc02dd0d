"""Verdicts about a pod: all nodes judged at once, with the cause of each refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stromboli.api.reasons import Reason
from stromboli.api.resources import TOLERANCE, Mask, Rows, Vector, compared
from stromboli.extender.published import Published
from stromboli.framework.cluster.nodes import Nodes
from stromboli.framework.node_selection.board import Board
from stromboli.framework.reasons import resource_name
from stromboli.state.pods import PodRecord

#: upper bound of kube-scheduler's extender scores
MAX_SCORE = 10

#: why nodes are refused that could be cleared if kube-scheduler evicted pods of several nodes at once
_BY_GANGS = "HeldByGangs"
_IN_PART = "; this is held by gangs that span other nodes, too: kube-scheduler would evict only their pods here"

Codes = npt.NDArray[np.int16]
_PASSES = -1


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a node is refused, and whether evictions may help."""

    message: str
    resolvable: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """`codes` has the index of each node's cause, -1 for nodes that pass; shape (names,)."""

    codes: Codes
    causes: Sequence[Cause]

    @property
    def passing(self) -> list[bool]:
        """Whether each node passes."""
        out: list[bool] = (self.codes == _PASSES).tolist()
        return out

    def refuses_all(self) -> bool:
        """Whether no node passes."""
        return not bool((self.codes == _PASSES).any())

    def refused(self, names: Sequence[str], cause: int) -> list[str]:
        """The nodes that one cause rules out."""
        return list(compress(names, (self.codes == cause).tolist()))


class Verdict(Protocol):
    """The verdict about one pod, for any nodes by name."""

    def judge(self, names: Sequence[str]) -> Judgement:
        """The nodes among `names` that the pod may use, and why not the others."""
        ...

    def scores(self, names: Sequence[str]) -> list[int]:
        """The score of each node, from 0 to MAX_SCORE."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """No node is available to the pod, for one reason."""

    reason: Reason
    #: which nodes, by name, evictions may make available nevertheless, or might if gangs could lose pods of one node;
    #: None for none
    clearable: Callable[[Sequence[str], bool], Mask] | None = None

    def judge(self, names: Sequence[str]) -> Judgement:
        message = f"{self.reason.reason}: {self.reason.message}"
        codes = np.zeros(len(names), np.int16)
        if self.clearable is not None:
            codes[self.clearable(names, False)] = 1
            if not codes.any():
                codes[self.clearable(names, True)] = 2
        by_gangs = Cause(f"{_BY_GANGS}: {self.reason.message}{_IN_PART}")
        return Judgement(codes, [Cause(message), Cause(message, resolvable=True), by_gangs])

    def scores(self, names: Sequence[str]) -> list[int]:
        return [0] * len(names)


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod gets the node that was decided, and no other."""

    node: str

    def judge(self, names: Sequence[str]) -> Judgement:
        codes = np.zeros(len(names), np.int16)
        if self.node in names:
            codes[names.index(self.node)] = _PASSES
        return Judgement(codes, [Cause(f"PlacedElsewhere: the pod is assigned to {self.node}")])

    def scores(self, names: Sequence[str]) -> list[int]:
        return [MAX_SCORE * (name == self.node) for name in names]


class Choice:
    """The pod may use any node that passes its predicates and that it fits on."""

    def __init__(self, published: Published, pod: PodRecord) -> None:
        self._published = published
        self._session = session = published.session
        self._pod = pod
        self._board = session.kernel.board(pod)
        self._fits = _fits_now(self._board)

    def judge(self, names: Sequence[str]) -> Judgement:
        session, n, rows = self._session, len(self._session.view.nodes), self._published.rows(names)
        causes = [Cause("NodeNotKnown: no session has seen this node yet")]
        #: one more entry than nodes, since unknown nodes have index -1
        codes = np.zeros(n + 1, np.int16)
        for message, failed in session.kernel.causes(self._pod):
            codes[:n][failed] = len(causes)
            causes.append(Cause(f"NoMatchingNode: {message}"))
        board = self._board
        codes[board.rows[self._fits]] = _PASSES
        full = np.zeros(n + 1, np.bool_)
        full[board.rows[~self._fits]] = True
        # Only for the nodes in question, which may be few.
        asked = rows[full[rows]]
        lacking = _first_lacking(board, session.view.nodes, asked)
        clearable = self._published.clearable(self._pod, asked)
        # Told where no node can be cleared, as it costs as much as finding one.
        by_gangs = np.zeros_like(clearable)
        if not clearable.any():
            by_gangs = self._published.clearable(self._pod, asked, in_part=True)
        for column in np.flatnonzero(np.bincount(lacking)).tolist():
            name = resource_name(session.view.dimensions, self._pod, column)
            of_column = lacking == column
            for some, cause in (
                (clearable, Cause(f"Unschedulable: Insufficient {name}", resolvable=True)),
                (by_gangs, Cause(f"{_BY_GANGS}: Insufficient {name}{_IN_PART}")),
                (~clearable & ~by_gangs, Cause(f"Unschedulable: Insufficient {name}")),
            ):
                found = asked[of_column & some]
                if len(found):
                    codes[found] = len(causes)
                    causes.append(cause)
        return Judgement(codes[rows], causes)

    def scores(self, names: Sequence[str]) -> list[int]:
        board, rows = self._board, self._published.rows(names)
        total = np.full(len(self._session.view.nodes) + 1, np.nan)
        total[board.rows[self._fits]] = board.scores[self._fits]
        known = np.flatnonzero(~np.isnan(total[rows]))
        out = np.zeros(len(names), np.int64)
        if len(known):
            of_set = self._session.kernel.set_scores(self._pod, rows[known])
            own = total[rows[known]]
            out[known] = _scaled(own if of_set is None else own + of_set)
        scores: list[int] = out.tolist()
        return scores


def verdict(published: Published, pod: PodRecord) -> Verdict:
    """The verdict of the last session about a pod."""
    node = published.place(pod)
    if node is not None:
        return Placed(node)
    objection = published.objection(pod)
    if objection is None:
        return Choice(published, pod)
    return Refused(objection, lambda names, in_part: published.clearable(pod, published.rows(names), in_part=in_part))


def _fits_now(board: Board) -> npt.NDArray[np.bool_]:
    """Whether the pod fits on each node of a board now; a best-effort pod only counts as one of the node's pods."""
    return board.places() if board.pod.pod_class.best_effort else board.fits_idle


def _first_lacking(board: Board, nodes: Nodes, rows: Rows) -> Rows:
    """The first resource, by column, that each node lacks for the pod, shape (rows,)."""
    request, always = board.request, () if board.pod.pod_class.best_effort else nodes.always
    short = (nodes.idle[:, rows] <= request[:, None] - TOLERANCE) & compared(request, always)[:, None]
    first: Rows = np.argmax(short, axis=0)
    return first


def _scaled(scores: Vector) -> npt.NDArray[np.int64]:
    """Scores scaled to 0 … MAX_SCORE; if all are equal, all get the maximum."""
    low, high = scores.min(), scores.max()
    if low == high:
        return np.full(len(scores), MAX_SCORE)
    scaled: npt.NDArray[np.int64] = np.floor((scores - low) / (high - low) * MAX_SCORE).astype(np.int64)
    return scaled
