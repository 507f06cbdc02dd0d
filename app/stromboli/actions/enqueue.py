"""enqueue: admits pending jobs, which then compete for resources.

Queues and their jobs take turns in order, and a job is admitted unless a plugin rejects it. Jobs without minResources
are always admitted, since there is nothing to check. A job whose phase says that it was admitted, although no session
admitted it, is checked like a pending one: if it is rejected, nothing is reserved for it, and without pods it returns
to its earlier phase.
"""

from __future__ import annotations

from functools import partial

from stromboli.api.pod_state import ALLOCATED_STATES
from stromboli.api.resources import Mask
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.rounds import take_turns
from stromboli.framework.session.session import Session
from stromboli.framework.session.turns import TOLD


class Enqueue(Action):
    name = "enqueue"

    def run(self, session: Session) -> None:
        waiting: dict[str, list[Job]] = {}
        for job in session.budget.line_up(self.name, self._waiting(session)):
            if not (job.pending_phase or _only_says_so(job)):
                job.phase = "Pending"
            waiting.setdefault(job.queue.name, []).append(job)
        turns = session.budget.turns(self.name, waiting, TOLD, places=False)
        take_turns(session, turns, waiting, partial(self._admit, session), lambda job: job.pending_phase)
        session.budget.put_off(self.name, turns)

    def _waiting(self, session: Session) -> Mask:
        """The jobs that are not admitted as they are, shape (jobs,)."""
        jobs = session.view.jobs
        waiting: Mask = jobs.now_in_phase("", "Pending")
        if jobs.claims is not None:
            waiting = waiting | (jobs.now_in_phase("Inqueue") & ~jobs.claims & ~jobs.given_up)
        if session.rules.admission:
            idle = jobs.now(jobs.count(*ALLOCATED_STATES), lambda job: job.allocated_count) == 0
            waiting = waiting | (jobs.now_in_phase("Running", "Unknown") & idle)
        return waiting & ~jobs.aside

    def _admit(self, session: Session, job: Job) -> bool:
        """Admit a job unless a plugin rejects it; it needs no other turn."""
        reason = session.ask.shut(job)
        permitted = reason is None
        if permitted and job.min_resources is not None:
            permitted, reason = session.ask.job_enqueueable(job)
        if permitted:
            session.admit(job)
        elif job.pending_phase or not job.size:
            # Existing pods may have been admitted by a leader before, and count in quotas already.
            job.phase = "Pending"
            if reason is not None:
                session.view.trace.job(job.key, reason)
        return False


def _only_says_so(job: Job) -> bool:
    """Whether a job is in line by its phase, but was not admitted as it is."""
    return job.phase == "Inqueue" and not job.claims
