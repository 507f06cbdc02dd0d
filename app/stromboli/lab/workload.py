"""Workloads: jobs as columns, over the distinct gangs that they submit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stromboli.api import objects
from stromboli.api.errors import StromboliError
from stromboli.state.classes import pod_request

Seconds: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.int32]
T = TypeVar("T")


class WorkloadError(StromboliError):
    """A workload that cannot be simulated."""


@dataclass(frozen=True, slots=True)
class Task:
    """Identical pods of a gang. The spec says nothing of names, nodes and priorities."""

    count: int
    spec: objects.PodSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def requesting(cls, count: int, requests: Mapping[str, str | int | float]) -> Task:
        """Pods of one container, which asks for amounts in Kubernetes' quantities."""
        asked: objects.ResourceList = {name: str(amount) for name, amount in requests.items()}
        container = objects.Container(name="main", resources=objects.ResourceRequirements(requests=asked))
        return cls(count, objects.PodSpec(containers=[container]))


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang that a job submits: its pods, and the number that start together."""

    tasks: tuple[Task, ...]
    min_member: int

    @classmethod
    def of(cls, *tasks: Task) -> Gang:
        """A gang whose pods all start together."""
        return cls(tasks, sum(task.count for task in tasks))

    @property
    def size(self) -> int:
        """The number of pods."""
        return sum(task.count for task in self.tasks)

    def request(self) -> Mapping[str, int]:
        """Total request of all pods, in base units: milli-CPU, bytes, thousandths of a card."""
        total: dict[str, int] = {}
        for task in self.tasks:
            for name, amount in pod_request(task.spec).items():
                total[name] = total.get(name, 0) + task.count * amount
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs in the order in which they arrive; a row of each column is a job.

    Jobs that submit the same share a `Gang`, so that their pods share a class.
    """

    #: seconds since the workload begins, ascending
    arrival: Seconds
    #: seconds for which the job runs once it has started, if it is not evicted
    run_time: Seconds
    #: maximum run time in seconds that its user declared, NaN for none
    declared: Seconds
    #: index into `gangs`
    gang: Numbers
    #: index into `queues`
    queue: Numbers
    #: index into `users`; a user's jobs are in a namespace of that name
    user: Numbers
    #: value of the job's PriorityClass
    priority: Numbers
    gangs: Sequence[Gang]
    queues: Sequence[str] = ("default",)
    users: Sequence[str] = ("default",)
    #: name of each job, unique in its namespace; empty for `job-0`, `job-1`, ...
    names: Sequence[str] = ()
    #: entries that could not be read, a line each
    problems: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises WorkloadError."""
        lengths = {len(column) for column in self._columns().values()} | ({len(self.names)} if self.names else set())
        if len(lengths) != 1:
            raise WorkloadError(f"columns of a workload differ in length: {sorted(lengths)}")
        if len(self) and (not np.isfinite(self.arrival).all() or (np.diff(self.arrival) < 0).any()):
            raise WorkloadError("jobs of a workload should be in the order of their arrival")
        if not (np.isfinite(self.run_time).all() and (self.run_time >= 0).all()):
            raise WorkloadError("run times of a workload should be finite and not negative")

    def _columns(self) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int32]]:
        names = ("arrival", "run_time", "declared", "gang", "queue", "user", "priority")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.arrival)

    def name(self, job: int) -> str:
        """The name of a job's PodGroup."""
        return self.names[job] if self.names else f"job-{job}"

    def select(self, jobs: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Workload:
        """A workload of some jobs, in their order."""
        columns: dict[str, Any] = {name: column[jobs] for name, column in self._columns().items()}
        names = [self.names[job] for job in np.arange(len(self))[jobs].tolist()] if self.names else ()
        return replace(self, **columns, names=names)

    def requests(self, resource: str) -> npt.NDArray[np.float64]:
        """Amount that each job requests of a resource, in base units."""
        of_gang = np.array([gang.request().get(resource, 0) for gang in self.gangs], np.float64)
        amounts: npt.NDArray[np.float64] = of_gang[self.gang]
        return amounts

    def load(self, resource: str, capacity: float) -> float:
        """The part of a capacity, in base units, that the jobs ask for from the first arrival to the last."""
        span = float(self.arrival[-1] - self.arrival[0]) if len(self) else 0.0
        return float((self.requests(resource) * self.run_time).sum()) / (capacity * span) if span else 0.0


class Job(NamedTuple):
    """A job as readers find it; see the columns of `Workload`."""

    arrival: float
    run_time: float
    gang: Gang
    declared: float = float("nan")
    queue: str = "default"
    user: str = "default"
    priority: int = 0
    name: str = ""


def in_order(jobs: Iterable[Job], problems: Sequence[str] = ()) -> Workload:
    """A workload of jobs that come in any order, which begins with the first of them.

    Jobs of one `Gang` object share it; all have names, or none has.
    """
    ordered = sorted(jobs, key=lambda job: job.arrival)
    begin = ordered[0].arrival if ordered else 0.0
    gang, gangs = _numbered([job.gang for job in ordered], id)
    queue, queues = _numbered([job.queue for job in ordered], str)
    user, users = _numbered([job.user for job in ordered], str)
    return Workload(
        arrival=np.array([job.arrival - begin for job in ordered], np.float64),
        run_time=np.array([job.run_time for job in ordered], np.float64),
        declared=np.array([job.declared for job in ordered], np.float64),
        gang=gang,
        queue=queue,
        user=user,
        priority=np.array([job.priority for job in ordered], np.int32),
        gangs=gangs,
        queues=queues,
        users=users,
        names=[job.name for job in ordered] if ordered and ordered[0].name else (),
        problems=problems,
    )


def _numbered(values: Sequence[T], identity: Callable[[T], Hashable]) -> tuple[Numbers, list[T]]:
    """The index of each value among those that are distinct, in the order in which they come."""
    numbers: dict[Hashable, int] = {}
    distinct: list[T] = []
    column = np.empty(len(values), np.int32)
    for place, value in enumerate(values):
        column[place] = number = numbers.setdefault(identity(value), len(distinct))
        if number == len(distinct):
            distinct.append(value)
    return column, distinct
