"""The results of a workload, in columns: its jobs, its queues, and the cluster over time.

The wait is the time from a job's arrival to its last start, the turnaround that to its end. Bounded slowdown is
turnaround divided by run time, where a run time counts as at least 10 s, so that very short jobs do not outweigh all
others. Jobs that did not start or end have NaN.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.api.errors import StromboliError
from stromboli.lab.recorder import Recorder
from stromboli.lab.workload import Workload

Floats = npt.NDArray[np.float64]
#: columns of one length by name
Table: TypeAlias = Mapping[str, Sequence[Any] | npt.NDArray[Any]]

#: run times count as this much at least in slowdowns, seconds
_BOUND = 10.0


class MissingLibraryError(StromboliError):
    """A format that needs a library that is not installed."""


@dataclass(frozen=True, slots=True)
class Results:
    """The tables; times are in seconds since the workload began, amounts of `resource` in base units."""

    resource: str
    jobs: Table
    queues: Table
    samples: Table
    #: figures of the whole
    total: Mapping[str, float]

    @classmethod
    def of(cls, workload: Workload, recorder: Recorder, sessions: int) -> Results:
        """Results from what a recorder kept."""
        jobs = _jobs(workload, recorder)
        return cls(
            resource=recorder.resource,
            jobs=jobs,
            queues=_queues(workload, recorder, jobs),
            samples=_samples(workload, recorder),
            total=_total(recorder, jobs, sessions),
        )

    def write(self, folder: Path, suffix: str) -> list[Path]:
        """Write the tables to `jobs`, `queues` and `samples` in a folder, as `csv` or `parquet`.

        Raises StromboliError.
        """
        prepare(folder, suffix)
        tables = {"jobs": self.jobs, "queues": self.queues, "samples": self.samples}
        return [write_table(table, folder / f"{name}.{suffix}") for name, table in tables.items()]


def _jobs(workload: Workload, recorder: Recorder) -> dict[str, Any]:
    started, ended = recorder.started, recorder.ended
    waiting, turnaround = started - workload.arrival, ended - workload.arrival
    return {
        "name": [workload.name(job) for job in range(len(workload))],
        "user": [workload.users[user] for user in workload.user.tolist()],
        "queue": [workload.queues[queue] for queue in workload.queue.tolist()],
        "pods": np.array([gang.size for gang in workload.gangs])[workload.gang],
        "requested": workload.requests(recorder.resource),
        "arrival": workload.arrival,
        "run_time": workload.run_time,
        "declared": workload.declared,
        "started": started,
        "ended": ended,
        "waiting": waiting,
        "turnaround": turnaround,
        "slowdown": np.maximum(turnaround / np.maximum(workload.run_time, _BOUND), 1.0),
        "evictions": recorder.evictions,
        "restarts": recorder.restarts,
        "lost": recorder.lost,
    }


def _queues(workload: Workload, recorder: Recorder, jobs: Mapping[str, Any]) -> dict[str, Any]:
    of_queue = [workload.queue == number for number in range(len(workload.queues))]
    figures = [_of_jobs(jobs, mask) for mask in of_queue]
    columns: dict[str, Any] = {"queue": list(workload.queues)}
    columns |= {name: np.array([figure[name] for figure in figures]) for name in _of_jobs(jobs, slice(None))}
    columns["share"] = recorder.used / recorder.offered if recorder.offered else np.zeros(len(workload.queues))
    return columns


def _of_jobs(jobs: Mapping[str, Any], some: npt.NDArray[np.bool_] | slice) -> dict[str, float]:
    """Figures of some jobs."""
    waiting, slowdown = jobs["waiting"][some], jobs["slowdown"][some]
    waited, slowed = waiting[~np.isnan(waiting)], slowdown[~np.isnan(slowdown)]
    return {
        "jobs": float(len(waiting)),
        "ended": float(len(slowed)),
        "waiting_mean": _or_nan(np.mean, waited),
        "waiting_median": _or_nan(np.median, waited),
        "waiting_p95": _or_nan(lambda values: np.quantile(values, 0.95), waited),
        "waiting_max": _or_nan(np.max, waited),
        "turnaround_mean": _or_nan(np.nanmean, jobs["turnaround"][some][~np.isnan(slowdown)]),
        "slowdown_mean": _or_nan(np.mean, slowed),
        "slowdown_median": _or_nan(np.median, slowed),
        "evictions": float(jobs["evictions"][some].sum()),
        "lost": float((jobs["lost"][some] * jobs["requested"][some]).sum()),
    }


def _or_nan(figure: Any, values: Floats) -> float:
    return float(figure(values)) if len(values) else float("nan")


def _samples(workload: Workload, recorder: Recorder) -> dict[str, Any]:
    samples = recorder.samples
    held = np.array([sample.held for sample in samples]).reshape(len(samples), len(workload.queues))
    columns: dict[str, Any] = {
        "time": np.array([sample.time for sample in samples]),
        "capacity": np.array([sample.capacity for sample in samples]),
        "held": held.sum(axis=1),
        "waiting_jobs": np.array([sample.waiting_jobs for sample in samples], np.int64),
        "fragmentation": np.array([sample.fragmentation for sample in samples]),
    }
    return columns | {f"held by {name}": held[:, number] for number, name in enumerate(workload.queues)}


def _total(recorder: Recorder, jobs: Mapping[str, Any], sessions: int) -> dict[str, float]:
    fragmentation = np.array([sample.fragmentation for sample in recorder.samples])
    return _of_jobs(jobs, slice(None)) | {
        "utilization": float(recorder.used.sum()) / recorder.offered if recorder.offered else float("nan"),
        "utilization_while_arriving": recorder.while_arriving,
        "fragmentation": _or_nan(np.mean, fragmentation[~np.isnan(fragmentation)]),
        "makespan": recorder.now,
        "sessions": float(sessions),
    }


def prepare(folder: Path, suffix: str) -> None:
    """Make a folder for tables, and find out if they can be written, before much is done for them.

    Raises MissingLibraryError, and StromboliError where there can be no such folder.
    """
    if suffix == "parquet":
        _parquet()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StromboliError(f"{folder}: {error.strerror}") from None


def write_table(table: Table, path: Path) -> Path:
    """Write columns to a file, as CSV or, where its name ends so, Parquet. Raises MissingLibraryError."""
    if path.suffix == ".parquet":
        _write_parquet(table, path)
        return path
    columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in table.values()]
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(table)
        writer.writerows([_plain(value) for value in row] for row in zip(*columns, strict=True))
    return path


def _plain(value: Any) -> Any:
    """A value as text: empty for NaN, without a fraction for whole numbers."""
    if not isinstance(value, float):
        return value
    if value != value:
        return ""
    return int(value) if value.is_integer() else round(value, 6)


def _write_parquet(table: Table, path: Path) -> None:
    pyarrow = _parquet()
    pyarrow.parquet.write_table(pyarrow.table(dict(table)), path)


def _parquet() -> Any:
    """The library that writes Parquet. Raises MissingLibraryError."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingLibraryError("Parquet needs pyarrow: pip install 'stromboli[lab]'") from None
    return pyarrow
