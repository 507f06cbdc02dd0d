"""Predicts the score of a job with sub groups in every HyperNode from a trial in one of them.

A trial places the groups of a job one after the other. Which groups take turns, and with how many pods, follows from
counts alone as long as no pod is refused or waits. So the turns of one trial are those of every HyperNode that is
certain to fit all pods, and there only amounts are updated, turn by turn and in all HyperNodes at once, without placing
pods. A HyperNode is certain to fit so many pods if its nodes fit as many of the largest of them: while fewer are
placed, one more fits on some node.

The predicted score equals that of an actual trial, to the bit. If anything else might happen, nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows, Vector, copies_that_fit
from stromboli.framework.cluster.job import NOWHERE, SubJob
from stromboli.framework.plugin.operation import Kind
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement.domains import copies_on_nodes, gradients
from stromboli.state.pods import PodRecord


@dataclass(slots=True)
class Turn:
    """A group's turn in a trial."""

    sub_job: SubJob
    #: the pods that got places
    pods: Sequence[PodRecord]
    #: number of places that a HyperNode needed to be tried
    least: int

    @classmethod
    def of(cls, statement: Statement, sub_job: SubJob, least: int, *, tried: int) -> Turn | None:
        """The turn that ended in a statement; None when not every one of the pods tried got its place at once."""
        pods = [pod for each in statement.operations if each.kind is Kind.Allocate for pod in each.pods]
        return cls(sub_job, pods, least) if len(pods) == tried else None


def predict_scores(session: Session, turns: Sequence[Turn], roots: Rows) -> Vector:
    """The score of a job in each of some HyperNodes by the turns of a trial, shape (HyperNodes,).

    Infinite where only a trial can tell. Nothing of the job is placed meanwhile.
    """
    tree = session.view.topology
    unknown = np.full(len(roots), np.inf)
    pods = [pod for turn in turns for pod in turn.pods]
    if not len(roots) or _may_be_refused(session, turns, pods):
        return unknown
    lowest = int(tree.tiers.min())
    if not tree.disjoint or len(set(tree.tiers[roots].tolist())) > 1:
        return unknown
    if tree.tiers[roots[0]] > lowest and not _once_each(turns):
        # Where a group's pods already are has a say in where the others go.
        return unknown
    course = _Prediction(session, roots, pods)
    return course.scores if all(course.take(turn) for turn in turns) else unknown


def _may_be_refused(session: Session, turns: Iterable[Turn], pods: Iterable[PodRecord]) -> bool:
    """Whether anything other than capacity may keep a pod from a node."""
    if session.ask.may_refuse or session.view.shard is not None:
        return True
    if any(turn.sub_job.nominated_hyper_node != NOWHERE for turn in turns):
        return True
    return any(pod.nominated_node or session.kernel.varies(pod) for pod in pods)


def _once_each(turns: Sequence[Turn]) -> bool:
    """Whether each group has one turn and holds nothing before."""
    groups = {turn.sub_job.uid: turn.sub_job for turn in turns}
    return len(groups) == len(turns) and all(group.counts[PodState.Pending] == group.size for group in groups.values())


class _Prediction:
    """The course of a job's turns in several HyperNodes of one tier at once."""

    def __init__(self, session: Session, roots: Rows, pods: Sequence[PodRecord]) -> None:
        self._session = session
        tree = session.view.topology
        self._number = len(roots)
        #: HyperNodes of the lowest tier below them, and which of `roots` each is in, shape (leaves,)
        below = [tree.below(root) for root in roots.tolist()]
        leaves = [each[tree.tiers[each] == tree.tiers.min()] for each in below]
        self._leaves: Rows = np.concatenate(leaves)
        self._of_root: Rows = np.repeat(np.arange(len(roots)), [len(each) for each in leaves])
        self._roots_are_leaves = bool((tree.tiers[roots] == tree.tiers.min()).all())
        by_class: dict[Hashable, PodRecord] = {session.kernel.identity(pod): pod for pod in pods}
        self._alike = len(by_class) == 1
        #: upper bound on pods of each class that fit in leaves, and lower bound on any, shape (leaves,)
        self._at_most = {key: self._copies(pod) for key, pod in by_class.items()}
        self._sure = self._sure_copies(list(by_class.values()))
        #: pods that turns have placed in leaves so far
        self._placed: Vector = np.zeros(len(self._leaves))
        self._requested = np.zeros((len(session.view.dimensions), len(self._leaves)))
        #: infinite where it is unknown
        self.scores: Vector = np.zeros(len(roots))

    def take(self, turn: Turn) -> bool:
        """Follow a turn; False when it is foretold nowhere."""
        session, count = self._session, len(turn.pods)
        scores = session.ask.hyper_node_scores_with(turn.sub_job, self._leaves, self._requested)
        offered = self._offered(turn.sub_job)
        if scores is None or offered is None or count < turn.least:
            return False
        chosen = self._first_of_each(np.flatnonzero(offered & (self._most(turn) >= turn.least)), scores)
        chosen = chosen[self._sure[chosen] - self._placed[chosen] >= count]
        gained = np.full(self._number, np.inf)
        gained[self._of_root[chosen]] = scores[chosen]
        self.scores += gained
        self._placed[chosen] += count
        self._requested[:, chosen] += session.view.requested(turn.pods)[:, None]
        return len(chosen) > 0

    def _offered(self, sub_job: SubJob) -> Mask | None:
        """Mask of leaves that a group is tried in first, shape (leaves,); None when it goes elsewhere."""
        if sub_job.highest_tier is None:
            return np.ones(len(self._leaves), np.bool_) if self._roots_are_leaves else None
        tree = self._session.view.topology
        first = next(iter(gradients(self._session, sub_job, tree.top)), self._leaves[:0])
        if (tree.tiers[first] > tree.tiers.min()).any():
            return None
        return np.isin(self._leaves, first)

    def _first_of_each(self, candidates: Rows, scores: Vector) -> Rows:
        """The best leaf in each root; the first one on a tie."""
        ordered = candidates[np.lexsort((self._leaves[candidates], -scores[candidates], self._of_root[candidates]))]
        return ordered[np.unique(self._of_root[ordered], return_index=True)[1]]

    def _most(self, turn: Turn) -> Vector:
        """Upper bound on the pods of a turn's group that fit in each leaf, shape (leaves,)."""
        identity, most = self._session.kernel.identity, np.zeros(len(self._leaves))
        for key in {identity(pod): None for pod in turn.pods}:
            most += self._at_most[key]
        return most - self._placed if self._alike else most

    def _copies(self, pod: PodRecord) -> Vector:
        copies = copies_on_nodes(self._session, pod)
        return self._session.view.topology.sums(copies)[self._leaves]

    def _sure_copies(self, pods: Sequence[PodRecord]) -> Vector:
        """Number of pods with the largest request of all that find a node which all pods pass now, shape (leaves,)."""
        nodes, boards = self._session.view.nodes, [self._session.kernel.board(pod) for pod in pods]
        rows = reduce(np.intersect1d, [board.rows for board in boards])
        copies = np.zeros(len(nodes))
        largest = np.maximum.reduce([board.request for board in boards])
        copies[rows] = np.maximum(copies_that_fit(largest, nodes.available(rows), nodes.always), 0)
        return self._session.view.topology.sums(copies)[self._leaves]
