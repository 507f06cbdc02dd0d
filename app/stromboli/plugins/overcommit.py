"""overcommit: admits jobs up to a multiple of what the cluster has, so that some wait in line already."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.fairness import shares
from stromboli.framework.job import Job
from stromboli.framework.plugin import Arguments, Plugin, Verdict, Vote
from stromboli.framework.view import View

_DEFAULT_FACTOR = 1.2


class OvercommitArguments(Arguments):
    """Arguments of overcommit."""

    factor: float = Field(default=_DEFAULT_FACTOR, alias="overcommit-factor")
    """Multiple of the cluster up to which jobs are admitted. Below 1 the default is used."""


class Overcommit(Plugin):
    name = "overcommit"
    Arguments: ClassVar[type[BaseModel]] = OvercommitArguments

    def open(self, view: View) -> None:
        self._view = view
        factor = self.arguments.factor if self.arguments.factor >= 1 else _DEFAULT_FACTOR
        self._idle = view.total * factor - view.nodes.used.sum(axis=1)
        self._inqueue = view.vector(None)
        for job in view.jobs.values():
            if job.min_resources is None:
                continue
            if job.phase == "Inqueue":
                self._inqueue += shares.reserved(view, job, beyond_allocated=False)
            elif job.phase == "Running" and job.allocated_count >= job.min_available:
                self._inqueue += shares.reserved(view, job, beyond_allocated=True)

    def job_enqueueable(self, job: Job) -> Verdict:
        if job.min_resources is None:
            return Vote.Permit
        wanted = self._inqueue + job.min_resources
        columns = shares.exceeded(wanted, self._idle, job.min_resources)
        if not columns:
            return Vote.Permit
        names = ", ".join(self._view.dimensions[c] for c in columns)
        return Reason(
            Stage.Admission,
            "ClusterOvercommitted",
            f"jobs that were admitted before already lay claim to all of the cluster's {names}",
            Actionable.Wait,
        )

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources is not None:
            self._inqueue += shares.reserved(self._view, job, beyond_allocated=False)
