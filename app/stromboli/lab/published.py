"""Figures of several seeds: means, deviations, and whether they agree with others'."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from stromboli.api.errors import StromboliError
from stromboli.lab.comparison import Interval
from stromboli.lab.policies import SCORES
from stromboli.lab.trials import Outcome

#: percent of the cards that were asked for, where allocations are compared
AT = (50, 60, 70, 80, 90, 100, 110, 120, 130)
_COLUMNS = ("workload", "policy", "seeds", *(f"alloc_{what}_{at}" for at in AT for what in ("mean", "std")))
#: means agree if they differ by at most this number of standard deviations plus this difference
_DEVIATIONS, _SLACK = 2.0, 0.3


#: by workload and policy, and by the percent that was asked for
Published: TypeAlias = Mapping[tuple[str, str], Mapping[int, Interval]]


class PublishedError(StromboliError):
    """A table that cannot be read."""


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


def read_published(lines: Iterable[str]) -> Published:
    """Published means and deviations, from a table with columns such as `alloc_mean_50` and `alloc_std_50`.

    Raises PublishedError.
    """
    names = {published: name for name, published in SCORES.items()}
    found = {}
    table = csv.DictReader(lines)
    for name in _COLUMNS:
        if name not in (table.fieldnames or ()):
            raise PublishedError(f"line 1: should have the column {name}")
    for row in table:
        lacking = next((name for name in _COLUMNS if row.get(name) is None), "")
        if lacking:
            raise PublishedError(f"line {table.line_num}: should have the column {lacking}")
        pair = row["workload"].removeprefix("openb_pod_list_"), names.get(row["policy"], row["policy"])
        try:
            found[pair] = {
                at: Interval(float(row[f"alloc_mean_{at}"]), float(row[f"alloc_std_{at}"]), int(row["seeds"]))
                for at in AT
            }
        except ValueError as error:
            raise PublishedError(f"line {table.line_num}: {error}") from None
    return found
