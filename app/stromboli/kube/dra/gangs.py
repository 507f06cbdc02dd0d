"""Gangs whose pods have claims: which pods are in one, and how many of them share a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.kube.dra.holdings import claim_keys
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.state.pods import PodRecord


class ClaimingGangs:
    """The gangs of one session, read when one of their pods is asked about."""

    def __init__(self, view: View) -> None:
        self._view = view
        #: by job: how many of its pods that wait name each claim, by its key
        self._naming: dict[str, Counter[str]] = {}

    def of(self, pod: PodRecord) -> Job | None:
        """The job of a pod, if it starts with several."""
        job = self._view.job_of(pod)
        return job if job is not None and job.min_available > 1 else None

    def together(self, pod: PodRecord, waiting: Sequence[ResourceClaim]) -> int:
        """How many pods of a gang have to share one of some claims for it to start; those without a gang are one."""
        job = self.of(pod)
        if job is None:
            return 1
        if job.key not in self._naming:
            self._naming[job.key] = Counter(key for each in self._view.pending(job) for key in claim_keys(each))
        most = max(self._naming[job.key][claim.key] for claim in waiting)
        return min(most, job.min_available - len(self._view.rows_holding(job))) if most > 1 else 1
