"""sla: jobs that have waited long enough are admitted, and reserve resources until they can start.

A job's deadline is its creation plus its waiting time, from its annotation or else the policy. The earliest deadline
comes first; jobs without one come last.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api import duration
from stromboli.api.crds import PodGroup
from stromboli.api.duration import Duration
from stromboli.api.resources import Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin, Verdict, Vote

#: annotations of a PodGroup with its waiting time; the first valid one counts
_WAITING_TIME = ("volcano.sh/sla-waiting-time", "sla-waiting-time")


class SlaArguments(Arguments):
    """Arguments of sla."""

    waiting_time: Duration = Field(default=0.0, alias="sla-waiting-time")
    """Waiting time of jobs without an annotation. Without it they have no deadline."""


class Sla(Plugin):
    name = "sla"
    insists = True
    Arguments: ClassVar[type[BaseModel]] = SlaArguments

    def open(self, view: View) -> None:
        self._view, self._now = view, view.time(math.inf)
        self.insists = view.rules.overdue
        #: waiting time of jobs without an annotation, 0 for none
        self._usual: float = max(0.0, self.arguments.waiting_time)
        deadlines = self.job_orders()
        view.time(float(deadlines[deadlines > self._now].min(initial=math.inf)))

    def job_order(self, job: Job) -> float:
        return self._deadline(job)

    def job_orders(self) -> Vector:
        jobs = self._view.jobs
        waiting, numbers = jobs.said("sla waiting time", _waiting_time)
        return jobs.created + np.array([each or self._usual or math.inf for each in waiting[:]], np.float64)[numbers]

    def job_enqueueable(self, job: Job) -> Verdict:
        return self._overdue(job)

    def job_pipelined(self, job: Job) -> Verdict:
        return self._overdue(job)

    def _overdue(self, job: Job) -> Vote:
        return Vote.Permit if self._now >= self._deadline(job) else Vote.Abstain

    def _deadline(self, job: Job) -> float:
        """Seconds since the epoch, infinite without a waiting time."""
        return job.created + (_waiting_time(job.pod_group) or self._usual or math.inf)


def _waiting_time(pod_group: PodGroup) -> float:
    """The waiting time of a PodGroup's annotation; 0 without a valid one."""
    for key in _WAITING_TIME:
        text = pod_group.metadata.annotations.get(key)
        if text is None:
            continue
        try:
            seconds = duration.parse(text)
        except ValueError:
            continue
        if seconds > 0:
            return seconds
    return 0.0
