"""The Standard Workload Format of the Parallel Workloads Archive.

| field | becomes |
|---|---|
| 2 submit time | the arrival, from the first job's |
| 4 run time | the run time |
| 8 requested processors, else 5 allocated ones | the gang: see `Processors` |
| 10 requested memory, else 7 used memory, KB a processor | the memory of its pods, else that of `Processors` |
| 9 requested time | the declared run time |
| 12 user | user and namespace `user-N` |
| 15 queue, or 12 user or 13 group | queue `queue-N`, `user-N` or `group-N` |

Header comments (`; MaxProcs: 1024`) are kept, of those with one name all lines. Jobs that never ran, with a run time or
processors below 1 or cancelled before they started, are left out and counted, and so are the parts of runs (status 2 to
4) that a log lists after a job that was swapped out: its first line has the whole run. Lines that are no jobs are named
with their numbers, and so is where a file is cut off or damaged; what is before that is read. Where several jobs have
one number, as in logs that were put together, each has a name of its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TextIO

import numpy as np

from stromboli.api.words import by_number, counted
from stromboli.lab.processors import Processors
from stromboli.lab.readers.lines import UnreadableLinesError
from stromboli.lab.workload import Job, Workload, in_order

QueueBy = Literal["queue", "user", "group"]

#: fields of a line, counted from 0
_NUMBER, _SUBMIT, _RUN, _ALLOCATED, _USED_MEMORY, _PROCESSORS = 0, 1, 3, 4, 6, 7
_TIME, _MEMORY, _STATUS, _USER, _GROUP, _QUEUE = 8, 9, 10, 11, 12, 14
_FIELDS = 18
#: statuses of lines that stand for a part of a run
_PARTS = (2, 3, 4)
_QUEUES: dict[QueueBy, int] = {"queue": _QUEUE, "user": _USER, "group": _GROUP}
#: lines that are named; the others are counted
_MOST_NAMED = 100
#: comments that are kept
_MOST_COMMENTS = 10_000
#: upper bound on figures: more than any log has, and less than what cannot be counted on
_MOST = 1e12
#: processors of a job: more than any machine has, each as a pod at worst
_MOST_PROCESSORS = 10_000_000


@dataclass(slots=True)
class Trace:
    """A file that was read."""

    workload: Workload
    header: dict[str, str] = field(default_factory=dict)
    #: lines of jobs that never ran, and of parts of runs
    left_out: int = 0


def read_swf(
    lines: Iterable[str], source: str, *, shape: Processors | None = None, queue_by: QueueBy = "queue"
) -> Trace:
    """Read a log or the output of a model; mistakes are in the workload's problems."""
    shape = shape or Processors()
    comments: defaultdict[str, list[str]] = defaultdict(list)
    jobs: list[Job] = []
    taken: Counter[str] = Counter()
    problems = _Problems(source)
    left_out = kept = 0
    for number, text in problems.numbered(lines):
        if not text or text.startswith(";"):
            name, colon, value = text.lstrip("; ").partition(":")
            if colon and kept < _MOST_COMMENTS:
                kept += 1
                comments[name.strip()].append(value.strip())
            continue
        figures, problem = _figures(text)
        if problem:
            problems.add(number, problem)
        elif not _ran(figures):
            left_out += 1
        else:
            name = f"job-{int(figures[_NUMBER])}"
            taken[name] += 1
            own = name if taken[name] == 1 else f"{name}-{taken[name]}"
            jobs.append(_job(figures, own, shape, queue_by))
    told = problems.told()
    if left_out:
        lines_of, left = counted(left_out, "line"), by_number(left_out, "is", "are")
        told.append(f"{source}: {lines_of} of jobs that never ran, or of parts of runs, {left} left out")
    header = {name: "\n".join(values) for name, values in comments.items()}
    return Trace(in_order(jobs, told), header, left_out)


class _Problems:
    """Mistakes in a file: the first lines by number, how many more there are, and where the file is cut off."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named: list[str] = []
        self._count = 0
        self._end = ""

    def numbered(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        """The lines of a file, as far as it can be read."""
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                yield number, line.strip()
        except UnreadableLinesError as error:
            self._end = f"{self._source}: line {number + 1}: {error}, and nothing is read from here on"

    def add(self, number: int, problem: str) -> None:
        self._count += 1
        if len(self._named) < _MOST_NAMED:
            self._named.append(f"{self._source}: line {number}: {problem}")

    def told(self) -> list[str]:
        more = self._count - len(self._named)
        others = [f"{self._source}: {counted(more, 'more line')} cannot be read"] if more else []
        return [*self._named, *others, *([self._end] if self._end else [])]


def _ran(figures: Sequence[float]) -> bool:
    """Whether a line is the run of a job, and the whole of it."""
    return figures[_RUN] > 0 and max(figures[_PROCESSORS], figures[_ALLOCATED]) >= 1 and figures[_STATUS] not in _PARTS


def _figures(text: str) -> tuple[list[float], str]:
    """The fields of a line, or its mistake."""
    words = text.split()
    if len(words) != _FIELDS:
        return [], f"should have {_FIELDS} fields, not {len(words)}"
    if "_" in text or not text.isascii():
        # Python reads 1_000 as well, and digits of other scripts.
        return [], f"should have numbers only: {text[:100]!r}"
    try:
        figures = [float(word) for word in words]
    except ValueError as error:
        return [], f"should have numbers only: {str(error)[:100]}"
    wrong = next((at for at, figure in enumerate(figures) if not abs(figure) < _MOST), None)
    if wrong is not None:
        return [], f"field {wrong + 1}: should be a finite number below 1e12, not {words[wrong][:100]}"
    if max(figures[_PROCESSORS], figures[_ALLOCATED]) > _MOST_PROCESSORS:
        return [], f"should have at most {_MOST_PROCESSORS:,} processors"
    if figures[_SUBMIT] < 0:
        return [], f"submit time: should not be negative: {words[_SUBMIT]}"
    return figures, ""


def _job(figures: list[float], name: str, shape: Processors, queue_by: QueueBy) -> Job:
    wanted = figures[_PROCESSORS] if figures[_PROCESSORS] >= 1 else figures[_ALLOCATED]
    memory = max(figures[_MEMORY] if figures[_MEMORY] > 0 else figures[_USED_MEMORY], 0)
    return Job(
        arrival=figures[_SUBMIT],
        run_time=figures[_RUN],
        gang=shape.gang(int(wanted), int(memory) << 10),
        declared=figures[_TIME] if figures[_TIME] > 0 else math.nan,
        queue=f"{queue_by}-{max(int(figures[_QUEUES[queue_by]]), 0)}",
        user=f"user-{max(int(figures[_USER]), 0)}",
        name=name,
    )


def write_swf(workload: Workload, out: TextIO, comments: Iterable[str] = ()) -> None:
    """Write a workload of processors; properties without a field in the format are lost."""
    out.writelines(f"; {comment}\n" for comment in ("Version: 2.2", f"MaxJobs: {len(workload)}", *comments))
    out.writelines(_line(workload, job) for job in range(len(workload)))


def _line(workload: Workload, job: int) -> str:
    processors = round(workload.gangs[workload.gang[job]].request().get("cpu", 0) / 1000)
    declared = -1 if np.isnan(workload.declared[job]) else round(float(workload.declared[job]))
    fields = dict.fromkeys(range(_FIELDS), -1) | {
        _NUMBER: job + 1,
        _SUBMIT: round(float(workload.arrival[job])),
        _RUN: round(float(workload.run_time[job])),
        _ALLOCATED: processors,
        _PROCESSORS: processors,
        _TIME: declared,
        _STATUS: 1,
        _USER: int(workload.user[job]),
        _QUEUE: int(workload.queue[job]),
    }
    return " ".join(map(str, fields.values())) + "\n"
