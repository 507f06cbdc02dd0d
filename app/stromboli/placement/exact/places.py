"""Places for a gang that found none in the order of its pods.

The answer is one of three: the places, which every filter has passed one by one; the proof that there are none; or
that none were found within the budget. Where there are none now, the same is asked of the cluster without the pods of
others: only a gang that would have places there is told to wait for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import copies_that_fit
from stromboli.api.words import by_number, counted
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.operation import Kind
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement.exact import memory
from stromboli.placement.exact.conflicts import conflicts, numbered
from stromboli.placement.exact.problem import FILTERS, QUEUE, Problem
from stromboli.placement.exact.reading import Reading, beside_own_pods, kinds_of, pods_needed, read, with_groups
from stromboli.placement.exact.search import Places
from stromboli.placement.exact.solving import Solver, budget_of
from stromboli.placement.pending import PendingJob, pending_job, placeable
from stromboli.placement.starting import may_start
from stromboli.state.pods import PodRecord

_NEVER, _NOT_FOUND = "CannotBePlacedTogether", "NoPlacesFound"
#: number of times that plugins may refuse found places before the search ends
_MOST_REFUSED = 64


def waits_in_vain(session: Session, job: Job) -> bool:
    """Whether nothing changed for a gang since a search found no places; if so, its reason is recorded again."""
    if not memory.waits(session, job) or not _may_search(session, job):
        return False
    if session.view.nodes.releasing.any() or session.ask.job_pipelined(job):
        # It may be promised what terminating pods leave, or keep what it finds.
        return False
    pods, budget = placeable(session, job), budget_of(session)
    known = memory.recall(session, job, budget, lambda: _Attempt(session, job, kinds_of(session, job, pods)).problems())
    if known:
        _give_up(session, job)
    return known


def is_impossible(session: Session, job: Job) -> bool:
    """Whether it is proven in this session that a gang cannot be placed, whatever finishes or is evicted."""
    told = session.view.trace.jobs.get(job.key)
    return told is not None and told.reason == _NEVER


def _give_up(session: Session, job: Job) -> None:
    """Drop the claim of a gang that cannot be placed, whatever finishes, while that is so."""
    if session.admissions is not None and is_impossible(session, job):
        session.admissions.hopeless.append(job.key)


def place_in_any_order(session: Session, job: Job) -> PendingJob | None:
    """Place the pods that a job needs to start if they found no places in their own order.

    Returns the pods still to place; None if nothing was placed, with a reason recorded if it is proven that nothing
    ever will be.
    """
    if not session.rules.what_fits or not session.policy.session.search:
        return None
    if session.ask.job_missing(job) <= 0:
        return None
    kept = [(statement, statement.save()) for statement in session.undecided]
    pods = session.view.pending(job)
    for operation in (each for _, made in kept for each in made):
        if operation.kind is Kind.Pipeline:
            # It gets its places when others have gone.
            return None
        pods = [*pods, *operation.pods]
    if len(pods) < (1 if job.ready_count else 2) or _order_is_all_the_same(session, job, pods):
        return None
    for each, _ in reversed(kept):
        each.discard()
    statement = None
    if _may_search(session, job):
        statement = _Attempt(session, job, kinds_of(session, job, placeable(session, job))).run()
    if statement is None:
        # Places that an overdue gang found in its own order are kept for it.
        for each, made in kept:
            each.recover(made)
        return None
    statement.commit()
    session.view.trace.jobs.pop(job.key, None)
    return pending_job(session, job, placeable(session, job))


def _may_search(session: Session, job: Job) -> bool:
    """Whether a gang lacks pods, and keeps no places of an earlier turn."""
    if not session.rules.what_fits or not session.policy.session.search or session.ask.job_missing(job) <= 0:
        return False
    return not (job.waiting_count or job.counts[PodState.Allocated])


def _order_is_all_the_same(session: Session, job: Job, pods: Sequence[PodRecord]) -> bool:
    """Whether the order of pods makes no difference, and it is known without a search whether they fit alone."""
    if job.divided or not _all_alike(session, pods) or not session.kernel.passes_everywhere(pods[0]):
        return False
    view = session.view
    if not job.ready_count:
        return True
    room = np.maximum(0, copies_that_fit(view.request(pods[0]), beside_own_pods(view, job))).sum()
    return bool(room >= session.ask.job_missing(job))


def _all_alike(session: Session, pods: Sequence[PodRecord]) -> bool:
    """Whether nothing tells pods apart, and where one goes has no say in where others may."""
    first, kernel = pods[0], session.kernel
    pod_class, role, labels = first.pod_class, first.role, first.labels
    for pod in pods:
        if pod.pod_class is not pod_class or pod.role != role:
            return False
        if pod.labels != labels and kernel.identifies and kernel.identity(pod) != kernel.identity(first):
            return False
    return not kernel.varies(first)


class _Attempt:
    def __init__(self, session: Session, job: Job, kinds: list[list[PodRecord]]) -> None:
        self._session = session
        self._job = job
        self._kinds = kinds
        before = session.kernel.steps
        #: whether the order of the pods makes no difference, so that there are no places now
        self._alike = len(kinds) == 1 and not job.divided and not session.kernel.varies(kinds[0][0])
        #: the problem as things stand
        self._now = read(session, job, kinds)
        #: the problem if no pod of another job held a place
        self._empty = read(session, job, kinds, empty=True)
        #: steps of the kernel that it took to read them
        self._reading = session.kernel.steps - before
        # The rest is reserved for the last reading, which finds the reason.
        self._budget = budget_of(session, self._reading)
        self._solver = Solver(session, job, kinds, self._budget, most_refused=_MOST_REFUSED)
        self._statement: Statement | None = None

    def problems(self) -> list[Problem]:
        """The problems that all results follow from."""
        return [self._now.problem, self._empty.problem]

    def run(self) -> Statement | None:
        problems = self.problems()
        if any(not within.choices for each in problems for within in each.within):
            # There is no HyperNode that it may lie in: that is known better than here.
            return None
        if memory.recall(self._session, self._job, self._budget, lambda: problems):
            _give_up(self._session, self._job)
            return None
        reason = self._search_all()
        if self._statement is not None:
            return self._statement
        if reason is not None:
            self._tell(reason)
            _give_up(self._session, self._job)
        impossible = reason is not None and reason.reason == _NEVER
        if impossible or (all(each.clear for each in problems) and not self._solver.refused):
            proven = reason is None or reason.reason != _NOT_FOUND
            budget = self._session.policy.session.search if proven else self._budget
            memory.keep(self._session, self._job, problems, budget, self._reading)
        return None

    def _tell(self, reason: Reason) -> None:
        """Give the gang a reason that replaces those of its pods, which may hold for one order only."""
        trace = self._session.view.trace
        trace.job(self._job.key, reason)
        for pod in self._session.view.pending(self._job):
            trace.pods.pop(pod.row, None)

    def _search_all(self) -> Reason | None:
        """Search for places now, and if there are none on the empty cluster; the reason where others do not matter."""
        if not self._alike:
            verdict = self._solver.solve(self._now, partial(self._try, self._now))
            if self._statement is not None:
                return None
            if not verdict.found.proven and self._now.problem.clear and not self._solver.refused:
                return self._not_found()
        return self._never(self._empty)

    # -- reasons -----------------------------------------------------------------------------------------------------

    def _never(self, reading: Reading) -> Reason | None:
        """The reason of a gang that would not be placed if no other pod held a place."""
        verdict = self._solver.solve(reading)
        if not reading.problem.sound:
            return None
        told = self._session.view.reason(self._job)
        for_good = told is not None and told.actionable is not Actionable.Wait
        if not verdict.found.proven and not reading.problem.clear:
            return None
        if verdict.found.places is not None:
            return self._taken() if for_good else None
        if not verdict.found.proven:
            return self._not_found()
        problem = verdict.problem
        alone = zip(problem.kinds, problem.fitting(), strict=True)
        if for_good and sum(kind.count for kind, nodes in alone if nodes) < pods_needed(problem):
            # Pods that no node takes, even alone, say so themselves.
            return None
        # Without what keeps pods from them, other nodes come into question.
        every = read(self._session, self._job, self._kinds, empty=True, every_node=True)
        problem = with_groups(self._session, every, self._job, verdict.groups)
        sets, steps = conflicts(problem, self._solver.left)
        self._solver.took(steps)
        instead = ", or ".join(" and ".join(problem.without(name) for name in names) for names in sets)
        begun = "lacks pods that cannot be placed beside those that it has"
        verb = begun if self._job.ready_count else "starts with pods that cannot be placed together"
        message = f"{self._job.title} {verb}, even if all others finish"
        limits = {QUEUE, *(quota.words for quota in problem.quotas if not quota.grows)}
        numbers = (numbered(problem, name) for name in dict.fromkeys(name for names in sets for name in names))
        return Reason(
            Stage.Gang,
            _NEVER,
            f"{message}; they could be {instead}" if instead else message,
            Actionable.Admin if [FILTERS] in map(list, sets) and self._mendable() else Actionable.User,
            "; ".join([self._lacking(pods_needed(problem)), *filter(None, numbers)]),
            scalable=not any(limits & {*names} for names in sets),
        )

    def _lacking(self, needed: int) -> str:
        """Number of pods that need places, in words."""
        running = self._job.ready_count
        if running:
            return f"it lacks {counted(needed, 'pod')} beside {running} that {by_number(running, 'runs', 'run')}"
        return f"it starts with {counted(needed, 'pod')}"

    def _mendable(self) -> bool:
        """Whether administrators can let nodes take some of the pods, as by taking back a cordon."""
        kernel = self._session.kernel
        return any((kernel.mendable(pods[0]) & ~kernel.feasible(pods[0], hopeful=True)).any() for pods in self._kinds)

    def _taken(self) -> Reason:
        """The reason of a gang that would have places if other jobs' pods were gone."""
        words = f"{self._job.title} starts with pods that would have places together if pods of others were gone"
        return Reason(Stage.Gang, "PlacesTaken", words, Actionable.Wait, scalable=True)

    def _not_found(self) -> Reason:
        words = f"{self._job.title} starts with pods for which no placement was found within the budget"
        detail = f"the search ended after {self._budget} steps; there may be a placement all the same"
        return Reason(Stage.Gang, _NOT_FOUND, words, Actionable.Admin, detail, scalable=True)

    # -- places ------------------------------------------------------------------------------------------------------

    def _try(self, reading: Reading, problem: Problem, places: Places) -> bool:
        """Place pods one by one, asking every plugin."""
        session, job, statement = self._session, self._job, self._session.statement()
        for pod, row in reading.granted(problem, places, self._has_share):
            place = session.kernel.best_on(pod, row)
            if (
                place != (row, True)
                or not may_start(session, job, pod, row)
                or session.ask.refusal(pod, row) is not None
            ):
                break
            statement.allocate(session.view.sub_job_of(job, pod), (pod,), (row,))
        if len(statement.operations) < len(places) or session.ask.job_missing(job) > 0:
            statement.discard()
            return False
        self._locate(statement, reading, places)
        self._statement = statement
        return True

    def _has_share(self, pod: PodRecord) -> bool:
        return self._session.ask.allocatable(self._job.queue, pod)[0] > 0

    def _locate(self, statement: Statement, reading: Reading, places: Places) -> None:
        """Locate the job and its groups where their pods are placed."""
        job, tree = self._job, self._session.view.topology
        if not job.divided and job.highest_tier is None:
            return
        nodes: dict[str, list[int]] = {}
        for kind, node in places:
            uid = self._session.view.sub_job_of(job, reading.pods[kind][0]).uid
            nodes.setdefault(uid, []).append(int(reading.rows[node]))
        for uid, rows in nodes.items():
            statement.locate(job.sub_jobs[uid], tree.around(np.array(rows)))
        statement.locate(job, tree.around(np.array([row for rows in nodes.values() for row in rows])))
