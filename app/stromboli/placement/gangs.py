"""Places for the groups of a job in HyperNodes, one group after the other, however those of one group are found."""

from __future__ import annotations

from collections.abc import Callable

from stromboli.framework.cluster.job import NOWHERE, Job, SubJob
from stromboli.framework.session.session import Session
from stromboli.placement import domains
from stromboli.placement.pending import PendingGroup, pending_job
from stromboli.state.pods import PodRecord


def domains_to_evict_in(session: Session, job: Job, most: int) -> list[int]:
    """The HyperNodes to try for a job that evicts others, in order, `most` at most."""
    top = session.view.topology.top
    return (_below(session, job, top) or ([] if domains.is_bound(job) else [top]))[:most]


def _below(session: Session, of: Job | SubJob, top: int) -> list[int]:
    """The HyperNodes in which a job or a group may be placed, of one and those below it, in order."""
    return [node for gradient in domains.gradients(session, of, top, evicting=True) for node in gradient.tolist()]


def place_gang(
    session: Session, job: Job, pods: list[PodRecord], domain: int, place: Callable[[PendingGroup, int], bool]
) -> dict[str, int] | None:
    """Give the groups of a job places in a HyperNode, or below it, until the job may run; None if it then may not.

    `place` finds places for a group in a HyperNode. Under Volcano's rules a job without groups is placed below it, too,
    and every group has to find places. Returns where each group was placed, by uid.
    """
    pending, found, as_volcano = pending_job(session, job, pods), dict[str, int](), session.rules.first_fit
    while pending:
        group, hyper_nodes = pending.pop(), [domain]
        if (as_volcano or job.divided) and domains.is_bound(job):
            hyper_nodes = _below(session, group.sub_job, domain)
        hyper_node = next((each for each in hyper_nodes if place(group, each)), NOWHERE)
        if hyper_node == NOWHERE and as_volcano:
            return None
        if hyper_node == NOWHERE:
            # Others may be enough for it to start.
            continue
        found[group.sub_job.uid] = hyper_node
        if session.ask.starts_as_promised(job):
            return found
    return None
