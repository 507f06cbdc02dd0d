"""enqueue: admits pending jobs to compete for resources.

Queues and their jobs take turns in order; a job is admitted unless a plugin rejects it. A job without minResources
has nothing that could be checked and is always admitted.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import Any

from stromboli.framework.action import Action
from stromboli.framework.job import Job, Queue
from stromboli.framework.session import Session


class Enqueue(Action):
    name = "enqueue"

    def run(self, session: Session) -> None:
        waiting: dict[str, list[tuple[Any, Job]]] = {}
        anew = session.rules.admission
        for job in session.view.jobs.values():
            if anew and job.phase in ("Running", "Unknown") and job.allocated_count == 0:
                job.phase = "Pending"
            if job.pending_phase and job.key not in session.view.never_fits:
                waiting.setdefault(job.queue.name, []).append((session.ask.job_key(job), job))
        queues: list[tuple[Any, Queue]] = []
        for name in waiting:
            queue = session.view.queues[name]
            heapq.heappush(queues, (session.ask.queue_key(queue), queue))
        for jobs in waiting.values():
            heapq.heapify(jobs)
        while queues:
            _, queue = heapq.heappop(queues)
            jobs = waiting[queue.name]
            _, job = heapq.heappop(jobs)
            session.attempt(job, partial(self._admit, session, job), otherwise=None)
            if jobs:
                heapq.heappush(queues, (session.ask.queue_key(queue), queue))

    def _admit(self, session: Session, job: Job) -> None:
        closed = session.ask.closed(job.queue)
        if closed is not None:
            session.view.trace.job(job.key, closed)
            return
        if job.min_resources is not None:
            permitted, reason = session.ask.job_enqueueable(job)
            if not permitted:
                if reason is not None:
                    session.view.trace.job(job.key, reason)
                return
        session.admit(job)
