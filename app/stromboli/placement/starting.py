"""Whether pods with places may start now.

Terminating pods count in their queues until they are gone, and the pods of a sub group start together.
"""

from __future__ import annotations

from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.operation import Kind
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.state.pods import PodRecord


def startable(session: Session, job: Job, pod: PodRecord, count: int) -> int:
    """Number of pods like one of a job, of `count`, that may be bound now; if 0, the reason is kept for the pod."""
    if not _some_end(session):
        return count
    number, why = session.ask.startable(job.queue, pod, count)
    if not number and why is not None:
        session.view.trace.promised[pod.row] = why
    return number


def may_start(session: Session, job: Job, pod: PodRecord, node: int) -> bool:
    """Whether a pod of a job may be bound to a node now; otherwise it can only be promised its place."""
    return startable(session, job, pod, 1) > 0 and not starts_later(session, pod, node)


def starts_later(session: Session, pod: PodRecord, node: int) -> bool:
    """Whether a pod that may start now has to wait on a node; the reason is kept for the pod."""
    why = session.ask.starts_later(pod, node) if _some_end(session) else None
    if why is not None:
        session.view.trace.promised[pod.row] = why
    return why is not None


def wait_together(session: Session, statement: Statement) -> None:
    """Only promise nodes to pods of sub groups that lack others: a job that runs would bind some before the rest."""
    operations, missing = statement.save(), session.ask.sub_job_missing
    allocated = {each.sub_job for each in operations if each.kind is Kind.Allocate}
    late = {group for group in allocated if group is not None and group.job.divided and missing(group) > 0}
    if not late or not session.rules.what_fits:
        return
    statement.discard()
    for operation in operations:
        if operation.sub_job not in late or operation.kind is not Kind.Allocate:
            statement.recover([operation])
            continue
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            statement.pipeline(operation.sub_job, pod, node)


def _some_end(session: Session) -> bool:
    """Whether pods hold capacity that a queue gets back later."""
    return session.ledger.evicts or session.view.terminating is not None
