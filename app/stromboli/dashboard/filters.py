"""Filters of the dashboard's lists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to report; an empty field matches all."""

    namespace: str = ""
    #: a queue, including its descendants
    queue: str = ""
    reason: str = ""
    phase: str = ""
    #: a part of `NAMESPACE/NAME`
    name: str = ""
    #: what they are sorted by, those that wait first in any case: age, since, priority, position, cards; else by name
    sort: str = ""
