"""Gangs that were tried in vain: while nothing has changed, another one of equal pods is told the same without a try.

In a full cluster most gangs that wait are of few kinds, and each of them would be placed in part, looked for a node and
taken back again.
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
    """How pods of one kind were tried in vain."""

    #: what had been decided until then
    after: Hashable
    #: the places that some of them had for a moment
    placed: Sequence[Operation]
    #: how many these are
    count: int
    #: why the next one had none
    reason: Reason


def depends_on_kind(session: Session, pending: PendingGroup) -> bool:
    """Whether equal pods of a gang, all of them needed, find places only by what they ask for and by what is idle.

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
    """Remember that pods were tried in vain: for some there were places, for the next one of them there was none."""
    count = sum(len(operation.pods) for operation in placed)
    found = InVain(_decided(session), placed, count, reason)
    session.view.trace.in_vain[session.kernel.identity(pending.pods[0])] = found


def recall(session: Session, pending: PendingGroup) -> bool:
    """Whether pods of the kind of a gang's were tried in vain and nothing has changed; its pods are told the same."""
    known = session.view.trace.in_vain.get(session.kernel.identity(pending.pods[0]))
    if known is None or known.after != _decided(session) or known.count >= len(pending.pods):
        return False
    if session.ask.sub_job_pipelined(pending.sub_job):
        # It may keep a part of what it needs.
        return False
    for operation in known.placed:
        for pod in pending.take(len(operation.pods)):
            session.ledger.tried[pod.row] = operation
    session.view.trace.pod(pending.take(1)[0].row, known.reason)
    return True


def _decided(session: Session) -> Hashable:
    """Equal as long as the same pods are bound, and the same plugins are asked."""
    return len(session.bound), len(session.failures)
