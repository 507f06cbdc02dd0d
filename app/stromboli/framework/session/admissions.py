"""Which jobs have a claim to their minResources: those that this service admitted in their present form.

Volcano's PodGroup has no status subresource, so a user who may write a PodGroup can also write its phase. A phase is
therefore trusted only if an earlier session set it; a job that merely states that it was admitted has no claim beyond
what its pods hold, until `enqueue` admits it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.reasons import Actionable
from stromboli.framework.cluster.environment import Admission, Admitted
from stromboli.framework.cluster.view import View

_ADMITTED = ("Inqueue", "Running", "Unknown")
#: seconds for which an admitted job without pods has a claim to what they will need
_PATIENCE = 60.0
#: reasons of pods that no node takes, not even an empty one, where they are not to wait
_NOWHERE = ("NoMatchingNode", "NeverFits")
_WAIT = Actionable.Wait
#: under which name it is left to the next session since when jobs have had no pods
EMPTY = "jobs without pods"
#: under which name it is left which jobs could not be placed, whatever finishes
HOPELESS = "jobs that cannot be placed"


class Admissions:
    """The jobs of a session that were admitted; those without minResources lay claim to nothing anyway."""

    def __init__(self, view: View, before: Admitted | None) -> None:
        """Tells the jobs whether they lay claim to their minResources, by what earlier sessions admitted; for None the
        phases of jobs are believed.
        """
        self._view = view
        self._jobs = jobs = view.jobs
        self._before = before
        self._claims = np.ones(len(jobs), np.bool_)
        if before is not None:
            self._as_they_are, self._numbers = jobs.said("admission", _as_it_is)
            self._claims = before.among(self._as_they_are)[self._numbers] | ~jobs.has_min_resources
        #: since when admitted jobs have had no pods, by key
        self.empty_since: dict[str, float] = {}
        #: keys of jobs that were found to have no places, whatever finishes
        self.hopeless: list[str] = []
        self._take_from_hopeless(view)
        if before is not None:
            self._take_from_empty(view)
        jobs.set_claims(self._claims)

    def _take_from_hopeless(self, view: View) -> None:
        """Take their claims from jobs that could not be placed; they are tried again all the same."""
        jobs = self._jobs
        found = [jobs[key].index for key in view.environment.left.get(HOPELESS, ()) if key in jobs]
        hopeless = np.zeros(len(self._claims), np.bool_)
        hopeless[found] = True
        hopeless &= jobs.in_phase("Inqueue")
        self._claims &= ~hopeless
        jobs.given_up |= hopeless

    def _take_from_empty(self, view: View) -> None:
        """Take their claims from admitted jobs that have had no pods for long, until pods come."""
        jobs = self._jobs
        before: Mapping[str, float] = view.environment.left.get(EMPTY, {})
        empty = jobs.has_min_resources & jobs.in_phase("Inqueue") & jobs.membership.empty
        for index in np.flatnonzero(empty).tolist():
            key = jobs.key(index)
            if self._claims[index] or key in before:
                since = self.empty_since[key] = before.get(key, view.time())
                if view.time() - since >= _PATIENCE:
                    self._claims[index] = False
                    jobs.given_up[index] = True

    def after_actions(self) -> None:
        """Find the jobs whose chances do not depend on others: those that no node takes, not even an empty one."""
        view, jobs = self._view, self._jobs
        lacking = [
            row for row, why in view.trace.pods.items() if why.reason in _NOWHERE and why.actionable is not _WAIT
        ]
        known, indices = set(self.hopeless), dict.fromkeys(jobs.membership.index_of[view.pods.job[lacking]].tolist())
        for job in (jobs.at(index) for index in indices if index >= 0):
            if job.phase == "Inqueue" and not job.allocated_count and job.key not in known:
                why = view.reason(job)
                if why is not None and why.reason in _NOWHERE:
                    self.hopeless.append(job.key)

    @property
    def gave_up(self) -> set[str]:
        """The jobs, by key, whose claim ends with this session, if any job waits for what they claimed."""
        jobs = self._jobs
        if not (jobs.now_in_phase("", "Pending") & ~jobs.aside).any():
            return set()
        return {key for key in self.hopeless if jobs[key].claims and jobs[key].min_resources is not None}

    def after_session(self) -> Admitted | None:
        """The state for the next session; None if phases are trusted."""
        jobs = self._jobs
        if self._before is None:
            return None
        admitted = self._claims & jobs.in_phase(*_ADMITTED)
        for job in jobs.made:
            admitted[job.index] = job.claims and job.phase in _ADMITTED
        mask = np.zeros(len(self._as_they_are), np.bool_)
        mask[self._numbers[admitted & jobs.has_min_resources]] = True
        return Admitted(self._as_they_are, mask)


def _as_it_is(group: PodGroup) -> Admission:
    return Admission(group.key, group.metadata.uid, group.queue, tuple((group.spec.min_resources or {}).items()))
