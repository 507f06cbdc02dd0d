"""Pending jobs: the pods of a job that are still to be tried, group by group.

A try takes pods from a copy; only what was decided takes them from the original.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import Any

import numpy as np

from stromboli.framework.cluster.job import Job, SubJob
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.session.session import Session
from stromboli.placement import domains
from stromboli.state.pods import PodRecord


class PendingGroup:
    """The pods of a group that are still to be tried, in order; `at` is the index of the next one."""

    __slots__ = ("at", "failed_roles", "missing", "pods", "sub_job")

    def __init__(self, sub_job: SubJob, pods: list[PodRecord], at: int = 0) -> None:
        self.sub_job = sub_job
        self.pods = pods
        self.at = at
        #: number of pods that the group still needed at its last try, at least, 0 when it was ready; None before
        self.missing: int | None = None
        #: roles with a pod that found no node
        self.failed_roles: set[str] = set()

    def __bool__(self) -> bool:
        return self.at < len(self.pods)

    def copy(self) -> PendingGroup:
        """A copy to try elsewhere; roles that failed here may find nodes there."""
        return PendingGroup(self.sub_job, self.pods, self.at)

    def begin_with_largest(self, session: Session, count: int) -> bool:
        """Sort the next pods by size, the largest first; False if that changes nothing."""
        pods = self.pods[self.at : self.at + count]
        in_order = largest_first(session, pods)
        self.pods = [*self.pods[: self.at], *in_order, *self.pods[self.at + count :]]
        return in_order != pods

    def left(self) -> list[PodRecord]:
        """The pods that are still to be tried."""
        return self.pods[self.at :]

    def run_length(self, limit: int, kernel: Kernel) -> int:
        """Number of identical pods from here on, `limit` at most: of one class, role and identity.

        Labels are not part of a class, but a pod whose labels matter to others (`varies`) stands alone.
        """
        if limit == 1:
            return 1
        first = self.pods[self.at]
        identity = kernel.identity(first) if kernel.identifies else None
        end = min(len(self.pods), self.at + limit)
        at = self.at + 1
        while at < end:
            pod = self.pods[at]
            if pod.pod_class is not first.pod_class or pod.role != first.role:
                break
            if pod.labels != first.labels and kernel.varies(pod):
                break
            if identity is not None and kernel.identity(pod) != identity:
                break
            at += 1
        return at - self.at

    def take(self, count: int) -> list[PodRecord]:
        """The next pods; they will not be tried again."""
        self.at += count
        return self.pods[self.at - count : self.at]


class PendingJob:
    """The pods of a job that are still to be tried, by group, the next group first.

    Groups that are not ready go first, up to the number that their policies require; a group's rank is computed when
    it is added.
    """

    __slots__ = ("_heap", "_required", "_session")

    def __init__(self, session: Session, required: frozenset[str]) -> None:
        self._session = session
        self._required = required
        self._heap: list[tuple[Any, PendingGroup]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __iter__(self) -> Iterator[PendingGroup]:
        return (pending for _, pending in self._heap)

    def push(self, pending: PendingGroup) -> None:
        """Put a group in; one without pods is dropped."""
        if pending:
            heapq.heappush(self._heap, (self._key(pending.sub_job), pending))

    @property
    def first(self) -> PendingGroup:
        """The next group."""
        return self._heap[0][1]

    def pop(self) -> PendingGroup:
        """Take the next group out."""
        return heapq.heappop(self._heap)[1]

    def _key(self, sub_job: SubJob) -> tuple[object, ...]:
        """Smaller is next; the only group of a job needs none."""
        if not sub_job.job.divided:
            return ()
        return (sub_job.uid not in self._required, *self._session.ask.sub_job_key(sub_job))

    def copy(self) -> PendingJob:
        """A copy to try with."""
        copied = PendingJob(self._session, self._required)
        copied._heap = [(key, pending.copy()) for key, pending in self._heap]
        return copied


def competing(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that are to find nodes and could, including those with scheduling gates.

    Pods that request nothing are left to backfill, unless the job needs them to be ready, all of its pods are placed
    together, or they must be near the others.
    """
    waiting = session.view.pending(job)
    if session.view.too_large:
        waiting = [pod for pod in waiting if pod.row not in session.view.too_large]
    requesting = [pod for pod in waiting if not pod.pod_class.best_effort]
    if len(requesting) == len(waiting) or stays_together(session, job):
        return waiting
    if not requesting or not session.rules.readiness:
        return requesting
    return waiting if session.ask.job_missing(job) > 0 else requesting


def stays_together(session: Session, job: Job) -> bool:
    """Whether all pods of a job look for places in one HyperNode, those that request nothing as well."""
    strict = session.rules.readiness and session.rules.hard_topology
    return strict and has_topology(job) and domains.is_bound(job)


def placeable(session: Session, job: Job) -> list[PodRecord]:
    """The competing pods that no scheduling gate holds back."""
    return [pod for pod in competing(session, job) if not pod.pod_class.gated]


def by_group(session: Session, job: Job, pods: list[PodRecord]) -> Iterator[list[PodRecord]]:
    """Some pods of a job, group by group in order."""
    pending = pending_job(session, job, pods)
    while pending:
        yield pending.pop().left()


def in_turn(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that may be placed, group by group in order."""
    return [*chain.from_iterable(by_group(session, job, placeable(session, job)))]


def least_together(session: Session, job: Job, pods: Sequence[PodRecord]) -> int:
    """Number of pods of a job, in order, that have to get places together; at least 1.

    That is the number that the job lacks to start, or else the number that completes the first pod's group.
    """
    missing = session.ask.job_missing(job) - job.waiting_count
    if missing <= 0 and job.divided and pods:
        return domains.least_placements(session, session.view.sub_job_of(job, pods[0]))
    return max(1, missing)


def needed_first(session: Session, job: Job, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """Order some pods of a job, starting with those that its roles and sub groups still need to start.

    Those that have to get places together come first, the largest of them in front.
    """
    found = list(pods)
    if job.divided:
        found = [*chain.from_iterable(by_group(session, job, found))]
    if job.min_by_role:
        held = job.held_by_role(best_effort=False, promised=True)
        lacking = Counter({role: least - held.get(role, 0) for role, least in job.min_by_role.items()})
        beyond: list[PodRecord] = []
        needed: list[PodRecord] = []
        for pod in found:
            (needed if lacking[pod.role] > 0 else beyond).append(pod)
            lacking[pod.role] -= 1
        found = needed + beyond
    missing = least_together(session, job, found)
    return largest_first(session, found[:missing]) + found[missing:]


def largest_first(session: Session, pods: list[PodRecord]) -> list[PodRecord]:
    """Some pods that are all needed, the largest by the sum of their shares of all nodes first: small ones fit beside.

    Pods that request the same stay together, in order.
    """
    classes = {pod.pod_class.id: pod for pod in pods}
    if len(classes) < 2:
        return pods
    total = np.maximum(session.view.total, 1)
    size = {id: float((session.view.request(pod) / total).sum()) for id, pod in classes.items()}
    return sorted(pods, key=lambda pod: -size[pod.pod_class.id])


def identical(session: Session, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """The first pods that are placed alike; one whose places depend on other pods stands alone."""
    first = pods[0]
    if session.kernel.varies(first):
        return [first]
    identity = session.kernel.identity(first)
    alike = takewhile(lambda pod: pod.role == first.role and session.kernel.identity(pod) == identity, pods[1:])
    return [first, *alike]


def pending_job(session: Session, job: Job, pods: list[PodRecord]) -> PendingJob:
    """Some pods of a job, still to be tried."""
    pending = PendingJob(session, _required(session, job))
    for uid, group in _of_groups(session, job, pods).items():
        pending.push(PendingGroup(job.sub_jobs[uid], session.ask.in_task_order(group)))
    return pending


def _of_groups(session: Session, job: Job, pods: list[PodRecord]) -> dict[str, list[PodRecord]]:
    """Some pods of a job by the uid of their group."""
    if not job.divided:
        return dict.fromkeys(job.sub_jobs, pods)
    by_group: dict[str, list[PodRecord]] = {}
    for pod in pods:
        by_group.setdefault(session.view.sub_job_of(job, pod).uid, []).append(pod)
    return by_group


def _required(session: Session, job: Job) -> frozenset[str]:
    """The smallest set of groups, in order, that must become ready for the job to have as many as its policies ask."""
    missing = {p.name: p.min_sub_groups for p in job.pod_group.spec.sub_group_policy}
    if not missing:
        return frozenset()
    waiting = []
    for sub_job in job.sub_jobs.values():
        if session.ask.sub_job_missing(sub_job) > 0:
            waiting.append(sub_job)
        else:
            missing[sub_job.policy] = missing.get(sub_job.policy, 0) - 1
    required = set()
    for sub_job in sorted(waiting, key=session.ask.sub_job_key):
        if missing.get(sub_job.policy, 0) > 0:
            missing[sub_job.policy] -= 1
            required.add(sub_job.uid)
    return frozenset(required)
