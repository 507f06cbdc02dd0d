"""Bundles: which pods of a gang go together when others need the room.

The safe bundle of a gang is what it can lose and still run, the least important pods first; the whole bundle is the
rest, without which it stops.

Under strict rules a whole bundle is everything that the gang holds, wherever that is and the safe bundle with it, so
that nothing is left running in vain; of a gang that is below its minimum already there is only that. Volcano looks at
the pods that are candidates alone, and all of them are safe when the gang is below its minimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.pod_state import STATES
from stromboli.api.resources import Matrix, Vector
from stromboli.framework.job import Job, SubJob
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import HELD, preemptable

#: by state, whether a pod can be evicted
_HELD = np.isin(np.arange(STATES), HELD)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pods of a job that go together; of a safe bundle any of them may go alone."""

    job: Job
    pods: Sequence[PodRecord]
    whole: bool


class Surplus:
    """What a gang has above its minimum: in all, by role, and in ready groups by policy."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session = session
        self._job = job
        #: whether pending best-effort pods count as if they had a place
        self._generous = not session.rules.readiness
        self._pods = job.ready_count - job.min_available
        self._roles: dict[str, int] = {}
        #: uids of the groups that are ready, and how many of each policy are beyond its minimum
        self._ready: set[str] = set()
        self._groups: dict[str, int] = {}
        if job.min_by_role:
            held = job.held_by_role(best_effort=self._generous)
            self._roles = {role: held.get(role, 0) - least for role, least in job.min_by_role.items()}
        if job.divided:
            self._count_groups()

    def _count_groups(self) -> None:
        policies = self._job.pod_group.spec.sub_group_policy
        self._groups = {"": 0} | {policy.name: -policy.min_sub_groups for policy in policies}
        for sub_job in self._job.sub_jobs.values():
            if self._is_ready(sub_job):
                self._ready.add(sub_job.uid)
                self._groups[sub_job.policy] += 1

    def _is_ready(self, sub_job: SubJob) -> bool:
        held = sub_job.ready_count + (sub_job.pending_best_effort if self._generous else 0)
        return held >= sub_job.min_available

    def spend(self, pod: PodRecord) -> bool:
        """Whether the gang can do without one more pod; if so, it has to from now on."""
        if self._pods <= 0 or self._roles.get(pod.role, 1) <= 0:
            return False
        if self._job.divided:
            sub_job = self._session.view.sub_job_of(self._job, pod)
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


def bundles(session: Session, job: Job, candidates: Iterable[PodRecord]) -> list[Bundle]:
    """What a job can give of some candidates: its safe bundle and its whole one, if there is anything in them."""
    pods = sorted(candidates, key=lambda pod: (pod.priority, pod.uid))
    entire = session.rules.whole_gang_eviction
    stopped = session.ask.job_missing(job) > 0 if entire else job.ready_count < job.min_available
    if stopped:
        return _made(Bundle(job, everything(session, job) if entire else pods, whole=entire))
    surplus = Surplus(session, job)
    safe = [pod for pod in pods if surplus.spend(pod)]
    gone = {pod.row for pod in safe}
    rest = [pod for pod in pods if pod.row not in gone]
    if rest and entire:
        rest = everything(session, job)
    return _made(Bundle(job, safe, whole=False), Bundle(job, rest, whole=True))


def permitted(offers: Iterable[Bundle], allowed: Iterable[PodRecord]) -> list[Bundle]:
    """What is left of bundles when only some of their pods may go: a whole bundle goes as it is, or not at all."""
    rows = {pod.row for pod in allowed}
    found: list[Bundle] = []
    for bundle in offers:
        pods = [pod for pod in bundle.pods if pod.row in rows]
        if len(pods) == len(bundle.pods):
            found.append(bundle)
        elif not bundle.whole:
            found += _made(Bundle(bundle.job, pods, whole=False))
    return found


def worth(session: Session, bundle: Bundle, need: Vector) -> float:
    """How much of what is needed a bundle gives, relative to what its job as a whole requests; the more the better."""
    if not bundle.whole:
        return math.inf
    gives = session.view.requested(bundle.pods)
    loses = session.view.requested(session.view.members(bundle.job))
    return float(worths(gives[None], loses[None], need)[0])


def worths(gives: Matrix, loses: Matrix, need: Vector) -> Vector:
    """The same of many; `gives` and `loses` are amounts, shape (bundles, dimensions)."""
    gain, cost = np.zeros(len(gives)), np.zeros(len(gives))
    for column in np.flatnonzero(need > 0):
        gain += np.minimum(gives[:, column] / need[column], 1)
        cost += loses[:, column] / need[column]
    found: Vector = np.divide(gain, cost, out=np.full(len(gives), np.inf), where=cost > 0)
    return found


def _made(*offers: Bundle) -> list[Bundle]:
    return [bundle for bundle in offers if bundle.pods]


def everything(session: Session, job: Job) -> list[PodRecord]:
    """All pods of a job that hold a place; none when one of them must not or cannot be evicted."""
    rows = session.view.rows_holding(job)
    if not _HELD[session.view.pods.state[rows]].all():
        return []
    holding = session.view.records(rows)
    return holding if all(map(preemptable, holding)) else []
