"""The job or pod that a change is to help, and a change that may help it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from stromboli.api.resources import Vector
from stromboli.engine import Engine
from stromboli.explain.answers import Answer
from stromboli.explain.rehearsal import Change, Future, Rehearsal
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

#: steps that may be taken to try changes, for answers within about two seconds, and those that a session itself counts
MOST_STEPS, _OF_A_SESSION = 30_000_000, 150_000
#: if a session takes more steps than this, changes are tried without the other waiting jobs, at the cost of one job
MANY_WAIT = MOST_STEPS // 15
#: candidates of one kind
MOST_ALIKE = 6


@dataclass(slots=True)
class Candidate:
    """A change that may help, in words."""

    words: str
    who: str
    change: Change | None = None
    engine: Engine | None = None
    #: the jobs that it names
    jobs: Sequence[str] = ()
    #: number of the pods that have to be bound; 0 for as many as the case needs
    needed: int = 0
    #: when it is made, seconds since the epoch; 0 for at once
    at: float = 0.0

    def then(self, other: Candidate) -> Candidate:
        """This change combined with one found after it."""
        changes = [each.change for each in (self, other) if each.change is not None]

        def change(state: ClusterState) -> None:
            for each in changes:
                each(state)

        who = min(self.who, other.who, key=("admin", "user", "wait").index)
        words, jobs = f"{self.words}, and {other.words}", [*self.jobs, *other.jobs]
        return Candidate(words, who, change, other.engine or self.engine, jobs, other.needed, other.at)


@dataclass(slots=True)
class Case:
    """The job or pod that a change should help, and the facts about it."""

    session: Session
    rehearsal: Rehearsal
    answer: Answer
    job: Job | None
    #: its key, empty for a pod without one
    key: str
    #: the waiting pods, in order; none if a job has to be admitted before its pods are created
    pods: list[PodRecord]
    #: the keys that have to be bound; any of them, as many as the gang needs
    keys: frozenset[str]
    needed: int
    #: outcome without any change
    before: Future
    #: the cluster without other waiting pods: a change that does not help there does not help
    alone: Rehearsal
    #: the steps that were taken before anything was tried
    began: int
    #: the obstacle; for a pod that waits for its gang, that of the gang
    reason: str
    stage: str
    #: remedies so far, by who can make them, with their effects
    found: dict[str, tuple[Candidate, str]] = field(default_factory=dict)
    #: changes after which it waits for another reason, by who can make them, with that reason
    first_steps: dict[str, tuple[Candidate, str]] = field(default_factory=dict)
    #: changes of the job, or of its obstacles, that are not enough alone
    parts: list[Candidate] = field(default_factory=list)
    #: obstacles after one or more of them: several changes may remove the same
    seen: set[object] = field(default_factory=set)
    #: whether changes are tried without the other jobs that wait, which are too many to look at each time
    apart: bool = False
    #: whether nothing but those is in the way
    others_first: bool = False

    @property
    def lacks_pods(self) -> bool:
        """Whether a gang has fewer pods than it starts with."""
        return self.reason in ("NotEnoughPods", "NotEnoughPodsOfTask")

    @property
    def exhausted(self) -> bool:
        """Whether enough was tried."""
        return self.rehearsal.late() or taken(self.rehearsal) - self.began >= MOST_STEPS

    @property
    def asked(self) -> Vector:
        """The request of the first pod, or the minResources of a job without pods."""
        view = self.session.view
        if self.pods:
            return view.request(self.pods[0])
        none = view.vector(None)
        return none if self.job is None or self.job.min_resources is None else self.job.min_resources

    def reached(self, future: Future, needed: int = 0) -> bool:
        """Whether `needed` pods are bound or, for a job without pods, whether it is admitted."""
        if not self.pods:
            return self.key in future.admitted
        return len(self.keys & future.bound.keys()) >= (needed or self.needed)

    def outcome(self, candidate: Candidate, *, whole: bool = False) -> Future:
        """The outcome of a change. It is not followed further if it is not enough alone, unless the `whole` outcome is
        wanted.
        """
        enough = partial(self.reached, needed=candidate.needed)
        alone_there, there, most = self.alone, self.rehearsal, MOST_STEPS + self.began - taken(self.rehearsal)
        if candidate.at:
            alone_there, there = alone_there.at(candidate.at), there.at(candidate.at)
        if not whole or self.apart:
            alone = alone_there.run(candidate.change, engine=candidate.engine, enough=enough)
            if self.apart or not self.reached(alone, candidate.needed):
                return alone
        return there.run(candidate.change, engine=candidate.engine, enough=enough, most=most)

    def helps(self, change: Change) -> bool:
        """Whether a change alone is enough; not once enough was tried."""
        return not self.exhausted and self.reached(self.outcome(Candidate("", "", change)))


def taken(rehearsal: Rehearsal) -> int:
    """The steps of all sessions, opening and closing included."""
    return rehearsal.sessions * _OF_A_SESSION + rehearsal.steps


def smallest(low: int, high: int, works: Callable[[int], bool]) -> int | None:
    """The smallest number that works, from `low` to `high`, where all larger ones work as well."""
    if low > high or not works(high):
        return None
    reach = 1
    while low + reach - 1 < high and not works(low + reach - 1):
        reach *= 2
    first, last = low + reach // 2, min(low + reach - 1, high)
    while first < last:
        middle = (first + last) // 2
        if works(middle):
            last = middle
        else:
            first = middle + 1
    return last
