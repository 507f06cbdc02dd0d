"""enqueue: admits pending jobs to compete for resources.

Queues and their jobs take turns in order; a job is admitted unless a plugin rejects it. A job without minResources
has nothing that could be checked and is always admitted. A job that says it was admitted, though no session knows of
it, is asked about, too: refused, it lays claim to nothing, and goes back to where it was if it has no pods.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import Any

from stromboli.api.pod_state import ALLOCATED_STATES
from stromboli.framework.action import Action
from stromboli.framework.job import Job, Queue
from stromboli.framework.session import Session


class Enqueue(Action):
    name = "enqueue"

    def run(self, session: Session) -> None:
        waiting: dict[str, list[tuple[Any, Job]]] = {}
        anew, jobs = session.rules.admission, session.view.jobs
        idle = jobs.in_phase("Running", "Unknown") & (jobs.count(*ALLOCATED_STATES) == 0)
        for job in jobs.where(jobs.in_phase("", "Pending", "Inqueue") | idle):
            if anew and job.phase in ("Running", "Unknown") and job.allocated_count == 0:
                job.phase = "Pending"
            if (job.pending_phase or _only_says_so(job)) and job.key not in session.view.never_fits:
                waiting.setdefault(job.queue.name, []).append((session.ask.job_key(job), job))
        queues: list[tuple[Any, Queue]] = []
        for name in waiting:
            queue = session.view.queues[name]
            heapq.heappush(queues, (session.ask.queue_key(queue), queue))
        for of_queue in waiting.values():
            heapq.heapify(of_queue)
        while queues:
            _, queue = heapq.heappop(queues)
            of_queue = waiting[queue.name]
            _, job = heapq.heappop(of_queue)
            session.attempt(job, partial(self._admit, session, job), otherwise=None)
            if job.pending_phase and session.in_strict_order(queue):
                session.hold_back(behind for _, behind in of_queue)
                continue
            if of_queue:
                heapq.heappush(queues, (session.ask.queue_key(queue), queue))

    def _admit(self, session: Session, job: Job) -> None:
        reason = session.ask.closed(job.queue)
        permitted = reason is None
        if permitted and job.min_resources is not None:
            permitted, reason = session.ask.job_enqueueable(job)
        if permitted:
            session.admit(job)
        elif job.pending_phase or not job.size:
            # Pods that are there may have been admitted by a leader before, and count in quotas already.
            job.phase = "Pending"
            if reason is not None:
                session.view.trace.job(job.key, reason)


def _only_says_so(job: Job) -> bool:
    """Whether a job is in line by its phase, but was not admitted as it is."""
    return job.phase == "Inqueue" and not job.claims
