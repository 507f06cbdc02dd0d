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
    #: a part of `NAMESPACE/NAME`, or of the workload's `KIND/NAME`
    name: str = ""
