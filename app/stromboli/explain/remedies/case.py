"""The job or pod that a change is to help, and a change that may help it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from stromboli.api.resources import Vector
from stromboli.engine import Engine
from stromboli.explain.answers import Answer, Remedy
from stromboli.explain.rehearsal import Change, Future, Rehearsal
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: steps that may be taken to try changes, for answers within about two seconds, and those that a session itself counts
MOST_STEPS, _OF_A_SESSION = 45_000_000, 300_000
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
    #: how many of the pods have to be bound; 0 for as many as the case needs
    needed: int = 0
    #: when it is made, seconds since the epoch; 0 for at once
    at: float = 0.0


@dataclass(slots=True)
class Case:
    """The job or pod that a change is to help, and what is known of it."""

    session: Session
    rehearsal: Rehearsal
    answer: Answer
    job: Job | None
    #: its key, empty for a pod without one
    key: str
    #: the pods that wait, in order; none of a job that has to be admitted before its pods are made
    pods: list[PodRecord]
    #: the keys that have to be bound; any of them, as many as the gang needs
    keys: frozenset[str]
    needed: int
    #: what is decided without any change
    before: Future
    #: the cluster without others that wait: what does not help there does not help
    alone: Rehearsal
    #: the steps that were taken before anything was tried
    began: int
    #: what blocks; of a pod that waits for its gang, what blocks that
    reason: str
    stage: str
    #: what was found so far, by who can do it
    found: dict[str, Remedy] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Whether enough was tried."""
        return self.rehearsal.late() or taken(self.rehearsal) - self.began >= MOST_STEPS

    @property
    def asked(self) -> Vector:
        """What a pod asks for, or a job without pods."""
        view = self.session.view
        if self.pods:
            return view.request(self.pods[0])
        none = view.vector(None)
        return none if self.job is None or self.job.min_resources is None else self.job.min_resources

    def reached(self, future: Future, needed: int = 0) -> bool:
        """Whether so many of the pods are bound; of a job without pods, whether it is admitted."""
        if not self.pods:
            return self.key in future.admitted
        return len(self.keys & future.bound.keys()) >= (needed or self.needed)

    def outcome(self, candidate: Candidate, *, whole: bool = False) -> Future:
        """What would be after a change. One that is not enough alone is tried no further, unless the `whole` outcome is
        asked for.
        """
        enough = partial(self.reached, needed=candidate.needed)
        alone_there, there = self.alone, self.rehearsal
        if candidate.at:
            alone_there, there = alone_there.at(candidate.at), there.at(candidate.at)
        if not whole:
            alone = alone_there.run(candidate.change, engine=candidate.engine, enough=enough)
            if not self.reached(alone, candidate.needed):
                return alone
        return there.run(candidate.change, engine=candidate.engine, enough=enough)

    def helps(self, change: Change) -> bool:
        """Whether a change alone is enough; not once enough was tried."""
        return not self.exhausted and self.reached(self.outcome(Candidate("", "", change)))


def taken(rehearsal: Rehearsal) -> int:
    """The steps of all sessions, with what it takes to open and close them."""
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
