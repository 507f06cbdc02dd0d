"""Follows a simulation and records the data for its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.lab.workload import Workload
from stromboli.state.classes import pod_request
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

Floats = npt.NDArray[np.float64]

#: candidates for the scarce resource; the first that jobs ask for counts
_SCARCE = ("nvidia.com/gpu", "amd.com/gpu", "cpu", "memory")
#: kinds of pods that fragmentation asks about: those that ask for most
_MOST_KINDS = 64
#: samples that are kept: of a century, where they are hourly
_MOST_SAMPLES = 1_000_000


class Sample(NamedTuple):
    """The cluster at one moment; amounts are of the main resource, in base units."""

    #: seconds since the workload began; what happened at this time has happened
    time: float
    capacity: float
    waiting_jobs: int
    #: the part of the idle amounts on nodes where pods of the workload do not fit, NaN where nothing is idle
    fragmentation: float
    #: amount that each queue holds
    held: Floats


class Recorder:
    """A `Log` of the timeline. Jobs outside the workload are counted, except for their holdings."""

    def __init__(
        self, workload: Workload, rows: Mapping[str, int], state: ClusterState, begin: float, every: float
    ) -> None:
        """`rows` has the row of each job by its key; a sample is taken `every` that many seconds."""
        jobs, queues = len(workload), len(workload.queues)
        offered = zip(state.dimensions.names, state.nodes.allocatable.sum(axis=1).tolist(), strict=False)
        self.resource = main_resource(workload, {name for name, amount in offered if amount})
        #: seconds since the workload began, NaN for what did not happen
        self.started, self.ended = np.full(jobs, np.nan), np.full(jobs, np.nan)
        self.evictions, self.restarts = np.zeros(jobs, np.int32), np.zeros(jobs, np.int32)
        #: seconds of runs that have to be done again
        self.lost = np.zeros(jobs)
        #: use by each queue and supply of the main resource, in base units times seconds
        self.used, self.offered = np.zeros(queues), 0.0
        #: use by all queues, as a fraction of the cluster, until the last job arrived
        self.while_arriving = float("nan")
        self.samples: list[Sample] = []
        #: seconds since the workload began
        self.now = 0.0
        self._held = np.zeros(queues)
        self._workload, self._rows, self._state = workload, rows, state
        self._begin, self._every = begin, every
        self._waiting = 0
        self._kinds = _kinds(workload, self.resource)

    def passed(self, now: float) -> None:
        then = now - self._begin
        capacity = self._capacity()
        if len(self.samples) * self._every < then:
            sample = Sample(0.0, capacity, self._waiting, self._fragmentation(), self._held.copy())
        while (time := len(self.samples) * self._every) < then and len(self.samples) < _MOST_SAMPLES:
            self.samples.append(Sample(time, *sample[1:]))
        self.used += self._held * (then - self.now)
        self.offered += capacity * (then - self.now)
        self.now = then

    def arrived(self, job: str) -> None:
        self._waiting += 1
        if self.offered:
            self.while_arriving = float(self.used.sum()) / self.offered

    def placed(self, pod: PodRecord) -> None:
        self._hold(pod, +1)

    def removed(self, pod: PodRecord) -> None:
        self._hold(pod, -1)

    def _hold(self, pod: PodRecord, sign: int) -> None:
        row = self._rows.get(pod.job)
        if row is not None:
            self._held[self._workload.queue[row]] += sign * pod.pod_class.request.get(self.resource, 0)

    def started_job(self, job: str) -> None:
        self._waiting -= 1
        self.started[self._rows[job]] = self.now

    def restarted(self, job: str, lost: float) -> None:
        row = self._rows[job]
        self._waiting += 1
        self.restarts[row] += 1
        self.lost[row] += lost
        self.started[row] = np.nan

    def evicted(self, pod: PodRecord) -> None:
        row = self._rows.get(pod.job)
        if row is not None:
            self.evictions[row] += 1

    def ended_job(self, job: str) -> None:
        self.ended[self._rows[job]] = self.now

    def _capacity(self) -> float:
        column = self._column()
        return 0.0 if column is None else float(self._state.nodes.allocatable[column].sum())

    def _column(self) -> int | None:
        names = self._state.dimensions.names
        return names.index(self.resource) if self.resource in names else None

    def _fragmentation(self) -> float:
        column, names = self._column(), self._state.dimensions.names
        if column is None:
            return float("nan")
        nodes = self._state.nodes
        idle = nodes.allocatable - nodes.used
        whole = idle[column].clip(min=0)
        total = float(whole.sum())
        if not total:
            return float("nan")
        missed = 0.0
        for request, weight in self._kinds:
            fits = np.ones(idle.shape[1], np.bool_)
            for name, amount in request.items():
                fits &= idle[names.index(name)] >= amount if name in names else np.False_
            missed += weight * float(whole[~fits].sum())
        return missed / total


def main_resource(workload: Workload, offered: Collection[str]) -> str:
    """The resource that counts: cards if jobs ask for any and nodes have some, else cpu."""
    asked = {name for gang in workload.gangs for name in gang.request()}
    return next((name for name in _SCARCE if name in asked and name in offered), "pods")


def _kinds(workload: Workload, resource: str) -> list[tuple[Mapping[str, int], float]]:
    """Requests by kind of pods, each with its part of the total that is requested of a resource."""
    jobs = np.bincount(workload.gang, minlength=len(workload.gangs))
    weights: dict[tuple[tuple[str, int], ...], float] = {}
    for gang, count in zip(workload.gangs, jobs.tolist(), strict=True):
        for task in gang.tasks:
            request = pod_request(task.spec)
            key = tuple(sorted(request.items()))
            weights[key] = weights.get(key, 0.0) + count * task.count * request.get(resource, 0)
    most = sorted(weights.items(), key=lambda each: (-each[1], each[0]))[:_MOST_KINDS]
    total = sum(weight for _, weight in most)
    return [(dict(key), weight / total) for key, weight in most if weight]
