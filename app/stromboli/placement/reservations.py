"""Room that was made for jobs in earlier sessions: they get it before any job is served.

Between the eviction and the moment when the victim has gone others would take the place, and another pod would have
to go. So the places stay promised until the pods are bound or gone, the room is lost, or it took too long.
"""

from __future__ import annotations

from functools import partial

from stromboli.api.duration import since
from stromboli.framework.job import NOWHERE, Job
from stromboli.framework.kept import KeptRoom
from stromboli.framework.session import Session
from stromboli.framework.topology import has_topology
from stromboli.placement.starting import may_start


def place_reserved(session: Session) -> None:
    """Give jobs the places that were kept for them; forget what cannot be had any more."""
    if not session.room:
        return
    now, longest = session.view.time(), session.policy.evictions.keep
    for key, room in sorted(session.room.items(), key=lambda item: (item[1].since, item[0])):
        job = session.view.jobs.get(key)
        in_time = job is not None and since(room.since, now) < longest and not has_topology(job)
        if job is None or not in_time or not session.attempt(job, partial(_place, session, job, room), otherwise=False):
            del session.room[key]


def _place(session: Session, job: Job, room: KeptRoom) -> bool:
    """Promise a job's pods their places, or bind them when there is room; False, and nothing done, if one is lost."""
    pods = session.ask.in_task_order([pod for pod in session.view.pending(job) if pod.uid in room.places])
    if not pods or job.pending_phase or session.ask.closed(job.queue) or session.ask.job_valid(job) is not None:
        return False
    statement, nodes = session.statement(), session.view.nodes.facts.index
    for pod in pods:
        node = nodes.get(room.places[pod.uid])
        place = None if node is None else session.kernel.best_on(pod, node)
        allowed, _ = session.ask.allocatable(job.queue, pod)
        if place is None or allowed <= 0 or session.ask.refusal(pod, place[0]) is not None:
            statement.discard()
            return False
        sub_job = session.view.sub_job_of(job, pod)
        if place[1] and may_start(session, job, pod):
            statement.allocate(sub_job, (pod,), (place[0],))
        else:
            statement.pipeline(sub_job, pod, place[0])
    if session.ask.job_missing(job) <= 0:
        statement.commit()
        for group in job.opened_sub_jobs:
            group.nominated_hyper_node = NOWHERE
    elif not session.ask.job_pipelined(job):
        statement.discard()
        return False
    return True
