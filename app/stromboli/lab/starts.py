"""Quality of expected starts: of jobs of a workload that wait, the prediction on arrival and the outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stromboli.engine import Engine
from stromboli.explain.answers import Start
from stromboli.explain.past_runs import Kind, PastRuns, Run
from stromboli.explain.rehearsal import Rehearsal
from stromboli.lab.cluster import Cluster
from stromboli.lab.forecast import Forecast, Silent
from stromboli.lab.simulation import BEGIN, run_over_time
from stromboli.lab.timeline import Timeline
from stromboli.lab.workload import Workload


class Told(NamedTuple):
    """The prediction for a job, and when it started, in seconds from then, infinite if it never did."""

    start: Start
    after: float


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of some expected starts. Times are in seconds; figures of nothing are NaN."""

    #: jobs that were asked about, and those with a predicted start
    asked: int
    told: int
    #: median of their wait from then on
    waited: float
    #: between the expected start and the actual one: the median, and 90 % are below the other
    error: float
    error_p90: float
    #: the part that started within the range, and the median width of ranges that have an end
    within: float
    width: float

    @classmethod
    def of(cls, asked: list[Told], tolerance: float) -> Quality:
        """A start may be earlier or later than the range by a `tolerance`."""
        told = [each for each in asked if each.start.expected is not None]
        errors = [abs(each.after - (each.start.expected or 0.0)) for each in told]
        within = [
            (each.start.earliest or 0.0) - tolerance <= each.after <= (_last(each.start) + tolerance) for each in told
        ]
        widths = [_last(each.start) - (each.start.earliest or 0.0) for each in told if each.start.latest is not None]
        return cls(
            asked=len(asked),
            told=len(told),
            waited=_quantile([each.after for each in told], 0.5),
            error=_quantile(errors, 0.5),
            error_p90=_quantile(errors, 0.9),
            within=float(np.mean(within)) if within else math.nan,
            width=_quantile(widths, 0.5),
        )


def _last(start: Start) -> float:
    return math.inf if start.latest is None else start.latest


def _quantile(values: list[float], at: float) -> float:
    # The upper one of two, so that nothing lies between a time and none.
    return float(np.quantile(values, at, method="higher")) if values else math.nan


class _Watch(Silent):
    """Learns the run times of jobs as they end, and which have arrived."""

    def __init__(self, workload: Workload, rows: Mapping[str, int]) -> None:
        self._workload, self._rows = workload, rows
        self.past = PastRuns()
        self.now = BEGIN
        self.new: list[str] = []
        self.started: dict[str, float] = {}

    def passed(self, now: float) -> None:
        self.now = now

    def arrived(self, job: str) -> None:
        self.new.append(job)

    def started_job(self, job: str) -> None:
        self.started.setdefault(job, self.now)
        self.past.starts.started(job, job, self.now)

    def ended_job(self, job: str) -> None:
        workload, row = self._workload, self._rows[job]
        kind = Kind.of("", workload.queues[workload.queue[row]], workload.gangs[workload.gang[row]].min_member)
        declared = float(workload.declared[row])
        self.past.add(kind, Run(float(workload.run_time[row]), 0.0 if math.isnan(declared) else declared, self.now))


def foretold(workload: Workload, cluster: Cluster, engine: Engine, *, period: float, every: int) -> list[Told]:
    """Run a workload, and predict the start of each of a number of jobs that are not placed on arrival.

    Run times are known from what jobs declare and from jobs that have finished by then; ranges are as wide as earlier
    predictions needed.
    """
    asked: dict[str, tuple[float, Start]] = {}
    waited = sessions = 0

    def ask(timeline: Timeline, watch: _Watch) -> None:
        nonlocal waited, sessions
        if timeline.sessions == sessions:
            return
        sessions = timeline.sessions
        for job in _pop(watch.new):
            if job in watch.started:
                continue
            waited += 1
            if waited % every == 0:
                rehearsal = Rehearsal(engine, timeline.state.fork(), timeline.environment, timeline.now)
                start = Forecast(rehearsal, watch.past).start([job])[0]
                asked[job] = timeline.now, start
                watch.past.starts.tell(job, job, start, timeline.now)

    _, watch = run_over_time(workload, cluster, engine.silent(), lambda rows, _: _Watch(workload, rows), period, ask)
    return [Told(start, watch.started.get(job, math.inf) - at) for job, (at, start) in asked.items()]


def _pop(some: list[str]) -> Iterator[str]:
    taken = list(some)
    some.clear()
    yield from taken
