"""backfill: places pods that request nothing; they need no free capacity."""

from __future__ import annotations

from functools import partial

from stromboli.api.resources import PODS, TOLERANCE, Mask
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.cluster.job import Job
from stromboli.framework.diagnosis.explain import unplaceable
from stromboli.framework.session.session import Session
from stromboli.placement.pending import stays_together
from stromboli.state.pods import PodRecord


class Backfill(Action):
    name = "backfill"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        waiting: dict[str, list[tuple[Job, list[PodRecord]]]] = {}
        jobs = session.view.jobs
        best_effort = jobs.now(session.view.membership.pending_best_effort, lambda job: job.pending_best_effort)
        lined_up = session.budget.line_up(self.name, (best_effort > 0) & ~jobs.now_in_phase("", "Pending"))
        for job in lined_up:
            if job.pending_phase or not job.pending_best_effort:
                continue
            pods = session.attempt(job, partial(self._pods, session, job), otherwise=None)
            if pods:
                waiting.setdefault(job.queue.name, []).append((job, pods))
        turns = session.budget.turns(self.name, {name: [job for job, _ in jobs] for name, jobs in waiting.items()})
        with_pods = {job.key for of_queue in waiting.values() for job, _ in of_queue}
        turns.need_none(job for job in lined_up if job.key not in with_pods)
        queues = sorted((session.view.queues[name] for name in waiting), key=session.ask.queue_key)
        for queue in queues:
            pods_of = {job.key: pods for job, pods in waiting[queue.name]}
            for job in turns.in_order((job for job, _ in waiting[queue.name]), session.ask.job_key):
                session.budget.serve(turns, job, partial(self._place_all, session, job, pods_of[job.key]))
        session.budget.put_off(self.name, turns)

    def _pods(self, session: Session, job: Job) -> list[PodRecord]:
        """The pods of a job to be placed here; none when the job has to wait."""
        if stays_together(session, job):
            return []
        pods = [pod for pod in session.view.pending(job) if pod.pod_class.best_effort and not pod.pod_class.gated]
        why = session.ask.job_valid(job) or session.ask.shut(job)
        if pods and why is not None:
            session.view.trace.job(job.key, why)
            return []
        return pods

    def _place_all(self, session: Session, job: Job, pods: list[PodRecord]) -> None:
        """Give each pod a node; once the job is ready, everything that it holds is decided.

        A job that does not become ready gives the nodes back where allocate places what its gang lacks.
        """
        statement, counted = session.statement(), session.view.counts_pods or session.ask.count_pods
        for pod in session.ask.in_task_order(pods):
            if counted:
                allowed, refusal = session.ask.allocatable(job.queue, pod)
                if allowed:
                    allowed, refusal = session.ask.startable(job.queue, pod)
                if not allowed and refusal is not None:
                    session.view.trace.pod(pod.row, refusal)
                    continue
            node = session.kernel.best_effort(pod, _unpromised(session, pod))
            if node is None:
                session.view.trace.pod(pod.row, unplaceable(session, pod))
                continue
            statement.allocate(session.view.sub_job_of(job, pod), (pod,), (node,))
            if session.ask.job_missing(job) <= 0:
                statement.commit()
                session.outcome.commit_held(job)
        if session.rules.readiness:
            statement.discard()


def _unpromised(session: Session, pod: PodRecord) -> Mask | None:
    """The nodes that take a pod in addition to pods promised places there; None when no pods were.

    Ports, devices and the like of the session's victims are not free yet.
    """
    nodes = session.view.nodes
    if nodes.plain or not session.rules.served_next:
        return None
    accepting: Mask = nodes.available(nodes.rows)[PODS] >= 1 - TOLERANCE
    accepting[[node for node in session.outcome.vacated if session.is_vacated(pod, node)]] = False
    return accepting
