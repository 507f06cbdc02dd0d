"""Gangs that found no places: while nothing has changed, a gang of equal pods gets the same reason without an attempt.

In a full cluster most waiting gangs are of few kinds, and each attempt would place part of a gang and undo it again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from stromboli.api.reasons import Reason
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
from stromboli.placement.pending import PendingGroup


@dataclass(frozen=True, slots=True)
class InVain:
    """The failed attempt to place pods of one kind."""

    #: decisions until then
    after: Hashable
    #: the places that some of them had for a moment
    placed: Sequence[Operation]
    #: number of these
    count: int
    #: why the next one had none
    reason: Reason


def depends_on_kind(session: Session, pending: PendingGroup) -> bool:
    """Whether the places of a gang of equal pods, all needed, depend on their requests and on idle amounts alone.

    No pod may terminate or be promised a place.
    """
    job = pending.sub_job.job
    return (
        job.min_available == job.size
        and not job.divided
        and pending.sub_job.network_topology is None
        and session.view.nodes.settled
        and session.view.terminating is None
        and session.view.shard is None
        and not (session.ledger.evicts or session.keeper.nominations or session.undecided or session.ask.may_refuse)
        and not session.kernel.varies(pending.pods[0])
        and not any(pod.nominated_node for pod in pending.pods)
    )


def remember(session: Session, pending: PendingGroup, placed: Sequence[Operation], reason: Reason) -> None:
    """Remember a failed attempt: some pods of a gang had places, and there was none for the next one."""
    count = sum(len(operation.pods) for operation in placed)
    found = InVain(_decided(session), placed, count, reason)
    session.view.trace.in_vain[session.kernel.identity(pending.pods[0])] = found


def recall(session: Session, pending: PendingGroup) -> bool:
    """Whether an attempt with pods of this kind failed and nothing has changed; the pods then get its reason."""
    known = session.view.trace.in_vain.get(session.kernel.identity(pending.pods[0]))
    if known is None or known.after != _decided(session) or known.count >= len(pending.pods):
        return False
    if session.ask.sub_job_pipelined(pending.sub_job):
        # It may keep part of the places that it needs.
        return False
    for operation in known.placed:
        for pod in pending.take(len(operation.pods)):
            session.ledger.tried[pod.row] = operation
    session.view.trace.pod(pending.take(1)[0].row, known.reason)
    return True


def _decided(session: Session) -> Hashable:
    """A key that is equal as long as the same pods are bound and the same plugins are asked."""
    return len(session.bound), len(session.failures)
