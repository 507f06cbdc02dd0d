"""A journal of this service (`stromboli record`, `--journal-dir`) as a workload.

| of the journal | becomes |
|---|---|
| a PodGroup with pods, or a pod without one | a job |
| when the first of its pods came; what was there at the beginning came then | the arrival, from the first job's |
| how long the longest of its pods ran, a pod and those in its stead being one | the run time |
| `stromboli.io/run-time`, or the longest `activeDeadlineSeconds` if all pods have one | the declared run time |
| `spec.queue`, `spec.minMember` and the pods | queue and gang |
| the namespace | the user |
| the value of its PriorityClass | the priority |

A job that outlasts the recording runs for its declared run time, or else as long as it was seen. One that was withdrawn
before it ran is left out. A file that is damaged is named with the problem; if it is cut off, what is whole counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from stromboli.api import crds, duration
from stromboli.framework.registry import Registry
from stromboli.journal import JournalError, read, segments
from stromboli.journal.events import Put
from stromboli.journal.history import History, Work, history_of
from stromboli.journal.replay import Engines
from stromboli.journal.wire import Entry
from stromboli.lab.readers.manifests import declared_run_time, gang_of
from stromboli.lab.workload import Gang, Job, Workload, WorkloadError, in_order

#: first bytes of a journal
_BEGINS = b"stromboli journal "


def is_journal(path: Path) -> bool:
    """Whether a file, or the first of a folder, is a journal."""
    if path.is_dir():
        return any(segments(path))
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:
        return False


def read_journal(path: Path, registry: Registry) -> Workload:
    """Read the jobs of a journal, or of a folder of journals; what is cut off is in the workload's problems.

    Raises WorkloadError where nothing can be made of it.
    """
    problems: list[str] = []
    try:
        history = history_of(_entries(path, problems), Engines(registry))
    except JournalError as error:
        raise WorkloadError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    back = max((before - now for before, now in pairwise(history.sessions)), default=0.0)
    if back > duration.CLOCK_STEP:
        two = f"goes back in time by {back:.0f} s, as two recordings in one do: run times may be wrong"
        problems.append(f"{path}: {two}")
    return in_order(_jobs(history), problems)


def _entries(path: Path, problems: list[str]) -> Iterator[Entry]:
    for each in segments(path) if path.is_dir() else [path]:
        file: BinaryIO
        with each.open("rb") as file:
            yield from read(str(each), file, problems.append)


def _jobs(history: History) -> Iterator[Job]:
    groups: dict[str, crds.PodGroup] = {}
    classes: dict[str, int] = {}
    for _, event in history.events:
        match event:
            case Put("PodGroup", key, group):
                groups[key] = group
            case Put("PriorityClass", key, obj):
                classes[key] = obj.value
    works: defaultdict[str, list[Work]] = defaultdict(list)
    for work in history.works:
        if work.withdrawn is None:
            works[work.job or f"{work.pod.metadata.namespace}/{work.pod.metadata.name}"].append(work)
    gangs: dict[bytes, Gang] = {}
    for key, of_job in works.items():
        yield _job(key, groups.get(key), of_job, history.until, classes, gangs)


def _job(
    key: str,
    group: crds.PodGroup | None,
    works: Sequence[Work],
    until: float,
    classes: Mapping[str, int],
    gangs: dict[bytes, Gang],
) -> Job:
    pods = [work.pod for work in works]
    arrived = min(work.arrived for work in works)
    declared = declared_run_time(group, pods)
    seen = max(until - work.arrived if work.runs is None else work.runs for work in works)
    outlasts = any(work.runs is None for work in works) and not math.isnan(declared)
    namespace, _, name = key.partition("/")
    told: dict[str, Any] = {}
    if group is not None:
        told = {"queue": group.queue, "priority": classes.get(group.spec.priority_class_name, 0)}
    least = 1 if group is None else min(group.spec.min_member, len(pods))
    return Job(
        arrived,
        max(declared, seen) if outlasts else seen,
        gang_of(pods, least, gangs),
        declared,
        user=namespace,
        name=name,
        **told,
    )
