"""A job in a list: how it stands, why it waits or does not run, and what it asks for."""

from __future__ import annotations

from functools import partial

import msgspec

from stromboli.api.crds import PodGroup
from stromboli.api.reasons import Stage
from stromboli.api.resources import Vector
from stromboli.dashboard.cards import cards
from stromboli.dashboard.waiting import waiting_since
from stromboli.explain.jobs import outline
from stromboli.explain.overview import JobRow
from stromboli.explain.running import held_up_together
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.diagnosis.explain import no_such_queue
from stromboli.framework.session.session import Session
from stromboli.workloads.names import workload_of

#: the reason of jobs whose pods have nodes and do not run there as they should
NOT_RUNNING = "NotRunning"


def job_row(session: Session, job: Job, asked: Vector) -> JobRow:
    """A job of a session; `asked` is the request of its pods, shape (dimensions)."""
    said, view = outline(session, job.key), session.view
    assert said is not None
    return JobRow(
        namespace=job.namespace,
        name=job.name,
        queue=job.queue.name,
        phase=job.phase or "Pending",
        priority=job.priority,
        created=job.created,
        pods=said.pods,
        placed=said.placed,
        min_member=said.min_member,
        workload=workload_of(job.pod_group),
        called=job.pod_group.workload,
        stage=said.stage,
        reason=said.reason,
        message=f"{said.message} ({said.detail})" if said.detail else said.message,
        who=said.who,
        since=waiting_since(job) if said.reason else 0.0,
        cards=cards(view, asked, partial(view.members, job)),
    )


def as_it_runs(session: Session, row: JobRow, job: Job) -> JobRow:
    """The row of a job that waits for nothing, with why its pods do not run as they should."""
    held = "" if row.reason else held_up_together(session, job)
    if not held:
        return row
    return msgspec.structs.replace(row, stage=Stage.Binding.name, reason=NOT_RUNNING, message=f"{row.message}; {held}")


def lost_row(view: View, group: PodGroup, pods: int) -> JobRow:
    """A PodGroup whose queue does not exist, and the number of its waiting pods."""
    reason = no_such_queue(view, group.spec.queue)
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
        workload=workload_of(group),
        called=group.workload,
        stage=reason.stage.name,
        reason=reason.reason,
        message=reason.numbered,
        who=str(reason.actionable),
        since=group.metadata.created,
    )
