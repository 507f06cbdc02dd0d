"""allocate: places the pods of admitted jobs, gang by gang.

Queues take turns by share, and in each queue the first job by order. Its pods are tried on a statement until the job is
ready, and committed or discarded together. A job that is ready goes back into the queue and gets its remaining pods one
per turn, so that elastic jobs grow in turns.

A job whose pods must stay close together, or that has sub groups, first needs a HyperNode. It is tried gradient by
gradient in each HyperNode, its groups within that one, and each group again in the HyperNodes below; the best solution
of the first gradient that has any is taken. The best score that a HyperNode can give is known before it is tried, or
predicted from the first trial (`placement/score_prediction.py`), so the search proceeds by falling score and stops when
no better one can come. The outcome is that of trying them all.

A gang whose pods do not fit in their order is tried in other orders (`placement/exact`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework import reasons
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.cluster.lifted_gates import waits_for_queue
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.rounds import take_turns
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement import domains
from stromboli.placement.borrowing import borrow_leftover
from stromboli.placement.exact.memory import IN_VAIN
from stromboli.placement.exact.places import place_in_any_order, waits_in_vain
from stromboli.placement.groups import place_as_nominated, place_group
from stromboli.placement.pending import PendingGroup, PendingJob, competing, pending_job
from stromboli.placement.queue_gates import lift_gates
from stromboli.placement.score_prediction import Turn, predict_scores

_PENDING = int(PodState.Pending)


class Allocate(Action):
    name = "allocate"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        pending_jobs: dict[str, PendingJob] = {}
        waiting: dict[str, list[Job]] = {}
        lined_up = session.budget.line_up(self.name, self._waiting(session))
        for job in lined_up:
            if self._prepare(session, job, pending_jobs):
                waiting.setdefault(job.queue.name, []).append(job)
        turns = session.budget.turns(self.name, waiting)
        turns.need_none(job for job in lined_up if job.key not in pending_jobs)
        take_turns(
            session,
            turns,
            waiting,
            partial(self._take_turn, session, pending_jobs),
            lambda job: session.ask.job_missing(job) > 0,
            session.ask.overused,
        )
        session.budget.put_off(self.name, turns)
        waits = session.behind | session.view.trace.not_reached | session.budget.too_long
        left = [session.view.jobs[key] for key in pending_jobs if key not in waits]
        borrow_leftover(session, left, partial(self._lend, session))

    def _waiting(self, session: Session) -> Mask:
        """The jobs that may have pods to place, shape (jobs,); `_prepare` finds out."""
        jobs = session.view.jobs
        waiting: Mask = jobs.now(jobs.count(PodState.Pending), lambda job: job.counts[_PENDING]) > 0
        if "enqueue" in session.policy.actions:
            return waiting & ~jobs.now_in_phase("", "Pending")
        return waiting | (jobs.now_in_phase("", "Pending") & ~jobs.aside)

    def _prepare(self, session: Session, job: Job, pending_jobs: dict[str, PendingJob]) -> bool:
        """Find out which pods of a job may be placed; whether there are any."""
        pending = session.attempt(job, partial(self._pending_job, session, job), otherwise=None)
        if pending:
            pending_jobs[job.key] = pending
        return bool(pending)

    def _pending_job(self, session: Session, job: Job) -> PendingJob | None:
        """The pods of a job that may be placed; None when the job has to wait."""
        if job.pending_phase:
            if "enqueue" in session.policy.actions or job.key in session.view.never_fits:
                return None
            closed = session.ask.shut(job)
            if closed is not None:
                session.view.trace.job(job.key, closed)
                return None
            job.phase = "Inqueue"
        pods = competing(session, job)
        if not pods:
            return None
        invalid = session.ask.job_valid(job) or session.ask.shut(job)
        if invalid is not None:
            session.view.trace.job(job.key, invalid)
            return None
        gated = [pod for pod in pods if pod.pod_class.gated]
        if not gated:
            return pending_job(session, job, pods)
        for pod in gated:
            session.view.trace.pod(pod.row, reasons.gated(pod))
        lift_gates(session, job, [pod for pod in gated if waits_for_queue(pod)])
        return pending_job(session, job, [pod for pod in pods if not pod.pod_class.gated])

    def _take_turn(self, session: Session, pending_jobs: dict[str, PendingJob], job: Job) -> bool:
        """Try a job; True when it was committed and has pods left. What is only promised a place keeps it."""
        if IN_VAIN in session.view.environment.left and waits_in_vain(session, job):
            return False
        goes_on = self._place_in_order(session, job, pending_jobs)
        if not goes_on:
            left = place_in_any_order(session, job)
            pending_jobs[job.key], goes_on = left or pending_jobs[job.key], bool(left)
        if job.counts[PodState.Allocated]:
            _decide_held(session, job)
        return goes_on

    def _place_in_order(self, session: Session, job: Job, pending_jobs: dict[str, PendingJob]) -> bool:
        pending = pending_jobs[job.key]
        if not domains.needed(job):
            return self._place_anywhere(session, pending)
        solution = _Search(session, job).solve(pending)
        if solution is None:
            tier = domains.binding_tier(session, job)
            if tier is not None:
                session.view.trace.job(job.key, domains.no_domain(session, job, tier))
            return False
        solution.apply()
        pending_jobs[job.key] = solution.pending
        if session.ask.job_missing(job) > 0:
            if session.rules.hard_topology:
                domains.locate(session, solution.statement, job)
            return False
        solution.commit(job)
        return bool(solution.pending)

    def _lend(self, session: Session, job: Job, pending: PendingJob, spare: Mask) -> None:
        """Try a job on spare nodes only; pods that are only promised a place give it back."""
        if domains.needed(job):
            if spare.all():
                self._take_turn(session, {job.key: pending}, job)
            return
        statement = place_group(session, pending.pop(), session.view.topology.top, on=spare)
        if statement is None:
            return
        if session.ask.job_missing(job) > 0:
            statement.discard()
        else:
            statement.commit()
            _decide_held(session, job)

    def _place_anywhere(self, session: Session, pending: PendingJob) -> bool:
        group = pending.first
        statement = None
        if group.sub_job.nominated_hyper_node != NOWHERE:
            statement = place_as_nominated(session, group)
        statement = statement or place_group(session, group, session.view.topology.top)
        if not group:
            pending.pop()
        if statement is None or group.missing:
            return False
        if group.sub_job.nominated_hyper_node != NOWHERE:
            statement.nominate(group.sub_job, NOWHERE)
        statement.commit()
        return bool(pending)


def _decide_held(session: Session, job: Job) -> None:
    """Decide for the places that a gang kept from earlier turns because it is overdue, once it starts."""
    if session.ask.job_missing(job) <= 0:
        session.outcome.commit_held(job)


@dataclass(slots=True)
class _Solution:
    """A job placed in a HyperNode. It is in effect until it is withdrawn for another one to be tried."""

    hyper_node: int
    score: float
    statement: Statement
    #: pods left to place
    pending: PendingJob
    #: the turns that led to it; empty when a group got no places that might get some elsewhere
    turns: list[Turn]
    #: operations to redo when it was withdrawn
    withdrawn: Sequence[Operation] = ()

    @property
    def rank(self) -> tuple[float, int]:
        """The higher, the better."""
        return self.score, -self.hyper_node

    def withdraw(self) -> None:
        """Take it back, for now."""
        if self.statement:
            self.withdrawn = self.statement.save()
            self.statement.discard()

    def apply(self) -> None:
        """Put it in effect again."""
        self.statement.recover(self.withdrawn)
        self.withdrawn = ()

    def commit(self, job: Job) -> None:
        """Decide for it: from now on the job is where it is."""
        self.statement.locate(job, self.hyper_node)
        self.statement.commit()


@dataclass(slots=True)
class _Placed:
    """A group that got places in a HyperNode."""

    statement: Statement
    #: of the HyperNode
    score: float
    #: None when other HyperNodes need not be like it
    turn: Turn | None


def _by_promise(candidates: Rows, highest: Vector) -> deque[tuple[int, float]]:
    """HyperNodes with the highest score that a solution there can have, the highest first, of equals the first."""
    order = np.lexsort((candidates, -highest))
    return deque(zip(candidates[order].tolist(), highest[order].tolist(), strict=True))


class _Search:
    """The search for a HyperNode in which a job can be placed."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session = session
        self._job = job

    def solve(self, pending: PendingJob) -> _Solution | None:
        """The best solution of the first gradient that has one; it may have to be applied."""
        session, job = self._session, self._job
        if not any(map(self._may_start, pending)):
            return None
        least = domains.least_placements(session, job)
        pods = [pod for group in pending for pod in group.left()]
        gradients = domains.gradients(session, job, session.view.topology.top)
        nominated = self._nominated(pending)
        if any(nominated in gradient for gradient in gradients):
            solution = self._try(pending.copy(), nominated)
            if solution is not None:
                return solution
        for gradient in gradients:
            best = self._best(pending, domains.that_may_fit(session, gradient, pods, least))
            if best is not None:
                return best
        return None

    def _may_start(self, group: PendingGroup) -> bool:
        """Whether a group has as many pods as it needs; one that may lie anywhere is tried, to find out why not."""
        sub_job, tree = group.sub_job, self._session.view.topology
        if sub_job.nominated_hyper_node != NOWHERE or sub_job.highest_tier is None:
            return True
        anywhere = sub_job.highest_tier >= tree.tiers[tree.top]
        return bool(anywhere) or len(group.left()) >= domains.least_placements(self._session, sub_job)

    def _nominated(self, pending: PendingJob) -> int:
        """The HyperNode around those that were nominated for groups."""
        found = NOWHERE
        for group in pending:
            found = self._session.view.topology.lca(found, group.sub_job.nominated_hyper_node)
        return found

    def _best(self, pending: PendingJob, candidates: Rows) -> _Solution | None:
        """The solution with the highest score, of equals the one in the first HyperNode."""
        best: _Solution | None = None
        left = _by_promise(candidates, self._highest_scores(pending, candidates))
        foretold = self._session.kernel.plain or not self._job.divided
        while left:
            hyper_node, highest = left.popleft()
            if best is not None:
                if (highest, -hyper_node) < best.rank:
                    break
                best.withdraw()
            solution = self._try(pending.copy(), hyper_node)
            if solution is None:
                continue
            if not foretold and solution.turns:
                left, foretold = self._foretell(solution, left), True
            if best is None or solution.rank > best.rank:
                best = solution
            else:
                solution.withdraw()
        return best

    def _foretell(self, solution: _Solution, left: Iterable[tuple[int, float]]) -> deque[tuple[int, float]]:
        """HyperNodes that are left to try, by the score that they will have by the turns of a solution."""
        candidates = np.array([hyper_node for hyper_node, _ in left], np.intp)
        solution.withdraw()
        return _by_promise(candidates, predict_scores(self._session, solution.turns, candidates))

    def _highest_scores(self, pending: PendingJob, candidates: Rows) -> Vector:
        """Upper bounds of the score in each HyperNode, infinite where none is known and on the plain path.

        A job's score is the sum over the turns of its groups, and only a job without sub groups needs just one turn. A
        HyperNode that contains others gets the score of the one in which the job ends up, which running pods of the job
        may raise above the others.
        """
        session, job, tree = self._session, self._job, self._session.view.topology
        if len(candidates) < 2 or session.kernel.plain:
            return np.full(len(candidates), np.inf)
        lowest = bool((tree.tiers[candidates] == tree.tiers.min()).all())
        if job.divided or not (lowest or job.counts[PodState.Pending] == job.size):
            return np.full(len(candidates), np.inf)
        sub_job = next(iter(pending)).sub_job
        if lowest:
            return session.ask.hyper_node_scores(sub_job, candidates)
        of_all = session.ask.hyper_node_scores(sub_job, np.arange(len(tree)))
        return np.array([of_all[tree.below(hyper_node)].max() for hyper_node in candidates.tolist()])

    def _try(self, pending: PendingJob, hyper_node: int) -> _Solution | None:
        """Place groups below a HyperNode until the job is ready; None, and nothing done, when that is impossible."""
        session, job = self._session, self._job
        statement, score = session.statement(), 0.0
        turns: list[Turn | None] = []
        while pending:
            group = pending.pop()
            placed = self._place_group(group, hyper_node)
            if placed is None:
                if self._may_start(group):
                    turns.append(None)
                continue
            turns.append(placed.turn)
            statement.merge(placed.statement)
            score += placed.score
            pending.push(group)
            if session.ask.job_missing(job) <= 0:
                break
        statement.end_attempt()
        if statement and (session.ask.job_missing(job) <= 0 or session.ask.job_pipelined(job)):
            smooth = [turn for turn in turns if turn is not None]
            return _Solution(hyper_node, score, statement, pending, smooth if smooth == turns else [])
        statement.discard()
        return None

    def _place_group(self, group: PendingGroup, root: int) -> _Placed | None:
        """Place pods of a group in the best HyperNode of the first gradient below `root` that takes them."""
        session, sub_job = self._session, group.sub_job
        nominated = sub_job.nominated_hyper_node
        if root in session.view.topology.ancestors(nominated):
            statement = place_as_nominated(session, group)
            if statement:
                statement.locate(sub_job, nominated)
                return _Placed(statement, 0.0, None)
        least = domains.least_placements(session, sub_job)
        for gradient in domains.gradients(session, sub_job, root):
            candidates = domains.that_may_fit(session, gradient, group.left(), least)
            while len(candidates):
                scores = session.ask.hyper_node_scores(sub_job, candidates)
                best = int(np.argmax(scores))
                hyper_node, trial = int(candidates[best]), group.copy()
                statement = place_group(session, trial, hyper_node)
                if statement:
                    turn = Turn.of(statement, sub_job, least, tried=trial.at - group.at)
                    group.at = trial.at
                    statement.locate(sub_job, hyper_node)
                    return _Placed(statement, float(scores[best]), turn)
                candidates = np.delete(candidates, best)
        return None
