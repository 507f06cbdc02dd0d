"""sla: jobs that have waited long enough are admitted, and keep places until there are enough of them.

A job's deadline is its creation plus its waiting time: that of its annotation, else that of the policy. The earliest
deadline comes first, jobs without one come last.
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api import duration
from stromboli.api.duration import Duration
from stromboli.framework.job import Job
from stromboli.framework.plugin import Arguments, Plugin, Verdict, Vote
from stromboli.framework.view import View

#: the annotations of a PodGroup that hold its waiting time; the first that can be used counts
_WAITING_TIME = ("volcano.sh/sla-waiting-time", "sla-waiting-time")


class SlaArguments(Arguments):
    """Arguments of sla."""

    waiting_time: Duration = Field(default=0.0, alias="sla-waiting-time")
    """How long a job without an annotation may wait. Without it such jobs have no deadline."""


class Sla(Plugin):
    name = "sla"
    Arguments: ClassVar[type[BaseModel]] = SlaArguments

    def open(self, view: View) -> None:
        self._now = view.time()
        #: the waiting time of jobs that do not name one, 0 for none
        self._usual: float = max(0.0, self.arguments.waiting_time)

    def job_order(self, job: Job) -> float:
        return self._deadline(job)

    def job_enqueueable(self, job: Job) -> Verdict:
        return self._overdue(job)

    def job_pipelined(self, job: Job) -> Verdict:
        return self._overdue(job)

    def _overdue(self, job: Job) -> Vote:
        return Vote.Permit if self._now >= self._deadline(job) else Vote.Abstain

    def _deadline(self, job: Job) -> float:
        """Seconds since the epoch, infinite without a waiting time."""
        return job.created + (_waiting_time(job) or self._usual or math.inf)


def _waiting_time(job: Job) -> float:
    """The waiting time of a job's annotation; 0 when it has none that can be used."""
    for key in _WAITING_TIME:
        text = job.pod_group.metadata.annotations.get(key)
        if text is None:
            continue
        try:
            seconds = duration.parse(text)
        except ValueError:
            continue
        if seconds > 0:
            return seconds
    return 0.0
