"""Figures of several seeds: means, deviations, and whether they agree with others'."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.lab.policies import SCORES
from stromboli.lab.trials import Outcome

#: percent of the cards that were asked for, where allocations are compared
AT = (50, 60, 70, 80, 90, 100, 110, 120, 130)
#: means agree when they differ by so many standard deviations at most, and by so much more
_DEVIATIONS, _SLACK = 2.0, 0.3


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds, and the sample standard deviation."""

    mean: float
    deviation: float
    number: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Mean | None:
        """The mean of what there is, None where there is nothing."""
        found = np.array([value for value in values if value is not None], np.float64)
        if not len(found):
            return None
        return cls(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else 0.0, len(found))

    def agrees(self, other: Mean) -> bool:
        """Whether this mean agrees with a published one."""
        return abs(self.mean - other.mean) <= _DEVIATIONS * other.deviation + _SLACK


def allocations(outcomes: Sequence[Outcome]) -> Mapping[tuple[str, str], Mapping[int, Mean]]:
    """The allocation by workload and policy, and by the percent that was asked for."""
    grouped: dict[tuple[str, str], list[list[float | None]]] = {}
    for outcome in outcomes:
        series = outcome.series.get("allocation")
        if series is not None:
            grouped.setdefault((outcome.workload, outcome.policy), []).append(series)
    return {
        pair: {
            at: mean for at in AT if (mean := Mean.of(one[at] if at < len(one) else None for one in series)) is not None
        }
        for pair, series in grouped.items()
    }


def read_published(lines: Iterable[str]) -> Mapping[tuple[str, str], Mapping[int, Mean]]:
    """Published means and deviations, from a table with columns such as `alloc_mean_50` and `alloc_std_50`."""
    names = {published: name for name, published in SCORES.items()}
    found = {}
    for row in csv.DictReader(lines):
        pair = row["workload"].removeprefix("openb_pod_list_"), names.get(row["policy"], row["policy"])
        found[pair] = {
            at: Mean(float(row[f"alloc_mean_{at}"]), float(row[f"alloc_std_{at}"]), int(row["seeds"])) for at in AT
        }
    return found
