"""Which jobs lay claim to their minResources: those that were admitted, by this service and as they are now.

A user who may write a PodGroup can write its phase, too, where it has no status subresource, as Volcano's has none. So
a phase is believed as far as an earlier session gave it; a job that only says it was admitted lays claim to nothing
beyond what its pods hold, until `enqueue` admits it.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.framework.environment import Admission, Admitted
from stromboli.framework.jobs import Jobs

_ADMITTED = ("Inqueue", "Running", "Unknown")


class Admissions:
    """The jobs of a session that were admitted; those without minResources lay claim to nothing anyway."""

    def __init__(self, jobs: Jobs, before: Admitted) -> None:
        """Tells the jobs whether they lay claim to their minResources, by what earlier sessions admitted."""
        self._jobs = jobs
        self._as_they_are, self._numbers = jobs.said("admission", _as_it_is)
        self._claims = before.among(self._as_they_are)[self._numbers] | ~jobs.has_min_resources
        jobs.set_claims(self._claims)

    def after_session(self) -> Admitted:
        """What the next session has to know."""
        jobs = self._jobs
        admitted = self._claims & jobs.in_phase(*_ADMITTED)
        for job in jobs.made:
            admitted[job.index] = job.claims and job.phase in _ADMITTED
        mask = np.zeros(len(self._as_they_are), np.bool_)
        mask[self._numbers[admitted & jobs.has_min_resources]] = True
        return Admitted(self._as_they_are, mask)


def _as_it_is(group: PodGroup) -> Admission:
    return Admission(group.key, group.metadata.uid, group.queue, tuple((group.spec.min_resources or {}).items()))
