"""Units: pods that are evicted together, which is a pod or a sub group that its gang can spare, or the whole gang."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.pod_state import HELD, READY_STATES, STATES
from stromboli.api.resources import Mask
from stromboli.eviction.eligibility import preemptable
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.framework.cluster.jobs import Jobs
from stromboli.framework.session.session import Session
from stromboli.state.pods import EVICTED_TOGETHER, PodRecord

#: by state, whether a pod can be evicted
_HELD = np.isin(np.arange(STATES), HELD)


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Victims that are evicted together: a pod or a sub group that its gang can spare, or a gang."""

    job: Job
    pods: Sequence[PodRecord]
    #: whether the gang is broken
    whole: bool
    #: rank of the most important of them, see `Ranks`
    rank: int = 0
    #: when the first of them started, infinite where that is not known
    began: float = math.inf
    #: what a node gains of the need by its eviction
    gain: Sequence[float] = ()
    #: its place in victim order among those that are compared
    order: int = 0


class Surplus:
    """Pods of a gang above its minimum: in all, by role, and in ready groups by policy."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session = session
        #: the gang's job
        self.job = job
        self._pods = 0 if _goes_together(job) else job.ready_count - job.min_available
        self._roles: dict[str, int] = {}
        #: uids of the ready groups, and the number beyond the minimum of each policy
        self._ready: set[str] = set()
        self._groups: dict[str, int] = {}
        #: whether a group holds places, and fewer than it needs
        self._has_partial_group = False
        if job.min_by_role:
            held = job.held_by_role(best_effort=session.ask.counts_best_effort)
            self._roles = {role: held.get(role, 0) - least for role, least in job.min_by_role.items()}
        if job.divided:
            self._count_groups()

    def _count_groups(self) -> None:
        policies = self.job.pod_group.spec.sub_group_policy
        self._groups = {"": 0} | {policy.name: -policy.min_sub_groups for policy in policies}
        for sub_job in self.job.sub_jobs.values():
            if self._is_ready(sub_job):
                self._ready.add(sub_job.uid)
                self._groups[sub_job.policy] += 1
            elif sub_job.ready_count:
                self._has_partial_group = True

    def _is_ready(self, sub_job: SubJob) -> bool:
        held = sub_job.ready_count
        if self._session.ask.counts_best_effort:
            held += sub_job.pending_best_effort
        return held >= sub_job.min_available

    @property
    def runs(self) -> bool:
        """Whether the gang, and each of its groups, has its minimum, and goes on without the pods that were evicted."""
        least = min(self._pods, *self._roles.values(), *self._groups.values(), 0)
        return least >= 0 and not self._has_partial_group and not _goes_together(self.job)

    def spend(self, pod: PodRecord) -> bool:
        """Whether the gang can spare one more pod, which then counts as evicted."""
        if self._pods <= 0 or (self._roles and self._roles.get(pod.role, 1) <= 0):
            return False
        if self.job.divided:
            sub_job = self._session.view.sub_job_of(self.job, pod)
            if sub_job.uid in self._ready:
                if self._groups[sub_job.policy] <= 0:
                    return False
                # What is left of the group is of no more use as a group.
                self._ready.remove(sub_job.uid)
                self._groups[sub_job.policy] -= 1
        self._pods -= 1
        if pod.role in self._roles:
            self._roles[pod.role] -= 1
        return True


def spared(session: Session, pods: Iterable[PodRecord]) -> Iterator[tuple[PodRecord, bool]]:
    """Pods in victim order, each with whether its gang can spare it in addition to those before it."""
    surplus: dict[str, Surplus] = {}
    for pod in pods:
        if pod.job not in surplus:
            surplus[pod.job] = Surplus(session, session.view.jobs[pod.job])
        yield pod, surplus[pod.job].spend(pod)


def above_minimum(jobs: Jobs) -> Mask:
    """Mask of jobs with more ready pods than their minimum now, shape (jobs,)."""
    above: Mask = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count) > jobs.min_available
    return above


def _goes_together(job: Job) -> bool:
    return job.pod_group.metadata.annotations.get(EVICTED_TOGETHER) == "true"


def whole_gang(session: Session, job: Job, group: SubJob | None = None) -> list[PodRecord]:
    """All pods of a job, or of one of its groups, that hold nodes; empty if one must not or cannot be evicted."""
    holding = session.view.records(session.view.rows_holding(job))
    if group is not None:
        holding = [pod for pod in holding if session.view.sub_job_of(job, pod) is group]
    states = session.view.pods.state
    return holding if all(_HELD[states.item(pod.row)] and preemptable(pod) for pod in holding) else []
