"""drf: jobs take turns by their dominant share, the largest part of any one resource that they hold."""

from __future__ import annotations

from stromboli.framework import shares
from stromboli.framework.job import Job
from stromboli.framework.plugin import Plugin
from stromboli.framework.session import Session
from stromboli.framework.statement import Placement


class Drf(Plugin):
    name = "drf"

    def open(self, session: Session) -> None:
        self._total = session.total
        self._allocated = session.job_allocated.copy()
        whole = shares.share(self._allocated, self._total)
        self._share: list[float] = whole.max(axis=1, initial=0.0).tolist()

    def job_order(self, job: Job) -> float:
        return self._share[job.index]

    def on_allocate(self, placement: Placement) -> None:
        if placement.job is not None:
            self._change(placement.job, placement, +1)

    def on_deallocate(self, placement: Placement) -> None:
        if placement.job is not None:
            self._change(placement.job, placement, -1)

    def _change(self, job: Job, placement: Placement, sign: int) -> None:
        self._allocated[job.index] += sign * placement.total
        self._share[job.index] = shares.dominant_share(self._allocated[job.index], self._total)
