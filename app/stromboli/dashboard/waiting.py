"""Jobs that wait, for lists: since when, and whether in line or until something is changed first."""

from __future__ import annotations

from stromboli.api.crds import PodGroup
from stromboli.api.reasons import Actionable
from stromboli.explain.overview import JobRow
from stromboli.framework import reasons
from stromboli.framework.job import Job


def in_line(row: JobRow) -> bool:
    """Whether a job that waits is served when there is room: none that has to be changed first is ahead of others."""
    return row.who == Actionable.Wait


def waiting_since(job: Job) -> float:
    """Since when a job waits: since it was made or, where it ran before, since its PodGroup says so."""
    status = job.pod_group.status
    said = next((each for each in status.conditions if each.type == "Unschedulable" and each.status == "True"), None)
    if said is None or said.last_transition_time is None or not (status.running or job.ready_count):
        return job.created
    return said.last_transition_time.timestamp()


def lost_row(group: PodGroup, pods: int) -> JobRow:
    """A PodGroup whose queue does not exist, and the number of its waiting pods."""
    reason = reasons.queue_not_found(group.spec.queue)
    return JobRow(
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        queue=group.spec.queue,
        phase=group.status.phase or "Pending",
        priority=0,
        created=group.metadata.created,
        pods=pods,
        placed=0,
        min_member=group.spec.min_member,
        stage=reason.stage.name,
        reason=reason.reason,
        message=reason.message,
        who=str(reason.actionable),
        since=group.metadata.created,
    )
