"""Run times of finished jobs, by owner, queue and size.

A job without a declared run time is expected to run as long as past jobs of its kind. For jobs with a declared maximum,
the fraction of it that jobs of their kind needed is learned.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stromboli.api.crds import PodGroup, longest_run
from stromboli.api.pod_state import PodState
from stromboli.explain.told_starts import ToldStarts
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord, seconds
from stromboli.workloads.names import workload_of

#: runs that are remembered of a kind, and kinds
_RUNS, _KINDS = 32, 1_000
#: runs of a kind from which something follows
_ENOUGH = 3
#: the longest run that is believed, in seconds
_LONGEST = 10.0 * 366 * 86_400
#: rounding error of a written time
_ROUNDING = 0.1


class Kind(NamedTuple):
    """The properties shared by jobs with similar run times; an empty part stands for any."""

    #: `Job`, `RayJob`, ...
    owner: str
    queue: str
    #: the power of two next to the number of pods that start together, 0 for any
    size: int

    @classmethod
    def of(cls, workload: str, queue: str, pods: int) -> Kind:
        """The kind of a job: its workload as KIND/NAME, its queue, and the number of pods that start together."""
        return cls(workload.partition("/")[0], queue, 1 << max(pods - 1, 0).bit_length())

    def wider(self) -> Iterator[Kind]:
        """The kind, and those that it belongs to, the narrowest first."""
        yield self
        yield Kind(self.owner, self.queue, 0)
        yield Kind(self.owner, "", 0)


class Run(NamedTuple):
    """A run that has ended."""

    #: its run time, in seconds
    seconds: float
    #: its declared maximum run time, 0 without one
    declared: float
    #: seconds since the epoch
    ended: float


class PastRuns:
    """The newest runs of each kind, as many kinds as there is room for, those that were seen last."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Kind, deque[Run]] = OrderedDict()
        self._added = 0
        #: when jobs were told that they would start, which follows from these
        self.starts = ToldStarts()

    @property
    def added(self) -> int:
        """Number of additions so far."""
        return self._added + self.starts.added

    def add(self, kind: Kind, run: Run) -> None:
        """A job is over."""
        if not 0 < run.seconds <= _LONGEST:
            return
        for each in kind.wider():
            self._runs.setdefault(each, deque(maxlen=_RUNS)).append(run)
            self._runs.move_to_end(each)
        while len(self._runs) > _KINDS:
            self._runs.popitem(last=False)
        self._added += 1

    def lengths(self, kind: Kind) -> Sequence[float]:
        """The run times of a kind, or of the nearest kind with enough known runs, ascending; empty if there is none."""
        return self._known(kind, lambda run: run.seconds)

    def parts(self, kind: Kind) -> Sequence[float]:
        """The fraction of its declared run time that each job of a kind needed."""
        return self._known(kind, lambda run: run.seconds / run.declared if run.declared else math.nan)

    def _known(self, kind: Kind, read: Callable[[Run], float]) -> Sequence[float]:
        for each in kind.wider():
            # A thread that foresees reads what the event loop adds to.
            found = [value for run in list(self._runs.get(each, ())) if not math.isnan(value := read(run))]
            if len(found) >= _ENOUGH:
                return sorted(found)
        return ()

    # -- beyond the process ----------------------------------------------------------------------------------------

    def as_data(self) -> object:
        """The runs as plain data, for storage."""
        rows = [[*kind, [[round(value, 1) for value in run] for run in runs]] for kind, runs in self._runs.items()]
        return {"kinds": rows, "starts": self.starts.as_data()}

    def restore(self, data: Any) -> None:
        """Restore stored data. Raises ValueError, KeyError or TypeError."""
        runs: OrderedDict[Kind, deque[Run]] = OrderedDict()
        latest = 0.0
        for owner, queue, size, written in data["kinds"][-_KINDS:]:
            kind = Kind(str(owner), str(queue), int(size))
            values = np.array(written, np.float64).reshape(-1, 3)
            if not (np.isfinite(values).all() and (values >= 0).all() and (values[:, 0] <= _LONGEST).all()):
                raise ValueError(f"runs of {kind} are no times")
            runs[kind] = deque((Run(*row) for row in values.tolist()), maxlen=_RUNS)
            latest = max(latest, float(values[:, 2].max(initial=0.0)))
        # What this process saw meanwhile comes after it.
        for kind, seen in self._runs.items():
            runs.setdefault(kind, deque(maxlen=_RUNS)).extend(run for run in seen if run.ended > latest + _ROUNDING)
        if "starts" in data:
            self.starts.restore(data["starts"])
        self._runs = runs
        self._added += 1


def learn(past: PastRuns, pod: PodRecord, group: PodGroup, now: float) -> bool:
    """Count the job of a pod that succeeded, `now` where it does not say when; whether it is known how long it ran."""
    said = (each for each in pod.conditions if each.type == "Ready" and each.status == "False")
    ended = next((seconds(each.last_transition_time) for each in said), 0.0) or now
    if not pod.started or ended <= pod.started:
        return False
    kind = Kind.of(workload_of(group), group.queue, group.spec.min_member)
    past.add(kind, Run(ended - pod.started, longest_run(group.run_time, (pod.deadline,)) or 0.0, ended))
    return True


def learned_from(state: ClusterState) -> PastRuns:
    """The runs of the jobs in a state that have succeeded pods."""
    past, pods = PastRuns(), state.pods
    counted = set[str]()
    for row in np.flatnonzero(pods.state[: pods.size] == PodState.Succeeded).tolist():
        record = pods.records[row]
        group = state.pod_group(record.job) if record is not None and record.job not in counted else None
        if record is not None and group is not None and learn(past, record, group, 0.0):
            counted.add(record.job)
    return past


def quantile(values: Sequence[float], at: float, beyond: float) -> float:
    """A quantile of the ascending values greater than `beyond`; NaN if there is none."""
    left = values[int(np.searchsorted(values, beyond, side="right")) :]
    return float(np.quantile(left, at)) if left else math.nan
