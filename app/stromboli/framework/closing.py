"""The end of a session: what PodGroups and queues show from now on, and a reason for every pod without a place."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api.crds import PodGroupStatus
from stromboli.api.decisions import EmitEvent, Nominate, SetPodGroupStatus, SetPodUnscheduled, SetQueueStatus
from stromboli.api.pod_state import PodState
from stromboli.api.reasons import Stage
from stromboli.api.resources import Dimensions, Vector
from stromboli.framework.explain import why
from stromboli.framework.job import Job
from stromboli.framework.session import Session

# int: the members themselves are slow to get at before Python 3.12
_RUNNING, _SUCCEEDED, _FAILED = int(PodState.Running), int(PodState.Succeeded), int(PodState.Failed)
#: reasons, beside those of placement, that more nodes would do away with
_HELPED_BY_NODES = frozenset(("ClusterOvercommitted", "QueueOverused", "QueueShareExceeded"))
_WAITING = (PodState.Pending, PodState.Allocated, PodState.Pipelined)


def close(session: Session) -> None:
    """Add the status decisions; only what differs from the snapshot is written."""
    for job in session.view.jobs.values():
        job.phase = phase(job)
        if _differs(job):
            session.decisions.append(SetPodGroupStatus(job.namespace, job.name, pod_group_status(job)))
            session.decisions += _news(session, job)
    view = session.view
    for name, held in view.by_queue(view.membership.allocated_now()).items():
        amounts = _quantities(session, held)
        if amounts != dict(session.view.queues[name].resource.status.allocated):
            session.decisions.append(SetQueueStatus(name, amounts))
    for row, node in _promised(session).items():
        pod, name = session.view.record(row), session.view.nodes.name(node)
        if pod.nominated_node != name:
            session.decisions.append(Nominate(pod.namespace, pod.name, pod.uid, name))


def _news(session: Session, job: Job) -> Iterator[EmitEvent | SetPodUnscheduled]:
    """For each new reason why a job does not run an Event, and a condition for its pods."""
    known = {(c.type, c.status, c.message) for c in job.pod_group.status.conditions}
    for condition in job.conditions:
        said = (condition.type, condition.status, condition.message)
        if condition.type == "Unschedulable" and condition.status == "True" and said not in known:
            uid = job.pod_group.metadata.uid
            yield EmitEvent(job.namespace, job.name, "PodGroup", uid, "Warning", condition.reason, condition.message)
            yield from _unscheduled(session, job)


def _unscheduled(session: Session, job: Job) -> Iterator[SetPodUnscheduled]:
    """Why each pod of a job waits; those with scheduling gates say so themselves."""
    blocking = session.view.reason(job)
    helped = blocking is not None and (blocking.stage is Stage.Placement or blocking.reason in _HELPED_BY_NODES)
    for pod in session.view.pending(job):
        if not pod.pod_class.gated:
            reason = why(session, pod, job, blocking)
            word = "Unschedulable" if helped else reason.reason
            yield SetPodUnscheduled(pod.namespace, pod.name, pod.uid, word, f"{reason.reason}: {reason.message}")


def _promised(session: Session) -> dict[int, int]:
    """The node of each pod for which others are evicted; under Volcano's rules also of those that gave it back."""
    promised = dict(session.promised)
    if not session.rules.evict_only_what_helps:
        for row, placement in session.ledger.tried.items():
            if placement.after_eviction and session.view.pods.state[row] in _WAITING:
                promised[row] = placement.nodes[0]
    return promised


def phase(job: Job) -> str:
    """The phase of a PodGroup after a session."""
    if job.unschedulable and job.counts[_RUNNING]:
        return "Unknown"
    done, scheduled = job.counts[_SUCCEEDED] + job.counts[_FAILED], job.scheduled_count
    if scheduled >= job.min_available:
        return "Completed" if scheduled == done else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def pod_group_status(job: Job) -> PodGroupStatus:
    """The status of a PodGroup after a session."""
    return PodGroupStatus(
        phase=job.phase,
        conditions=job.conditions,
        running=job.counts[_RUNNING],
        succeeded=job.counts[_SUCCEEDED],
        failed=job.counts[_FAILED],
    )


def _differs(job: Job) -> bool:
    """Whether the status of a job is worth writing: times and transition ids alone are not."""
    old, counts = job.pod_group.status, job.counts
    if job.phase != old.phase or counts[_RUNNING] != old.running:
        return True
    if counts[_SUCCEEDED] != old.succeeded or counts[_FAILED] != old.failed:
        return True
    if job.conditions is old.conditions:
        return False
    return [condition.shown for condition in job.conditions] != [condition.shown for condition in old.conditions]


def _quantities(session: Session, amounts: Vector) -> dict[str, str]:
    dimensions = Dimensions()
    dimensions.names = list(session.view.dimensions)
    return dimensions.quantities(amounts)
