"""Solving a gang's problem, whichever of its groups get places, within a budget in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact import bounds
from stromboli.placement.exact.problem import Problem
from stromboli.placement.exact.reading import Reading, with_groups
from stromboli.placement.exact.search import Found, Places, search
from stromboli.state.pods import PodRecord

#: steps of the kernel that a step of a search takes as long as
STEP = 40
#: the part of its budget after which a search ends whose places would only be a reason
_FOR_A_REASON = 5
#: sets of groups that are tried
_MOST_SETS = 64
#: in place of a set of groups: there are too many to try
_TOO_MANY = frozenset({""})

#: whether the pods of a problem can have some places, after every plugin was asked
Accept = Callable[[Problem, Places], bool]


@dataclass(slots=True)
class Verdict:
    """The result of a search for a gang in one situation."""

    found: Found
    #: the problem that has no solution, and the set of groups of it, the last that was tried
    problem: Problem
    groups: frozenset[str] | None = None


def budget_of(session: Session, more: int = 0) -> int:
    """The steps that a search may take: what the policy allows, at most what the turn has left less `more`."""
    return int(max(0, min(session.policy.session.search * STEP, session.kernel.left - more))) // STEP


class Solver:
    """Searches for places for the pods of a job, divided into kinds."""

    def __init__(
        self, session: Session, job: Job, kinds: Sequence[Sequence[PodRecord]], budget: int, *, most_refused: int
    ) -> None:
        """`most_refused` is the number of times that plugins may refuse found places before searches end."""
        self._session = session
        self._job = job
        self._kinds = kinds
        self._most_refused = most_refused
        #: number of times that plugins refused places
        self.refused = 0
        #: the steps that are left of the budget
        self.left = budget

    def took(self, steps: int) -> None:
        """Count steps, to the session's budget as well."""
        steps = min(steps, self.left)
        self.left -= steps
        self._session.kernel.step(steps * STEP)

    def solve(self, reading: Reading, accept: Accept | None = None) -> Verdict:
        """Search with each set of groups that would do. Without `accept` it matters only whether there are places."""
        proven, problem, active = True, reading.problem, None
        for active in self._groups():
            if active is _TOO_MANY:
                return Verdict(Found(None, False, 0), problem)
            problem = with_groups(self._session, reading, self._job, active)
            found = self._search(problem, accept)
            if found.places is not None:
                return Verdict(found, problem)
            proven = proven and found.proven
        return Verdict(Found(None, proven, 0), problem, active)

    def _search(self, problem: Problem, accept: Accept | None) -> Found:
        if accept is not None:
            found = search(problem, self.left, lambda places: self._accepts(accept, problem, places))
        elif len(problem.kinds) == 1 and not any(True for _ in problem.rules):
            # A bound of pods that are alike is exact.
            impossible, steps = bounds.refuted(problem, self._session.policy.session.search)
            return Found(None if impossible else [], impossible, steps)
        else:
            found = search(problem, self.left // _FOR_A_REASON)
        self.took(found.steps)
        return found

    def _accepts(self, accept: Accept, problem: Problem, places: Places) -> bool:
        """Whether plugins agree to places; not asked once they refused too often."""
        accepted = self.refused < self._most_refused and accept(problem, places)
        self.refused += not accepted
        return accepted

    def _groups(self) -> Iterator[frozenset[str] | None]:
        """The sets of groups that may get places, the smallest first; None for a job without groups."""
        job, session = self._job, self._session
        if not job.divided:
            yield None
            return
        waiting = {session.view.sub_job_of(job, pods[0]).uid for pods in self._kinds}
        lacking = {policy.name: policy.min_sub_groups for policy in job.pod_group.spec.sub_group_policy}
        closed = []
        for uid, sub_job in job.sub_jobs.items():
            if session.ask.sub_job_missing(sub_job) <= 0:
                lacking[sub_job.policy] = lacking.get(sub_job.policy, 0) - 1
            elif uid in waiting:
                closed.append(uid)
        ready = waiting - set(closed)
        tried = 0
        for size in range(len(closed) + 1):
            for more in combinations(closed, size):
                counts = dict(lacking)
                for uid in more:
                    policy = job.sub_jobs[uid].policy
                    counts[policy] = counts.get(policy, 0) - 1
                if any(count > 0 for count in counts.values()):
                    continue
                if tried == _MOST_SETS:
                    yield _TOO_MANY
                    return
                tried += 1
                yield frozenset({*ready, *more})
