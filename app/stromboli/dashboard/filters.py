"""Filters of the dashboard's lists."""

from __future__ import annotations

from dataclasses import dataclass

from stromboli.explain.overview import JobRow


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter of jobs; an empty field matches all."""

    namespace: str = ""
    #: a queue, including its descendants
    queue: str = ""
    reason: str = ""
    phase: str = ""
    #: a part of `NAMESPACE/NAME`, or of the workload's `KIND/NAME`
    name: str = ""
    #: sort key, waiting ones first in any case: age, since, priority, position, cards; else by name
    sort: str = ""
    #: a kind of cards that they ask for
    cards: str = ""
    #: a priority that they have at least
    priority: int | None = None

    @property
    def reads_rows(self) -> bool:
        """Whether rows are needed to tell which jobs these are, and in which order."""
        return bool(self.sort or self.cards or self.priority is not None)

    def of_row(self, row: JobRow) -> bool:
        """Whether a job is one of them as far as its cards and its priority say."""
        return (not self.cards or self.cards in row.cards) and (self.priority is None or row.priority >= self.priority)

    def matches(self, namespace: str, name: str, workload: str, phase: str) -> bool:
        """Whether a job is one of them as far as its namespace, its name, its workload's and its phase say."""
        return (
            self.namespace in ("", namespace)
            and (self.name in f"{namespace}/{name}" or self.name in workload)
            and self.phase in ("", phase or "Pending")
        )
