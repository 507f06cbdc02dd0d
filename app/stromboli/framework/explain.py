"""Why pods have no place: a reason for every pod that waits, and what keeps one from every node."""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Actionable, Reason, Stage
from stromboli.api.resources import CPU, MEMORY, TOLERANCE, Mask
from stromboli.framework import reasons
from stromboli.framework.job import Job
from stromboli.framework.never_fits import larger_than_any_node
from stromboli.framework.reasons import resource_name
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord


def pending_reasons(session: Session) -> dict[str, Reason]:
    """Why each pod without a place has none, by pod key; nothing pending is without a reason."""
    view = session.view
    out: dict[str, Reason] = {}
    jobs = {job.row: job for job in view.jobs.values()}
    blocking: dict[int, Reason | None] = {}
    pods = view.pods
    for row in np.flatnonzero(pods.state == PodState.Pending).tolist():
        record = pods.records[row]
        if record is None or record.node_name:
            continue
        job = jobs.get(int(pods.job[row]))
        if job is not None and job.row not in blocking:
            blocking[job.row] = view.reason(job)
        out[record.key] = why(session, record, job, blocking[job.row] if job else None)
    for row in np.flatnonzero(pods.state == PodState.Pipelined).tolist():
        record = view.record(row)
        out[record.key] = reasons.waits_for_release(view.nodes.name(int(pods.node[row])))
    return out


def all_reasons(session: Session) -> dict[str, Reason]:
    """The same, and why each pod moves that is evicted while another place is kept for its replacement."""
    name = session.view.nodes.name
    moving = {move.pods[0].key: reasons.moved(name(move.nodes[0]), move.beneficiary) for move in session.moved.values()}
    return pending_reasons(session) | moving


def why(session: Session, pod: PodRecord, job: Job | None, blocking: Reason | None = None) -> Reason:
    """Why a pending pod has no place; `job` is None when its PodGroup is not in the session.

    `blocking` is `View.reason(job)` for whoever knows it: finding it takes a look at all pods of the job.
    """
    view = session.view
    if job is None:
        pod_group = view.snapshot.pod_groups[row] if (row := int(view.pods.job[pod.row])) >= 0 else None
        return reasons.queue_not_found(pod_group.spec.queue) if pod_group else reasons.no_pod_group(pod)
    own = view.trace.pods.get(pod.row)
    of_job = view.trace.jobs.get(job.key)
    if of_job is not None and (own is None or of_job.stage <= own.stage):
        return of_job
    if own is not None:
        return own
    return reasons.not_admitted(job) if job.pending_phase else reasons.gang_blocked(job, blocking or view.reason(job))


def unplaceable(session: Session, pod: PodRecord, within: Mask | None = None) -> Reason:
    """Why no node takes a pod, with the number of nodes that each cause rules out.

    The message names the causes without counts, so that an unchanged situation reads the same.
    """
    left = np.ones(len(session.view.nodes), np.bool_) if within is None else within.copy()
    if not left.any():
        return Reason(Stage.Placement, "NoNodes", "there are no nodes to choose from", Actionable.Admin)
    counts: dict[str, int] = {}
    for cause, failed in session.kernel.causes(pod):
        hit = failed & left
        if hit.any():
            counts[cause] = int(hit.sum())
            left &= ~hit
    if not left.any():
        message = f"no node takes the pod: {_listed(counts)}"
        return Reason(Stage.Placement, "NoMatchingNode", message, Actionable.User, nodes=counts)
    return _no_room(session, pod, left, counts)


def _no_room(session: Session, pod: PodRecord, nodes: Mask, counts: dict[str, int]) -> Reason:
    """The reason of a pod that some nodes would take if they had room."""
    view = session.view
    request, future, whole = view.request(pod), view.nodes.future_idle(), view.nodes.allocatable
    for column in range(len(request)):
        short = nodes & (future[column] <= request[column] - TOLERANCE)
        if short.any() and (request[column] or column in (CPU, MEMORY)):
            counts[f"Insufficient {resource_name(view.dimensions, pod, column)}"] = int(short.sum())
    if (whole[:, nodes] > request[:, None] - TOLERANCE).all(axis=0).any():
        message = f"no node has room: {_listed(counts)}"
        return Reason(Stage.Placement, "Unschedulable", message, Actionable.Wait, nodes=counts)
    return larger_than_any_node(view, pod, whole[:, nodes], counts)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(sorted(counts))
