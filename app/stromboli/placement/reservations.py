"""Reserved places go to their pods before the first action of a session runs, whatever the order of actions.

Pods are bound there as soon as they have room and their job may start, and are promised their places until then. What
cannot be had any more is given back with its room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from stromboli.api.resources import fits
from stromboli.framework.job import NOWHERE, Job
from stromboli.framework.reservation import Place, Reservation
from stromboli.framework.session import Session
from stromboli.framework.statement import Statement
from stromboli.framework.topology import has_topology
from stromboli.placement.starting import may_start
from stromboli.state.pods import PodRecord


def place_reserved(session: Session) -> None:
    """Give jobs the places that are reserved for them, the oldest first, and end reservations that are void."""
    keeper = session.keeper
    for key, reservation in sorted(keeper.reservations.items(), key=lambda item: (item[1].since, item[0])):
        keeper.release(key)
        job = session.view.jobs[key]
        keeper.go_on(key, session.attempt(job, partial(_place_job, session, job, reservation), otherwise=()))


def _place_job(session: Session, job: Job, reservation: Reservation) -> Sequence[Place]:
    """Bind pods to the places of their job, or promise them these; returns the places that stay reserved."""
    if job.pending_phase or session.ask.closed(job.queue) is not None:
        return ()
    places = _standing(job, reservation)
    pods, absent = _matched(session, job, places)
    if session.ask.job_valid(job) is None:
        statement = session.statement()
        taken = [_at(place, pod) for pod, place in pods if _promise(session, statement, job, pod, place)]
        if taken and _keep(session, statement, job):
            return taken + absent
        statement.discard()
    # Pods that were moved come back one by one; when all are there, and have no place, there is nothing to wait for.
    return [place for place in places if not place.pod] if absent else ()


def _standing(job: Job, reservation: Reservation) -> list[Place]:
    """The places that are still wanted: no more pods come back than are missing."""
    returning = [place for place in reservation.places if not place.pod]
    missing = max(0, reservation.complete - job.allocated_count)
    return [place for place in reservation.places if place.pod] + returning[len(returning) - missing :]


def _matched(session: Session, job: Job, places: Sequence[Place]) -> tuple[list[tuple[PodRecord, Place]], list[Place]]:
    """The waiting pods of a job that have a place among some, and the places for pods that have not come yet."""
    named = {place.pod: place for place in places if place.pod}
    absent = [place for place in places if not place.pod]
    found = []
    for pod in session.ask.in_task_order([pod for pod in session.view.pending(job) if not pod.pod_class.gated]):
        place = named.get(pod.uid) or _large_enough(session, pod, absent)
        if place is not None:
            found.append((pod, place))
            if not place.pod:
                absent.remove(place)
    return found, absent


def _large_enough(session: Session, pod: PodRecord, places: Sequence[Place]) -> Place | None:
    """The first place that a pod of the same size had, else the first that is large enough."""
    request, amounts = session.view.request(pod), session.keeper.amounts
    large = [place for place in places if fits(request, amounts(place.request))]
    return next((place for place in large if (amounts(place.request) == request).all()), next(iter(large), None))


def _at(place: Place, pod: PodRecord) -> Place:
    return replace(place, pod=pod.uid)


def _promise(session: Session, statement: Statement, job: Job, pod: PodRecord, place: Place) -> bool:
    """Give a pod its place, now or later; False when it cannot have it."""
    node = session.view.nodes.facts.index.get(place.node)
    if node is None or session.ask.allocatable(job.queue, pod)[0] <= 0:
        return False
    found = session.kernel.best_on(pod, node)
    if (found is None and not _later(session, pod, node)) or session.ask.refusal(pod, node) is not None:
        return False
    sub_job = session.view.sub_job_of(job, pod)
    if found is not None and found[1] and may_start(session, job, pod):
        statement.allocate(sub_job, (pod,), (node,))
    else:
        statement.pipeline(sub_job, pod, node)
    return True


def _later(session: Session, pod: PodRecord, node: int) -> bool:
    """Whether a pod has a place on a node when pods that terminate have gone, which may hold more than amounts."""
    nodes = session.view.nodes
    return bool(
        session.kernel.varies(pod)
        and fits(session.view.request(pod), nodes.future_idle(node), nodes.always)
        and session.passing_later(pod)[node]
    )


def _keep(session: Session, statement: Statement, job: Job) -> bool:
    """Decide for what was placed if the job may start or goes on waiting; False when it never starts like this."""
    starts = session.ask.job_missing(job) <= 0
    if not starts and not session.ask.job_pipelined(job):
        return False
    if has_topology(job):
        _locate(session, statement, job)
    if starts:
        statement.commit()
        for group in job.opened_sub_jobs:
            group.nominated_hyper_node = NOWHERE
    return True


def _locate(session: Session, statement: Statement, job: Job) -> None:
    """Show for the rest of the session where the job and its groups lie."""
    tree = session.view.topology
    for operation in statement.operations:
        for node in operation.nodes:
            for of in (job, operation.sub_job):
                if of is not None:
                    statement.locate(of, int(tree.lowest[node]))
