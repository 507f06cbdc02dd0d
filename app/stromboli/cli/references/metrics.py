"""The page about metrics, written from their definitions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from stromboli.cli.references.tables import code, table
from stromboli.metrics.definitions import SUBJECTS, Definition, definitions

_HEADER = """\
# Metrics

`/metrics` has Volcano's metrics under Volcano's names, with their units and labels, and `stromboli_*` for the rest,
whose label for a queue is `queue`. Gauges are of the last session that this replica ran, so all of them fit together;
replicas that wait have none. What is gone has no series: queues, jobs and their counters are dropped with them.

A histogram NAME is scraped as `NAME_bucket`, `NAME_sum` and `NAME_count`. Beside these there is what the process takes:
`process_cpu_seconds_total`, `process_resident_memory_bytes` and others of `process_*`.
[Operations](operations.md#watch) says what to ask, and the chart has alerts and a dashboard.
"""


def markdown() -> str:
    """The page."""
    return "\n".join([_HEADER, *_sections()])


def _sections() -> Iterator[str]:
    for title, subject in SUBJECTS.items():
        yield f"## {title}\n"
        yield f"{' '.join((inspect.getdoc(subject) or '').split())}\n"
        yield table(("metric", "type", "labels", ""), map(_row, definitions(subject)))


def _row(definition: Definition) -> tuple[str, ...]:
    text = definition.text
    if definition.buckets:
        text += f" Buckets from {definition.buckets[0]:g} to {definition.buckets[-1]:g}."
    return code(definition.name), definition.kind, code(*definition.labels), text
