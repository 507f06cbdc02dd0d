"""Which jobs lay claim to their minResources: those that were admitted, by this service and as they are now.

Whoever may write a PodGroup can write its phase, too, where it has no status subresource, as Volcano's has none. So a
phase is believed as far as an earlier session gave it; a job that only says it was admitted lays claim to nothing
beyond what its pods hold, until `enqueue` admits it.
"""

from __future__ import annotations

from collections.abc import Mapping

from stromboli.framework.environment import Admission
from stromboli.framework.job import Job

_ADMITTED = frozenset(("Inqueue", "Running", "Unknown"))


class Admissions:
    """The jobs of a session that were admitted; those without minResources lay claim to nothing anyway."""

    def __init__(self, jobs: Mapping[str, Job], before: Mapping[str, Admission]) -> None:
        """Sets of each job whether it lays claim to its minResources, by what earlier sessions admitted."""
        self._jobs = [job for job in jobs.values() if job.min_resources is not None]
        for job in self._jobs:
            job.claims = before.get(job.key) == _as_it_is(job)

    def after_session(self) -> dict[str, Admission]:
        """What the next session has to know."""
        return {job.key: _as_it_is(job) for job in self._jobs if job.claims and job.phase in _ADMITTED}


def _as_it_is(job: Job) -> Admission:
    return Admission(job.pod_group.metadata.uid, job.queue.name, job.pod_group.spec.min_resources or {})
