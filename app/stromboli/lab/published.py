"""Figures of several seeds: means, deviations, and whether they agree with others'."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence

from stromboli.lab.comparison import Interval
from stromboli.lab.policies import SCORES
from stromboli.lab.trials import Outcome

#: percent of the cards that were asked for, where allocations are compared
AT = (50, 60, 70, 80, 90, 100, 110, 120, 130)
#: means agree when they differ by so many standard deviations at most, and by so much more
_DEVIATIONS, _SLACK = 2.0, 0.3


def agree(mean: Interval, published: Interval) -> bool:
    """Whether a mean agrees with a published one."""
    return abs(mean.mean - published.mean) <= _DEVIATIONS * published.deviation + _SLACK


def allocations(outcomes: Sequence[Outcome]) -> Mapping[tuple[str, str], Mapping[int, Interval]]:
    """The allocation by workload and policy, and by the percent that was asked for."""
    grouped: dict[tuple[str, str], list[list[float | None]]] = {}
    for outcome in outcomes:
        series = outcome.series.get("allocation")
        if series is not None:
            grouped.setdefault((outcome.workload, outcome.policy), []).append(series)
    return {
        pair: {at: mean for at in AT if (mean := Interval.of(one[at] for one in series if at < len(one))).number}
        for pair, series in grouped.items()
    }


def read_published(lines: Iterable[str]) -> Mapping[tuple[str, str], Mapping[int, Interval]]:
    """Published means and deviations, from a table with columns such as `alloc_mean_50` and `alloc_std_50`."""
    names = {published: name for name, published in SCORES.items()}
    found = {}
    for row in csv.DictReader(lines):
        pair = row["workload"].removeprefix("openb_pod_list_"), names.get(row["policy"], row["policy"])
        found[pair] = {
            at: Interval(float(row[f"alloc_mean_{at}"]), float(row[f"alloc_std_{at}"]), int(row["seeds"])) for at in AT
        }
    return found
