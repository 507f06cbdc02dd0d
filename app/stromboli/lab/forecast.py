"""When waiting jobs will start: the queue is simulated from now by the engine that schedules it.

It is simulated several times. In the first simulation every job runs for the median time of its kind. In each other
one, a job draws its own quantile, which follows from its name and the number of the simulation, so that the same
cluster always gets the same answer. The answer is the median start, with a range that begins before the earliest
simulated start and ends after the latest: jobs that have not arrived yet may go first, and many jobs end early. How
much wider the range must be is learned from earlier answers, see `told_starts`.

A job's run time is known from what it declares, from finished jobs of its kind, or from both: of a declared time, jobs
are taken to need the same fraction as others of their kind. A job without any known run time is taken to run for ever.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.crds import PodGroup, longest_run
from stromboli.api.errors import StromboliError
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.explain.answers import Answer, Start
from stromboli.explain.past_runs import Kind, PastRuns, quantile
from stromboli.explain.rehearsal import Rehearsal, pod_of, terminating
from stromboli.explain.told_starts import WITHIN
from stromboli.explain.words import lasting
from stromboli.explain.work import TooManyStepsError
from stromboli.framework.cluster.started import started_or_scheduled
from stromboli.lab.timeline import Run, Timeline
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord, timestamp
from stromboli.workloads.names import workload_of

#: number of runs of the queue
RUNS = 9
#: sessions and steps that all of it may take, a step being a node looked at
_MOST_SESSIONS, _MOST_STEPS = 3_000, 120_000_000
#: sessions come as parts of the time since now, a second apart at least: after changes, and as time passes
_FINENESS, _COARSENESS = 1e-3, 0.03
#: steps for the start in an answer about a job, and sessions that have to be within them for it to be tried at all
_OF_AN_ANSWER, _FEWEST_SESSIONS = 30_000_000, 30
#: horizon of the forecast, in seconds
_HORIZON = 30 * 86_400.0
#: seconds after which a pod that terminates is gone
_GRACE = 30.0
#: jobs that are named
_MOST_NAMED = 5
#: before it is known of a kind: the parts of a declared time that the quantiles 0, 0.5 and 1 need
_PARTS = (0.5, 1.0, 1.1)
_TOO_LONG = "running the queue forward takes too long"
_UNKNOWN = "nothing says how long some jobs run that hold what it needs"
_GOLDEN = (math.sqrt(5) - 1) / 2
_GONE = frozenset((int(PodState.Succeeded), int(PodState.Failed)))
#: reasons of jobs that are not placed, whatever becomes of others
_FOR_GOOD = frozenset(("MaximumRunTimeExceeded", "NeverFits", "NotEnoughPods", "QueueNotFound", "QueueNotOpen"))


class TooMuchWorkError(StromboliError):
    """Running the queue forward took as much work as it may."""

    def __init__(self) -> None:
        super().__init__(_TOO_LONG)


class Silent:
    """A log that is discarded."""

    def passed(self, now: float) -> None: ...

    def arrived(self, job: str) -> None: ...

    def placed(self, pod: PodRecord) -> None: ...

    def removed(self, pod: PodRecord) -> None: ...

    def started_job(self, job: str) -> None: ...

    def restarted(self, job: str, lost: float) -> None: ...

    def evicted(self, pod: PodRecord) -> None: ...

    def ended_job(self, job: str) -> None: ...


class Known(NamedTuple):
    """A job in the cluster, and its possible run times."""

    need: int
    pods: tuple[str, ...]
    placed: int
    #: seconds since the epoch, NaN before it starts
    began: float
    #: by run, infinite where nothing says it
    lengths: Vector
    #: whether it has run for longer than declared
    overdue: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    #: seconds from now until each job that was asked for starts, infinite where it does not
    after: tuple[float, ...]
    #: horizon of the forecast, in seconds from now
    until: float
    #: jobs that hold places then and never end, since their run time is unknown
    unknown: tuple[str, ...]
    #: jobs that were over by then, and have run for longer than declared
    overdue: tuple[str, ...]
    #: whether it ended for the work that it took, and not because nothing more can happen
    cut: bool


class Forecast:
    """Runs a cluster forward. One that was made is for one question."""

    def __init__(self, rehearsal: Rehearsal, past: PastRuns, most_steps: int | None = None) -> None:
        self._rehearsal, self._past = rehearsal, past
        self._most_steps = _MOST_STEPS if most_steps is None else most_steps
        self._now = rehearsal.now
        self._sessions = self._steps = 0
        self._state = rehearsal.state.fork()
        _settle(self._state, self._now)
        self._terminating = terminating(self._state)
        self._jobs = dict(self._known())

    def start(self, jobs: Sequence[str]) -> list[Start]:
        """Expected start of each of some waiting jobs. Raises AbandonedError."""
        outcomes: list[Outcome] = []
        try:
            for number in range(RUNS):
                if number and self._rehearsal.late():
                    break
                outcome = self._run(number, jobs)
                if outcome.cut and number:
                    break
                outcomes.append(outcome)
                if outcome.cut:
                    break
        except (TooMuchWorkError, TooManyStepsError):
            pass
        return [self._told(job, place, outcomes) for place, job in enumerate(jobs)]

    # -- one run ---------------------------------------------------------------------------------------------------

    def _run(self, number: int, jobs: Sequence[str], *, unknown: float = math.inf) -> Outcome:
        """Run the queue until some jobs have started; jobs with an unknown run time run for `unknown` seconds."""
        engine = self._rehearsal.engine.silent().unbounded().watched(self._step)
        timeline = Timeline(engine, self._state.fork(), self._rehearsal.environment, begin=self._now, log=Silent())
        for key, job in self._jobs.items():
            length = float(job.lengths[number])
            run = Run(job.need, length if math.isfinite(length) else unknown, list(job.pods), job.placed, job.began)
            timeline.running(key, run)
        for key in self._terminating:
            timeline.running(f"terminating {key}", Run(1, _GRACE, [key], 1, self._now))
        started: dict[str, float] = {}
        before, cut = 0, False

        def enough() -> bool:
            nonlocal before, cut
            self._sessions += timeline.sessions - before
            before = timeline.sessions
            passed = timeline.now - self._now
            timeline.period, timeline.pause = max(1.0, _FINENESS * passed), max(1.0, _COARSENESS * passed)
            for job in jobs:
                run = timeline.runs.get(job)
                if job not in started and run is not None and not math.isnan(run.started):
                    started[job] = run.started - self._now
            cut = self._sessions >= _MOST_SESSIONS or self._rehearsal.late()
            return len(started) == len(jobs) or cut or passed > _HORIZON

        timeline.go(enough=enough)
        held = tuple(
            key
            for key, job in self._jobs.items()
            if math.isinf(job.lengths[number])
            and key in timeline.runs
            and timeline.runs[key].placed
            and key not in jobs
        )
        overdue = tuple(key for key, job in self._jobs.items() if job.overdue and key not in timeline.runs)
        after = tuple(started.get(job, math.inf) for job in jobs)
        return Outcome(after, timeline.now - self._now, held, overdue, cut and len(started) < len(jobs))

    def _step(self, steps: int) -> None:
        self._rehearsal.step(steps)
        self._steps += steps
        if self._steps > self._most_steps:
            raise TooMuchWorkError

    # -- results ---------------------------------------------------------------------------------------------------

    def _told(self, job: str, place: int, outcomes: Sequence[Outcome]) -> Start:
        starts = sorted(outcome.after[place] for outcome in outcomes)
        reached = [each for each in starts if math.isfinite(each)]
        unknown, unknown_count = self._named(key for outcome in outcomes for key in outcome.unknown)
        overdue, overdue_count = self._named(key for outcome in outcomes for key in outcome.overdue)
        said = Start(
            started=len(reached),
            simulated=len(outcomes),
            unknown=unknown,
            unknown_count=unknown_count,
            overdue=overdue,
            overdue_count=overdue_count,
        )
        if not outcomes:
            return replace(said, why=_TOO_LONG)
        if not reached:
            return self._never(said, job, outcomes[0])
        middle, last = starts[len(starts) // 2], starts[-1]
        within, of = self._past.starts.share or (WITHIN, 0)
        wider = self._past.starts.widening
        return replace(
            said,
            expected=middle if math.isfinite(middle) else None,
            within=within,
            within_of=of,
            earliest=wider.sooner * reached[0],
            latest=wider.later * last if math.isfinite(last) else None,
            first=reached[0],
            last=last if math.isfinite(last) else None,
        )

    def _named(self, jobs: Iterable[str]) -> tuple[list[str], int]:
        """Names of the first of some jobs, and the number of all."""
        keys = sorted(set(jobs))
        groups = ((key, self._rehearsal.state.pod_group(key)) for key in keys[:_MOST_NAMED])
        return [group.called if group is not None else key for key, group in groups], len(keys)

    def _never(self, said: Start, job: str, first: Outcome) -> Start:
        """Why a job did not start in any of the runs."""
        if first.cut or first.until > _HORIZON:
            why = f"not within the next {lasting(min(first.until, _HORIZON))}, for which the queue was run forward"
            return replace(said, why=why)
        try:
            if said.unknown and math.isfinite(self._run(0, [job], unknown=0.0).after[0]):
                return replace(said, why=_UNKNOWN)
        except (TooMuchWorkError, TooManyStepsError):
            return replace(said, why=_UNKNOWN)
        return replace(said, why="it would not start even if all that runs were over", unknown=[], unknown_count=0)

    # -- facts about the jobs --------------------------------------------------------------------------------------

    def _known(self) -> Iterator[tuple[str, Known]]:
        pods: defaultdict[str, list[PodRecord]] = defaultdict(list)
        over: Counter[str] = Counter()
        states, terminating = self._state.pods.state, set(self._terminating)
        for record in self._state.pods.records:
            if record is None or not record.job or record.key in terminating:
                continue
            if states[record.row] in _GONE:
                over[record.job] += 1
            else:
                pods[record.job].append(record)
        for key in sorted(pods):
            group = self._state.pod_group(key)
            if group is not None:
                yield key, self._known_of(group, pods[key], max(1, group.spec.min_member - over[key]))

    def _known_of(self, group: PodGroup, pods: Sequence[PodRecord], need: int) -> Known:
        placed = [pod for pod in pods if pod.node_name]
        began = math.nan
        if len(placed) >= need:
            began = max(min(started_or_scheduled(pod), self._now) or self._now for pod in placed)
        kind = Kind.of(workload_of(group), group.queue, group.spec.min_member)
        passed = 0.0 if math.isnan(began) else self._now - began
        declared = longest_run(group.run_time, (pod.deadline for pod in pods))
        lengths = expected_lengths(self._past, kind, declared, passed, quantiles(group.key))
        overdue = declared is not None and passed > declared
        return Known(need, tuple(pod.key for pod in pods), len(placed), began, lengths, overdue)


def with_start(answer: Answer, rehearsal: Rehearsal, past: PastRuns) -> Answer:
    """The answer about a job that waits, or a pod of one, with when it is expected to start, if it can."""
    waits = bool(answer.reason) and answer.placed < answer.min_member <= answer.pods
    key = f"{answer.namespace}/{answer.name if answer.kind == 'Job' else answer.group}"
    if not waits or answer.reason in _FOR_GOOD or not _has_pods_without_nodes(rehearsal.state, key):
        return answer
    begun = rehearsal.begun
    if begun is not None and (begun.in_part or begun.steps * _FEWEST_SESSIONS > _OF_AN_ANSWER):
        return replace(answer, start=Start(why=_TOO_LONG))
    start = Forecast(rehearsal, past, _OF_AN_ANSWER).start([key])[0]
    group = rehearsal.state.pod_group(key)
    if group is not None:
        past.starts.tell(key, group.metadata.uid, start, rehearsal.now)
    return replace(answer, start=start)


def _has_pods_without_nodes(state: ClusterState, job: str) -> bool:
    """Whether a job has pods that wait for places, and not only such as others are to be made for."""
    return any(record is not None and record.job == job and not record.node_name for record in state.pods.records)


def _settle(state: ClusterState, now: float) -> None:
    """Let pods run whose binding is under way."""
    rows = np.flatnonzero(state.pods.state[: state.pods.size] == PodState.Binding).tolist()
    for record in [record for row in rows if (record := state.pods.records[row]) is not None]:
        running = objects.PodStatus(phase="Running", start_time=timestamp(now))
        state.upsert("Pod", pod_of(record, state.assumed.get(record.key, record.node_name), running))


def quantiles(job: str) -> Vector:
    """The quantile of its run time that a job has in each run: the median in the first."""
    first = zlib.crc32(job.encode()) / 2**32
    drawn = [(first + _GOLDEN * number) % 1.0 for number in range(1, RUNS)]
    return np.array([0.5, *drawn])


def expected_lengths(past: PastRuns, kind: Kind, declared: float | None, passed: float, at: Vector) -> Vector:
    """Total run time of a job that has run for `passed`, at some quantiles; infinite if that is not known."""
    if declared:
        parts = past.parts(kind) or np.interp(np.linspace(0, 1, 21), [0, 0.5, 1], _PARTS).tolist()
        known = [part * declared for part in parts]
        # One that is over its time is expected to be late by as much again at most.
        beyond: Vector = passed + at * max(passed - declared, 0.0)
    else:
        known = list(past.lengths(kind))
        if not known:
            return np.full(len(at), np.inf)
        # One that runs for longer than all others is expected to run for as long again at most.
        beyond = passed * (1 + at)
    found = np.array([quantile(known, each, passed) for each in at.tolist()])
    lengths: Vector = np.where(np.isnan(found), beyond, found)
    return lengths
