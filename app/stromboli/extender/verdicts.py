"""What is answered about a pod: all nodes judged at once, the causes named one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stromboli.api.reasons import Reason
from stromboli.api.resources import TOLERANCE, Rows, Vector, compared, fits
from stromboli.extender.evictions import evictable
from stromboli.extender.published import Published
from stromboli.framework.kernel import Board
from stromboli.framework.nodes import Nodes
from stromboli.framework.reasons import resource_name
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import HELD, priorities

#: kube-scheduler's extender scores go from 0 to this
MAX_SCORE = 10

Codes = npt.NDArray[np.int16]
_PASSES = -1


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a node is refused, and whether evicting pods from it may help."""

    message: str
    resolvable: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """`codes` gives for each node the index of its cause, -1 for the nodes that pass; shape (names,)."""

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
    """The answer about one pod, for any nodes by name."""

    def judge(self, names: Sequence[str]) -> Judgement:
        """Which of the nodes the pod may go to."""
        ...

    def scores(self, names: Sequence[str]) -> list[int]:
        """How good each of the nodes is, from 0 to MAX_SCORE."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod gets no node, for one reason."""

    reason: Reason

    def judge(self, names: Sequence[str]) -> Judgement:
        return Judgement(np.zeros(len(names), np.int16), [Cause(f"{self.reason.reason}: {self.reason.message}")])

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
        return Judgement(codes, [Cause(f"PlacedElsewhere: the pod gets its place on {self.node}")])

    def scores(self, names: Sequence[str]) -> list[int]:
        return [MAX_SCORE * (name == self.node) for name in names]


class Choice:
    """The pod may have any node that its predicates pass and that has room."""

    def __init__(self, session: Session, pod: PodRecord) -> None:
        self._session = session
        self._pod = pod
        self._board = session.kernel.board(pod)
        self._room = _has_room(self._board)

    def judge(self, names: Sequence[str]) -> Judgement:
        session, n, rows = self._session, len(self._session.view.nodes), self._rows(names)
        causes = [Cause("NodeNotKnown: no session has seen this node yet")]
        #: one more than there are nodes: unknown nodes have index -1
        codes = np.zeros(n + 1, np.int16)
        for message, failed in session.kernel.causes(self._pod):
            codes[:n][failed] = len(causes)
            causes.append(Cause(f"NoMatchingNode: {message}"))
        board = self._board
        codes[board.rows[self._room]] = _PASSES
        full = np.zeros(n + 1, np.bool_)
        full[board.rows[~self._room]] = True
        # Only of the nodes in question, which may be few of all.
        asked = rows[full[rows]]
        lacking = _first_lacking(board, session.view.nodes, asked)
        clearable = self._clearable(asked)
        for column in np.flatnonzero(np.bincount(lacking)).tolist():
            name = resource_name(session.view.dimensions, self._pod, column)
            for resolvable in (True, False):
                found = asked[(lacking == column) & (clearable == resolvable)]
                if len(found):
                    codes[found] = len(causes)
                    causes.append(Cause(f"Unschedulable: Insufficient {name}", resolvable))
        return Judgement(codes[rows], causes)

    def _clearable(self, nodes: Rows) -> npt.NDArray[np.bool_]:
        """Whether the pod would have room on each node without less important pods that may be evicted, (nodes,)."""
        session, pod = self._session, self._pod
        if not len(nodes) or pod.pod_class.spec.preemption_policy == "Never":
            return np.zeros(len(nodes), np.bool_)
        view, column = session.view, np.full(len(session.view.nodes) + 1, -1, np.intp)
        column[nodes] = np.arange(len(nodes))
        pods = view.pods
        less = priorities(view.snapshot.pod_facts) < (pod.spec_priority or 0)
        rows = np.flatnonzero(np.isin(pods.state, HELD) & less & (column[pods.node] >= 0))
        room = session.view.nodes.idle[:, nodes].copy()
        for victim in evictable(session, view.records(rows)):
            room[:, column[pods.node[victim.row]]] += view.request(victim)
        return fits(self._board.request, room, view.nodes.always)

    def scores(self, names: Sequence[str]) -> list[int]:
        board, rows = self._board, self._rows(names)
        total = np.full(len(self._session.view.nodes) + 1, np.nan)
        total[board.rows[self._room]] = board.scores[self._room]
        known = np.flatnonzero(~np.isnan(total[rows]))
        out = np.zeros(len(names), np.int64)
        if len(known):
            of_set = self._session.kernel.set_scores(self._pod, rows[known])
            own = total[rows[known]]
            out[known] = _scaled(own if of_set is None else own + of_set)
        scores: list[int] = out.tolist()
        return scores

    def _rows(self, names: Sequence[str]) -> Rows:
        index = self._session.view.nodes.facts.index
        return np.fromiter(map(index.get, names, repeat(-1)), np.intp, len(names))


def verdict(published: Published, pod: PodRecord) -> Verdict:
    """What the last session means for a pod that it saw."""
    node = published.place(pod)
    if node is not None:
        return Placed(node)
    objection = published.objection(pod)
    return Choice(published.session, pod) if objection is None else Refused(objection)


def _has_room(board: Board) -> npt.NDArray[np.bool_]:
    """Whether each node of a board has room now; a pod that requests nothing only has to be one of the node's pods."""
    return board.places() if board.pod.pod_class.best_effort else board.fits_idle


def _first_lacking(board: Board, nodes: Nodes, rows: Rows) -> Rows:
    """The first column in which nodes lack room for the pod of a board, shape (rows,)."""
    request, always = board.request, () if board.pod.pod_class.best_effort else nodes.always
    short = (nodes.idle[:, rows] <= request[:, None] - TOLERANCE) & compared(request, always)[:, None]
    first: Rows = np.argmax(short, axis=0)
    return first


def _scaled(scores: Vector) -> npt.NDArray[np.int64]:
    """Scores stretched to 0 … MAX_SCORE; equal ones are all the best."""
    low, high = scores.min(), scores.max()
    if low == high:
        return np.full(len(scores), MAX_SCORE)
    scaled: npt.NDArray[np.int64] = np.floor((scores - low) / (high - low) * MAX_SCORE).astype(np.int64)
    return scaled
