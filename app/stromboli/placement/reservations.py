"""Reserved places go to their pods before the first action of a session, whatever the order of actions.

Pods are bound there as soon as they fit and their job may start; until then they are promised their places. A
reservation that can no longer be met is released, with the capacity that was freed for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Mask, fits
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.cluster.reservation import Place
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement import domains
from stromboli.placement.pending import in_turn, needed_first
from stromboli.placement.starting import may_start, wait_together
from stromboli.state.pods import PodRecord

#: a pod, the node that it is promised, and whether it may start there now
_Promise: TypeAlias = tuple[PodRecord, int, bool]


def place_reserved(session: Session) -> None:
    """Give jobs the places that are reserved for them, the oldest first, and end reservations that are void.

    Before that, more important jobs of their queues take what they need; otherwise they would evict these jobs later.
    """
    keeper = session.keeper
    for queue, holders in _holders(session).items():
        for job in _outranking(session, queue, holders):
            held = [holder for holder in holders if holder.key in keeper.reservations]
            lower = [holder.key for holder in held if _outranks(session, job, holder)]
            session.attempt(job, partial(_take_over, session, job, lower), otherwise=None)
    for key in sorted(keeper.reservations, key=lambda key: (keeper.reservations[key].since, key)):
        keeper.release(key)
        job = session.view.jobs[key]
        turn = partial(_place_job, session, job)
        keeper.go_on(key, session.attempt(job, turn, otherwise=(), most=math.inf))


def _place_job(session: Session, job: Job) -> Sequence[Place]:
    """Bind pods to the places of their job, or promise them these; returns the places that stay reserved."""
    if job.pending_phase or _takes_nothing(session, job):
        return ()
    places, absent = session.keeper.taken[job.key], session.keeper.absent[job.key]
    if session.ask.job_valid(job) is None:
        pods = session.ask.in_task_order([pod for pod in session.view.pending(job) if pod.row in places])
        taken = _take(session, job, pods, places)
        if not taken and _lacks_share(session, job, pods) and session.ask.lendable(job.queue, pods) is None:
            # Shares change while victims are away, which request less than before and than when they are back.
            with session.ask.beyond_shares():
                taken = _take(session, job, pods, places)
        if taken:
            return (*taken, *absent)
    # Pods that were moved come back one by one; when all are there, and have no place, there is nothing to wait for.
    return [*(place for place in places.values() if not place.pod), *absent] if absent else ()


# -- jobs that outrank those with reservations -------------------------------------------------------------------------


def _holders(session: Session) -> dict[int, list[Job]]:
    """The jobs with reservations, by index of the queue."""
    found: dict[int, list[Job]] = {}
    for job in map(session.view.jobs.__getitem__, session.keeper.reservations):
        found.setdefault(job.queue.index, []).append(job)
    return found


def _outranking(session: Session, queue: int, holders: Sequence[Job]) -> list[Job]:
    """Jobs of a queue that wait and are more important than some that have reservations, in order."""
    keeper = session.keeper
    found = map(session.view.jobs.at, keeper.outranking(queue, min(job.priority for job in holders)).tolist())
    return sorted((job for job in found if job.key not in keeper.reservations), key=session.ask.job_key)


def _outranks(session: Session, job: Job, holder: Job) -> bool:
    """Whether a job outranks the holder of a reservation, and was not passed over when that reservation was made."""
    before = session.ask.job_order(job) < session.ask.job_order(holder)
    return before and job.priority > holder.priority and job.key not in session.keeper.reservations[holder.key].passed


def may_take_over(session: Session, job: Job) -> bool:
    """Whether a job may get places that are reserved for less important ones in the next session.

    They are offered before the first action, so a job that this session admitted has not been asked yet.
    """
    if job.pod_group.status.phase not in ("", "Pending"):
        return False
    holders = map(session.view.jobs.__getitem__, session.keeper.reservations)
    return any(holder.queue is job.queue and _outranks(session, job, holder) for holder in holders)


def _take_over(session: Session, job: Job, lower: Sequence[str]) -> None:
    """Promise a job what it needs to start in places of less important ones, unless it fits without."""
    keeper = session.keeper
    if not lower or job.divided or session.ask.job_missing(job) <= 0 or not _competes(session, job):
        return
    pods = needed_first(session, job, in_turn(session, job))[: session.ask.job_missing(job)]
    if any(pod.pod_class.spec.preemption_policy == "Never" for pod in pods) or _found(session, job, pods):
        return
    for key in lower:
        keeper.release(key)
    found: list[_Promise] = []
    try:
        found = _found(session, job, pods) or _found(session, job, pods, later=True)
        _promise_all(session, job, found)
    finally:
        for key in lower:
            keeper.hold(key)
    # Devices that claims give back later are not counted one by one, so only one job may wait for those of a node.
    devices = {node for pod, node, now in found if not now and _waits_for_claims(session, pod)}
    for key in lower:
        if not devices.isdisjoint(_nodes_of_claims(session, key)):
            keeper.release(key)
            keeper.go_on(key, ())


def _nodes_of_claims(session: Session, key: str) -> set[int]:
    """The nodes on which places are reserved for pods of a job that have claims."""
    index, pods = session.view.nodes.facts.index, session.view.pending(session.view.jobs[key])
    taken = session.keeper.taken[key]
    places = [taken[pod.row].node for pod in pods if pod.row in taken and _waits_for_claims(session, pod)]
    return {index[node] for node in places}


def _waits_for_claims(session: Session, pod: PodRecord) -> bool:
    return pod.pod_class.needs_claims(session.view.snapshot.claimed)


def _promise_all(session: Session, job: Job, places: Sequence[_Promise]) -> None:
    """Bind pods to their places if all may start there now, else promise them the places."""
    statement, at_once = session.statement(), all(now for _, _, now in places)
    for pod, node, _ in places:
        sub_job = session.view.sub_job_of(job, pod)
        if at_once:
            statement.allocate(sub_job, (pod,), (node,))
        else:
            statement.pipeline(sub_job, pod, node, after_eviction=True)
    if has_topology(job):
        domains.locate(session, statement, job)
    statement.commit()


def _competes(session: Session, job: Job) -> bool:
    waits = job.pending_phase or job.key in session.behind
    return not waits and not _takes_nothing(session, job) and session.ask.job_valid(job) is None


def _takes_nothing(session: Session, job: Job) -> bool:
    """Whether a job's queue is closed, or an action held the job back: it has not run yet in this session."""
    return bool(session.view.quiet[job.index]) or session.ask.shut(job) is not None


def _found(session: Session, job: Job, pods: Sequence[PodRecord], *, later: bool = False) -> list[_Promise]:
    """Places for all of some pods of a job in one of its domains, the best first; none if one pod has no place.

    `later` adds those that pods which terminate leave with more than amounts, such as host ports.
    """
    if not domains.is_bound(job):
        return _found_within(session, job, pods, None, later=later)
    for gradient in domains.gradients(session, job, session.view.topology.top):
        for hyper_node in domains.that_may_fit(session, gradient, pods, len(pods)).tolist():
            if found := _found_within(session, job, pods, session.view.topology.mask(hyper_node), later=later):
                return found
    return []


def _found_within(
    session: Session, job: Job, pods: Sequence[PodRecord], within: Mask | None, *, later: bool
) -> list[_Promise]:
    """Places for all of some pods on some nodes, and whether they may start there now; none if one has no place."""
    statement, found = session.statement(), list[_Promise]()
    for pod in pods:
        may_hold = session.ask.allocatable(job.queue, pod)[0] > 0
        place = session.kernel.best(pod, within) if may_hold else None
        if place is None and may_hold and later:
            place = _left_to(session, pod, within)
        if place is None or session.ask.refusal(pod, place[0]) is not None:
            break
        found.append((pod, place[0], place[1] and may_start(session, job, pod, place[0])))
        statement.pipeline(session.view.sub_job_of(job, pod), pod, place[0])
    enough = len(found) == len(pods) and session.ask.job_pipelined(job)
    statement.discard()
    return found if enough else []


def _left_to(session: Session, pod: PodRecord, within: Mask | None) -> tuple[int, bool] | None:
    """The first node where a pod has a place once those that terminate have gone, which is later."""
    nodes = session.view.nodes
    passing = session.passing_later(pod) & fits(session.view.request(pod), nodes.future_idle(), nodes.always)
    possible = np.flatnonzero(passing if within is None else passing & within)
    return (int(possible[0]), False) if len(possible) else None


# -- the places of a job -----------------------------------------------------------------------------------------------


def _take(session: Session, job: Job, pods: Sequence[PodRecord], places: Mapping[int, Place]) -> list[Place]:
    """Give pods their places, by row; returns those that were given, none when the job would never start there."""
    statement = session.statement()
    taken = [_at(places[pod.row], pod) for pod in pods if _promise(session, statement, job, pod, places[pod.row])]
    if taken and _keep(session, statement, job):
        return taken
    statement.discard()
    return []


def _lacks_share(session: Session, job: Job, pods: Sequence[PodRecord]) -> bool:
    """Whether all of some pods may not fit into the share of their queue, where capacity beyond shares is lent."""
    ask, count = session.ask, len(pods)
    return ask.may_lend and any(ask.allocatable(job.queue, pod, count)[0] < count for pod in pods)


def _at(place: Place, pod: PodRecord) -> Place:
    return replace(place, pod=pod.uid)


def _promise(session: Session, statement: Statement, job: Job, pod: PodRecord, place: Place) -> bool:
    """Give a pod its place, now or later; False if it cannot have it."""
    node = session.view.nodes.facts.index.get(place.node)
    if node is None or session.ask.allocatable(job.queue, pod)[0] <= 0:
        return False
    found = session.kernel.best_on(pod, node)
    if (found is None and not _later(session, pod, node)) or session.ask.refusal(pod, node) is not None:
        return False
    sub_job = session.view.sub_job_of(job, pod)
    if found is not None and found[1] and may_start(session, job, pod, node):
        statement.allocate(sub_job, (pod,), (node,))
    else:
        statement.pipeline(sub_job, pod, node)
    return True


def _later(session: Session, pod: PodRecord, node: int) -> bool:
    """Whether a pod has a place on a node when pods that terminate have gone, which may hold more than amounts.

    Claims give devices back some time after their pods: until then the place stays reserved.
    """
    nodes = session.view.nodes
    if not session.kernel.varies(pod) or not fits(session.view.request(pod), nodes.future_idle(node), nodes.always):
        return False
    claims = _waits_for_claims(session, pod)
    passing = session.kernel.feasible(pod, hopeful=True) if claims else session.passing_later(pod)
    return bool(passing[node])


def _keep(session: Session, statement: Statement, job: Job) -> bool:
    """Commit the placements if the job may start or can keep waiting; False if it would never start with them."""
    wait_together(session, statement)
    starts = session.ask.job_missing(job) <= 0
    if not starts and not session.ask.job_pipelined(job):
        return False
    if has_topology(job):
        domains.locate(session, statement, job)
    if starts:
        for group in job.opened_sub_jobs:
            statement.nominate(group, NOWHERE)
        statement.commit()
    return True
