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
    #: what they are sorted by, those that wait first in any case: age, since, priority, position, cards; else by name
    sort: str = ""

    def matches(self, namespace: str, name: str, workload: str, phase: str) -> bool:
        """Whether a job is one of them as far as its namespace, its name, its workload's and its phase say."""
        return (
            self.namespace in ("", namespace)
            and (self.name in f"{namespace}/{name}" or self.name in workload)
            and self.phase in ("", phase or "Pending")
        )
