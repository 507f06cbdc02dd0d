"""backfill: gives pods that request nothing a node; what is left over is enough for them."""

from __future__ import annotations

from functools import partial

from stromboli.framework import reasons
from stromboli.framework.job import Job
from stromboli.framework.registry import Action, ErrorCacheArguments
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord


class Backfill(Action):
    name = "backfill"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        waiting: dict[str, list[tuple[Job, list[PodRecord]]]] = {}
        for job in session.jobs.values():
            pods = self._pods(session, job)
            if pods:
                waiting.setdefault(job.queue.name, []).append((job, pods))
        queues = sorted((session.queues[name] for name in waiting), key=session.queue_key)
        for queue in queues:
            jobs = sorted(waiting[queue.name], key=lambda entry: session.job_key(entry[0]))
            for job, pods in jobs:
                turn = partial(self._place_all, session, job, pods)
                session.attempt(job, turn, otherwise=None)

    def _pods(self, session: Session, job: Job) -> list[PodRecord]:
        """The pods of a job to be placed here; none when the job has to wait."""
        if job.pending_phase or not job.pending_best_effort:
            return []
        pods = [pod for pod in session.pending(job) if pod.pod_class.best_effort and not pod.pod_class.gated]
        why = session.job_valid(job) or session.closed(job.queue)
        if pods and why is not None:
            session.trace.job(job.key, why)
            return []
        return pods

    def _place_all(self, session: Session, job: Job, pods: list[PodRecord]) -> None:
        for pod in session.in_task_order(pods):
            self._place(session, job, pod)

    def _place(self, session: Session, job: Job, pod: PodRecord) -> None:
        node = session.kernel.best_effort(pod)
        if node is None:
            session.trace.pod(pod.row, reasons.unplaceable(session, pod))
            return
        session.allocate_now(session.sub_job_of(job, pod), pod, node)
