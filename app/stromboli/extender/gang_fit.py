"""Whether a whole gang fits after the evictions that are possible for it.

kube-scheduler preempts for one pod at a time. For a member of a gang that is worth the victims only if every member
that the gang still lacks finds a node in the end, so all of them are counted before the first pod is evicted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import numpy as np

from stromboli.api.pod_state import HELD
from stromboli.api.resources import PODS, Rows, fits
from stromboli.eviction.eligibility import agrees
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.fitting import fitting
from stromboli.state.pods import PodRecord


def victims_on(session: Session, priority: int, nodes: Rows, *, in_part: bool = False) -> list[PodRecord]:
    """The pods on some nodes that may be evicted for one of a priority.

    A gang that can spare no pod counts only if all its pods are on one of the nodes; with `in_part` all do.
    """
    pods = session.view.pods
    on = np.zeros(len(session.view.nodes) + 1, np.bool_)
    on[nodes] = True
    on[-1] = False
    less = session.view.snapshot.pod_facts.priorities() < priority
    found = session.view.records(np.flatnonzero(np.isin(pods.state, HELD) & less & on[pods.node]))
    ours = [pod for pod in found if pod.job in session.view.jobs]
    kept = {pod.row for pod in ours}.difference(pod.row for pod in session.ask.evictable(ours) if agrees(session, pod))
    left = {pod.row for pod in ours} - kept
    jobs = [] if in_part else [session.view.jobs[key] for key in dict.fromkeys(pod.job for pod in ours)]
    whole = {job.key for job in jobs if _can_spare(session, job) == 0 and not _on_one_node(session, job, left)}
    return [pod for pod in found if pod.row not in kept and pod.job not in whole]


def _on_one_node(session: Session, job: Job, rows: Container[int]) -> bool:
    """Whether all pods of a gang that hold places are on one node, and among those in some rows."""
    holding = session.view.rows_holding(job)
    nodes = session.view.pods.node[holding]
    return bool((nodes == nodes[0]).all()) and all(row in rows for row in holding.tolist())


def fits_whole(session: Session, job: Job, pod: PodRecord) -> bool:
    """Whether all pods that a gang still needs would fit if the victims of one of them were evicted on every node.

    Of each other gang no more victims are counted than it can spare. Also true if only the pod itself is missing.
    """
    lacking = job.min_available - job.ready_count
    if lacking <= 1 or not session.ask.may_wait_for_gangs:
        return True
    view = session.view
    victims = list(_spared_together(session, victims_on(session, pod.spec_priority or 0, view.nodes.rows)))
    free, of_queue = view.nodes.future_idle().copy(), np.zeros(len(view.dimensions))
    for nomination in session.keeper.nominated(job):
        free[:, nomination.node] += nomination.request
    for victim in victims:
        request, of_job = view.request(victim), view.jobs.get(victim.job)
        free[:, view.pods.node[victim.row]] += request
        if of_job is not None and of_job.queue is job.queue:
            of_queue += request
    allowed, _ = session.ask.allocatable(job.queue, pod, lacking)
    beyond = view.request(pod) * max(lacking - allowed, 0)
    # Few queues limit the number of pods, and small pods may take the place of a large one.
    beyond[PODS] = 0
    if not fits(beyond, of_queue):
        return False
    return fitting(session, view.pending(job)[:lacking], free) == lacking


def _spared_together(session: Session, victims: Sequence[PodRecord]) -> Iterator[PodRecord]:
    """Victims, of each gang no more than it can spare, the least important first."""
    left: dict[str, int] = {}
    for victim in sorted(victims, key=lambda each: each.spec_priority or 0):
        job = session.view.jobs.get(victim.job)
        # Of one that can spare none all pods are on one node, and go together.
        spare = _can_spare(session, job) or None if job is not None else None
        if job is not None and spare is not None:
            left.setdefault(job.key, spare)
            left[job.key] -= 1
        if job is None or left.get(job.key, 0) >= 0:
            yield victim


def _can_spare(session: Session, job: Job) -> int | None:
    """The number of pods that a gang can lose and go on; None for all."""
    if not session.ask.may_wait_for_gangs or job.min_available <= 1:
        return None
    return max(job.ready_count - job.min_available, 0)
