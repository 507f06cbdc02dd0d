"""allocate: gives the pods of admitted jobs their nodes, gang by gang.

Queues take turns by share, in each the first job by order; its pods are tried on a statement until the job is ready,
and committed together or taken back together. A job that is ready goes back for its remaining pods, one at a time, so
that elastic jobs grow in turns. Identical pods that are tried one after the other anyway are placed in one pass.
"""

from __future__ import annotations

import heapq
from typing import Any

from stromboli.api.resources import Mask
from stromboli.framework import reasons
from stromboli.framework.job import Job, Queue, SubJob
from stromboli.framework.registry import Action, ErrorCacheArguments
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.state.pods import PodRecord


class Worksheet:
    """The pods of a group that are still to be tried, in order. `at` is the first of them."""

    __slots__ = ("at", "pods", "sub_job")

    def __init__(self, sub_job: SubJob, pods: list[PodRecord]) -> None:
        self.sub_job = sub_job
        self.pods = pods
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.pods)

    def run_length(self, limit: int) -> int:
        """How many pods from here on are of one class and role, `limit` at most."""
        first = self.pods[self.at]
        end = min(len(self.pods), self.at + limit)
        at = self.at + 1
        while at < end and self.pods[at].pod_class is first.pod_class and self.pods[at].role == first.role:
            at += 1
        return at - self.at

    def take(self, count: int) -> list[PodRecord]:
        """The next pods; they will not be tried again."""
        self.at += count
        return self.pods[self.at - count : self.at]


class Allocate(Action):
    name = "allocate"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        worksheets: dict[str, list[Worksheet]] = {}
        jobs_of: dict[str, list[tuple[Any, Job]]] = {}
        for job in session.jobs.values():
            sheets = self._worksheets(session, job)
            if sheets:
                worksheets[job.key] = sheets
                jobs_of.setdefault(job.queue.name, []).append((session.job_key(job), job))
        queues: list[tuple[Any, Queue]] = []
        for name, jobs in jobs_of.items():
            heapq.heapify(jobs)
            queue = session.queues[name]
            heapq.heappush(queues, (session.queue_key(queue), queue))
        while queues:
            _, queue = heapq.heappop(queues)
            jobs = jobs_of[queue.name]
            overused = session.overused(queue)
            if overused is not None:
                for _, job in jobs:
                    session.trace.job(job.key, overused)
                continue
            if not jobs:
                continue
            _, job = heapq.heappop(jobs)
            if self._allocate_job(session, job, worksheets[job.key]):
                heapq.heappush(jobs, (session.job_key(job), job))
            heapq.heappush(queues, (session.queue_key(queue), queue))

    def _worksheets(self, session: Session, job: Job) -> list[Worksheet]:
        """The pods of a job that may be placed, by group; empty when the job has to wait."""
        if job.pending_phase:
            if "enqueue" in session.policy.actions:
                return []
            job.phase = "Inqueue"
        pods = [pod for pod in session.pending(job) if not pod.pod_class.best_effort]
        if not pods:
            return []
        invalid = session.job_valid(job)
        if invalid is not None:
            session.trace.job(job.key, invalid)
            return []
        by_group: dict[str, list[PodRecord]] = {}
        for pod in pods:
            if pod.pod_class.gated:
                session.trace.pod(pod.row, reasons.gated(pod))
            else:
                by_group.setdefault(session.sub_job_of(job, pod).uid, []).append(pod)
        return [Worksheet(job.sub_jobs[uid], session.in_task_order(group)) for uid, group in by_group.items()]

    def _allocate_job(self, session: Session, job: Job, sheets: list[Worksheet]) -> bool:
        """Try one turn of a job; True when it was committed and has pods left."""
        sheet = sheets[0]
        statement = self._allocate_group(session, sheet)
        if statement is None or session.job_missing(job) > 0:
            return False
        statement.commit()
        return bool(sheet)

    def _allocate_group(self, session: Session, sheet: Worksheet, within: Mask | None = None) -> Statement | None:
        """Place pods of a group until it is ready; None when it stays neither ready nor promised a place."""
        statement = session.statement()
        missing = session.sub_job_missing(sheet.sub_job)
        while sheet:
            if not self._allocate_run(session, statement, sheet, max(1, missing), within):
                break
            missing = session.sub_job_missing(sheet.sub_job)
            if statement and missing <= 0:
                break
        if session.sub_job_missing(sheet.sub_job) <= 0 or session.sub_job_pipelined(sheet.sub_job):
            return statement
        statement.discard()
        return None

    def _allocate_run(
        self, session: Session, statement: Statement, sheet: Worksheet, missing: int, within: Mask | None
    ) -> bool:
        """Place the next identical pods; False when the rest of the group need not be tried."""
        sub_job, pod = sheet.sub_job, sheet.pods[sheet.at]
        count = sheet.run_length(missing)
        room, refusal = session.allocatable(sub_job.job.queue, pod, count)
        if room == 0:
            refused = sheet.take(1)[0]
            if refusal is not None:
                session.trace.pod(refused.row, refusal)
            return True
        if pod.role and pod.role in sub_job.failed_roles:
            session.trace.pod(sheet.take(1)[0].row, reasons.same_role_failed(pod))
            return True
        return self._place(session, statement, sheet, room, within)

    def _place(self, session: Session, statement: Statement, sheet: Worksheet, count: int, within: Mask | None) -> bool:
        sub_job, pod = sheet.sub_job, sheet.pods[sheet.at]
        if pod.nominated_node:
            nominated = session.nominated(pod, within)
            if nominated is not None:
                self._assign(statement, sub_job, sheet.take(1)[0], nominated)
                return True
            count = 1
        nodes = session.kernel.batch(pod, count, within)
        if nodes:
            statement.allocate(sub_job, sheet.take(len(nodes)), nodes)
            return True
        best = session.kernel.best(pod, within)
        if best is not None:
            self._assign(statement, sub_job, sheet.take(1)[0], best)
            return True
        failed = sheet.take(1)[0]
        session.trace.pod(failed.row, reasons.unplaceable(session, failed, within))
        sub_job.failed_roles.add(failed.role)
        return _worth_continuing(session, sub_job)

    def _assign(self, statement: Statement, sub_job: SubJob, pod: PodRecord, place: tuple[int, bool]) -> None:
        node, now = place
        if now:
            statement.allocate(sub_job, (pod,), (node,))
        else:
            statement.pipeline(sub_job, pod, node)


def _worth_continuing(session: Session, sub_job: SubJob) -> bool:
    """Whether the group can still become ready although a pod found no node."""
    job = sub_job.job
    if job.min_available == job.size or sub_job.min_available >= sub_job.size:
        return False
    if job.pod_group.spec.sub_group_policy:
        return True
    roles = job.pod_group.spec.min_task_member
    if job.min_available < sum(roles.values()):
        left = sum(1 for pod in session.pending(job) if pod.role not in sub_job.failed_roles)
        return job.ready_count + left >= job.min_available
    if not roles:
        return True
    held = job.held_by_role(best_effort=not session.rules.readiness)
    return all(held.get(role, 0) >= roles.get(role, 0) for role in sub_job.failed_roles)
