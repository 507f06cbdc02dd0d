"""Policies compared: means with confidence, which are not outdone by another, and what each costs whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, nan, sqrt

import numpy as np

from stromboli.lab.trials import Outcome

#: quantiles of Student's t for an interval of 95 %, by degrees of freedom from 1
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.179, 2.145, 2.12, 2.101, 2.086)
_NORMAL = 1.96
#: from here on fractions of a mean are of no interest
_LARGE = 1_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds, and the sample standard deviation, 0 for a single seed."""

    mean: float
    deviation: float
    number: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Interval:
        """The interval of some values; None and NaN are left out."""
        found = np.array([value for value in values if value is not None and value == value], np.float64)
        mean = float(found.mean()) if len(found) else float("nan")
        return cls(mean, float(found.std(ddof=1)) if len(found) > 1 else 0.0, len(found))

    @property
    def half(self) -> float:
        """Half the width of the 95 % confidence interval of the mean of all seeds; NaN for a single seed."""
        degrees = self.number - 1
        if degrees < 1:
            return float("nan")
        quantile = _T[degrees - 1] if degrees <= len(_T) else _NORMAL
        return quantile * self.deviation / sqrt(self.number)

    def __str__(self) -> str:
        whole = self.mean.is_integer() and not self.deviation
        places = 0 if whole or abs(self.mean) >= _LARGE else 2
        if self.half != self.half:
            return f"{self.mean:,.{places}f}"
        return f"{self.mean:,.{places}f} ± {self.half:,.{places}f}"


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure by which policies are compared."""

    figure: str
    words: str
    #: whether more of it is better
    more: bool = True


#: figures that policies are compared by: the first pair with values
OBJECTIVES: Sequence[tuple[Objective, Objective]] = (
    (Objective("utilization", "utilization, %"), Objective("waiting_mean", "mean waiting, s", more=False)),
    (Objective("allocation", "cards allocated, %"), Objective("worst_off", "pods placed of the worst-off kind, %")),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A policy on a workload."""

    policy: str
    figures: dict[str, Interval]
    #: figures of each queue, or of each kind of pods
    queues: dict[str, dict[str, Interval]]
    #: a mean over seeds for each point, by name
    series: dict[str, list[float | None]]
    #: policies that are better by one objective and not worse by the other; none for one on the front
    outdone_by: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies on one workload."""

    workload: str
    objectives: tuple[Objective, Objective]
    lines: list[Line]

    @property
    def front(self) -> list[Line]:
        """The policies that no other outdoes."""
        return [line for line in self.lines if not line.outdone_by]


def compare(outcomes: Sequence[Outcome]) -> list[Comparison]:
    """A comparison for each workload, in the order in which they come."""
    by_workload: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        by_workload.setdefault(outcome.workload, {}).setdefault(outcome.policy, []).append(outcome)
    found = []
    for workload, by_policy in by_workload.items():
        lines = [_line(policy, of_policy) for policy, of_policy in by_policy.items()]
        objectives = next(
            (pair for pair in OBJECTIVES if any(each.figure in line.figures for each in pair for line in lines)),
            OBJECTIVES[-1],
        )
        for line in lines:
            line.outdone_by.extend(other.policy for other in lines if _outdoes(other, line, objectives))
        found.append(Comparison(workload, objectives, lines))
    return found


def _line(policy: str, outcomes: Sequence[Outcome]) -> Line:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.queues)
    return Line(
        policy,
        _intervals([outcome.figures for outcome in outcomes]),
        {name: _intervals([outcome.queues[name] for outcome in outcomes if name in outcome.queues]) for name in names},
        {
            name: _means([outcome.series[name] for outcome in outcomes if name in outcome.series])
            for name in dict.fromkeys(name for outcome in outcomes for name in outcome.series)
        },
    )


def _intervals(figures: Sequence[dict[str, float]]) -> dict[str, Interval]:
    names = dict.fromkeys(name for each in figures for name in each)
    return {name: Interval.of(each[name] for each in figures if name in each) for name in names}


def _means(series: Sequence[list[float | None]]) -> list[float | None]:
    out: list[float | None] = []
    for at in range(max(map(len, series))):
        there = [value for each in series if at < len(each) and (value := each[at]) is not None]
        out.append(sum(there) / len(there) if there else None)
    return out


def _outdoes(one: Line, other: Line, objectives: tuple[Objective, Objective]) -> bool:
    """Whether a policy is better in the mean by one objective, and not worse by the other."""
    pairs = [(_merit(one, each), _merit(other, each)) for each in objectives]
    return all(mine >= theirs for mine, theirs in pairs) and any(mine > theirs for mine, theirs in pairs)


def _merit(line: Line, objective: Objective) -> float:
    """The mean of an objective, the more the better; nothing is worse than none, as where no job ever starts."""
    mean = line.figures[objective.figure].mean if objective.figure in line.figures else nan
    if isnan(mean):
        return -inf
    return mean if objective.more else -mean
