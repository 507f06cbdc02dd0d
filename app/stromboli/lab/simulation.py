"""A workload on a cluster under a policy."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from stromboli.api import crds, objects
from stromboli.api.crds import RUN_TIME
from stromboli.engine import Engine
from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.environment import Admitted, Environment
from stromboli.lab.cluster import Cluster, open_queue, queue_names
from stromboli.lab.recorder import Recorder
from stromboli.lab.results import Results
from stromboli.lab.timeline import Arrival, Log, NodeChange, Timeline
from stromboli.lab.workload import Gang, Workload
from stromboli.simulation.run import feed
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, timestamp
from stromboli.workloads.amounts import total

SCHEDULER = "stromboli"
#: when workloads begin: a Monday, 0:00
BEGIN = 1_704_067_200.0
_HOUR = 3600.0
AnyLog = TypeVar("AnyLog", bound=Log)


@dataclass(frozen=True, slots=True)
class Settings:
    """Passage of time in a simulation."""

    #: seconds that pass between two sessions at least
    period: float = 1.0
    #: seconds between two samples
    every: float = _HOUR


def simulate(workload: Workload, cluster: Cluster, engine: Engine, settings: Settings | None = None) -> Results:
    """Run all jobs of a workload; those that are left when nothing more can happen never ended."""
    settings = settings or Settings()

    def recorder(rows: Mapping[str, int], state: ClusterState) -> Recorder:
        return Recorder(workload, rows, state, BEGIN, settings.every)

    # Why pods wait is never read here, and wording each reason is a large part of a session's cost.
    timeline, log = run_over_time(workload, cluster, engine.silent(), recorder, settings.period)
    return Results.of(workload, log, timeline.sessions)


def run_over_time(
    workload: Workload,
    cluster: Cluster,
    engine: Engine,
    log_of: Callable[[Mapping[str, int], ClusterState], AnyLog],
    period: float,
    ask: Callable[[Timeline, AnyLog], None] = lambda timeline, log: None,
) -> tuple[Timeline, AnyLog]:
    """Run all jobs of a workload; a log is made for the rows of jobs by key, and `ask` called before each event."""
    state = ClusterState((SCHEDULER,), reads=engine.registry.reads)
    submitted = Submission(workload)
    queues = [("Queue", open_queue(name)) for name in workload.queues if name not in queue_names(cluster)]
    feed(state, [*cluster.objects, *queues, *(("PriorityClass", each) for each in submitted.priority_classes())])
    log = log_of({submitted.key(job): job for job in range(len(workload))}, state)
    environment = Environment(admitted=Admitted(), churn=Churn())
    timeline = Timeline(engine, state, environment, period=period, begin=BEGIN, log=log)
    changes = (NodeChange(BEGIN + each.time, each.node, each.there) for each in cluster.changes)

    def asked() -> bool:
        ask(timeline, log)
        return False

    with _rare_collections():
        timeline.go(submitted.arrivals(), changes, enough=asked)
    return timeline, log


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely meanwhile: a simulation's objects are freed without it."""
    known, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*known)
        # What the process had frozen before stays so.
        if not frozen:
            gc.unfreeze()


class Submission:
    """Makes the objects of a workload's jobs, each when it arrives."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        #: specs of pods by gang and priority, one for each task
        self._specs: dict[tuple[int, int], list[objects.PodSpec]] = {}
        self._least = [_least(gang) for gang in workload.gangs]

    def key(self, job: int) -> str:
        """The key of a job's PodGroup."""
        workload = self._workload
        return f"{workload.users[workload.user[job]]}/{workload.name(job)}"

    def priority_classes(self) -> Iterator[objects.PriorityClass]:
        for value in np.unique(self._workload.priority).tolist():
            if value:
                yield objects.PriorityClass(metadata=objects.Metadata(name=_class_name(value)), value=value)

    def arrivals(self) -> Iterator[Arrival]:
        """All jobs in their order."""
        workload = self._workload
        columns = (workload.arrival, workload.run_time, workload.declared, workload.gang, workload.priority)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for job, (arrival, run_time, declared, gang, priority) in enumerate(rows):
            now = BEGIN + arrival
            namespace, name = self.key(job).split("/")
            group = self._group(job, namespace, now, declared)
            pods = self._pods(namespace, name, gang, priority, now)
            yield Arrival(now, group, pods, run_time)

    def _group(self, job: int, namespace: str, now: float, declared: float) -> crds.PodGroup:
        workload = self._workload
        gang, priority = int(workload.gang[job]), int(workload.priority[job])
        annotations = {} if np.isnan(declared) else {RUN_TIME: f"{declared:.0f}s"}
        name = workload.name(job)
        return crds.PodGroup(
            metadata=crds.Metadata(
                name=name,
                namespace=namespace,
                uid=f"{namespace}/{name}",
                creation_timestamp=timestamp(now),
                annotations=annotations,
            ),
            spec=crds.PodGroupSpec(
                min_member=workload.gangs[gang].min_member,
                min_resources=self._least[gang],
                queue=workload.queues[workload.queue[job]],
                priority_class_name=_class_name(priority) if priority else "",
            ),
            status=crds.PodGroupStatus(phase="Pending"),
        )

    def _pods(self, namespace: str, name: str, gang: int, priority: int, now: float) -> list[objects.Pod]:
        tasks, created = self._workload.gangs[gang].tasks, timestamp(now)
        pending = objects.PodStatus(phase="Pending")
        pods = []
        for number, (task, spec) in enumerate(zip(tasks, self._specs_of(gang, priority), strict=True)):
            annotations = {**task.annotations, GROUP_ANNOTATION: name}
            for index in range(task.count):
                key = f"{name}-{number}-{index}"
                metadata = objects.Metadata(
                    name=key,
                    namespace=namespace,
                    uid=f"{namespace}/{key}",
                    creation_timestamp=created,
                    labels=dict(task.labels),
                    annotations=annotations,
                )
                pods.append(objects.Pod(metadata=metadata, spec=spec, status=pending))
        return pods

    def _specs_of(self, gang: int, priority: int) -> list[objects.PodSpec]:
        found = self._specs.get((gang, priority))
        if found is None:
            fields = {"scheduler_name": SCHEDULER, "priority": priority or None}
            tasks = self._workload.gangs[gang].tasks
            found = [msgspec.structs.replace(task.spec, **fields) for task in tasks]
            self._specs[gang, priority] = found
        return found


def _class_name(value: int) -> str:
    return f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"


def _least(gang: Gang) -> dict[str, str]:
    """Amounts that a gang needs to start, as the `minResources` of its PodGroup."""
    needed, left = [], gang.min_member
    for task in gang.tasks:
        needed.append((task.spec, min(task.count, left)))
        left -= needed[-1][1]
    return total(needed)
