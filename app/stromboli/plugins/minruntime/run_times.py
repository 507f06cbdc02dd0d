"""Minimum run times: until when a gang may not be evicted, by its priority class or its queue.

A gang runs since its minimum of pods does, by when their kubelets started them, or else by when they were scheduled.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from stromboli.api import duration
from stromboli.api.duration import Duration
from stromboli.api.resources import Mask, Vector
from stromboli.framework.cluster.job import Job, Queue, lineage
from stromboli.framework.cluster.started import started_or_scheduled, times_of_held
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments


class OfPriorityClass(Arguments):
    """The minimum run times of a priority class."""

    preempt: Duration | None = Field(default=None, alias="preemptMinRuntime", ge=0)
    reclaim: Duration | None = Field(default=None, alias="reclaimMinRuntime", ge=0)


class MinRuntimeArguments(Arguments):
    """Arguments of minruntime."""

    preempt: Duration = Field(default=0.0, alias="defaultPreemptMinRuntime", ge=0)
    """Time that a job runs before jobs of its own queue may preempt it, where no queue says it."""
    reclaim: Duration = Field(default=0.0, alias="defaultReclaimMinRuntime", ge=0)
    """Time that a job runs before other queues may reclaim what it holds, where no queue says it."""
    method: Literal["lca", "queue"] = Field(default="lca", alias="reclaimResolveMethod")
    """Where `reclaimMinRuntime` is looked for: from the queue of the job upwards (`queue`), or from the queue above it
    that is next below the lowest common ancestor with the reclaiming queue (`lca`)."""
    classes: dict[str, OfPriorityClass] = Field(default_factory=dict, alias="priorityClasses")
    """`preemptMinRuntime` and `reclaimMinRuntime` by the name of a job's priority class, which outweigh those of
    queues."""


class Young(NamedTuple):
    """Mask of jobs that have not run for their minimum, and when they will have, shape (jobs,)."""

    jobs: Mask
    until: Vector


class RunTimes:
    """The minimum run times of the jobs in a session."""

    #: the fields of queues that are read
    fields: ClassVar = frozenset(("preemptMinRuntime", "reclaimMinRuntime"))

    def __init__(self, view: View, arguments: MinRuntimeArguments) -> None:
        self._view, self._arguments = view, arguments
        self._found: dict[str, Young] = {}

    @property
    def used(self) -> bool:
        """Whether there are any."""
        arguments = self._arguments
        of_classes = any(of.preempt or of.reclaim for of in arguments.classes.values())
        specs = (queue.spec for queue in self._view.queues.values())
        return bool(arguments.preempt or arguments.reclaim or of_classes) or any(
            spec.preempt_min_runtime or spec.reclaim_min_runtime for spec in specs
        )

    def young(self, reclaimer: Queue | None) -> Young:
        """The jobs that have run too briefly to be evicted for another queue, or to be preempted if that is None."""
        key = "" if reclaimer is None else reclaimer.name
        if key not in self._found:
            least = np.array([self._of_queue(queue, reclaimer) for queue in self._view.queues.values()])
            self._found[key] = self._since(self._of_jobs(least, preempting=reclaimer is None))
        return self._found[key]

    def queue_of(self, queue: Queue, reclaimer: Queue | None) -> Queue:
        """The queue that sets the minimum run time of another queue's jobs, or else the first one that could."""
        line = self._line(queue, reclaimer)
        return next((each for each in line if _said(each, reclaimer)), line[0])

    def class_of(self, job: Job, reclaimer: Queue | None) -> str:
        """The priority class with the minimum run time of a job, empty for none."""
        name = job.pod_group.spec.priority_class_name
        of = self._arguments.classes.get(name)
        return name if of is not None and (of.preempt if reclaimer is None else of.reclaim) is not None else ""

    def _of_queue(self, queue: Queue, reclaimer: Queue | None) -> float:
        """The minimum run time of a queue's jobs, as set on queues."""
        text = _said(self.queue_of(queue, reclaimer), reclaimer)
        otherwise = self._arguments.preempt if reclaimer is None else self._arguments.reclaim
        return duration.parse(text) if text else otherwise

    def _line(self, queue: Queue, reclaimer: Queue | None) -> list[Queue]:
        """The queues that are asked for the minimum run time of the jobs of one, in order."""
        above = list(lineage(queue, self._view.queues))
        if reclaimer is None or self._arguments.method == "queue":
            return above
        common = {each.name for each in lineage(reclaimer, self._view.queues)}
        apart = sum(each.name not in common for each in above)
        return above[max(apart - 1, 0) :]

    def _of_jobs(self, of_queues: Vector, *, preempting: bool) -> Vector:
        jobs, classes = self._view.jobs, self._arguments.classes
        least: Vector = of_queues[jobs.queue]
        if classes:
            names, numbers = jobs.said("priority class", lambda group: group.spec.priority_class_name)
            given = [
                (of.preempt if preempting else of.reclaim) if (of := classes.get(name)) else None for name in names
            ]
            own = np.array([np.nan if each is None else each for each in given])[numbers]
            least = np.where(np.isnan(own), least, own)
        return least

    def _since(self, least: Vector) -> Young:
        if not least.any():
            return Young(np.zeros(len(least), np.bool_), np.full(len(least), -np.inf))
        until = self._began + least
        young = (least > 0) & (until > self._now)
        self._view.time(float(until[young].min(initial=np.inf)))
        return Young(young, until)

    @cached_property
    def _now(self) -> float:
        # Sessions that ask for no eviction do not ask for the time, either.
        return self._view.time(np.inf)

    @cached_property
    def _began(self) -> Vector:
        """Since when each job holds its minimum of pods, or all it has, shape (jobs,); -inf where it is not known."""
        jobs = self._view.jobs
        of, at = times_of_held(self._view, "started or scheduled", started_or_scheduled, self._now, unknown=-np.inf)
        order, counts = np.lexsort((at, of)), np.bincount(of, minlength=len(jobs))
        there, least = counts > 0, np.clip(jobs.min_available, 1, np.maximum(counts, 1))
        found = np.full(len(jobs), -np.inf)
        found[there] = at[order[(np.cumsum(counts) - counts + least - 1)[there]]]
        return found


def _said(queue: Queue, reclaimer: Queue | None) -> str:
    return queue.spec.preempt_min_runtime if reclaimer is None else queue.spec.reclaim_min_runtime
