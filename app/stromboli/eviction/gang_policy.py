"""What gangpreempt and gangreclaim allow: arguments of the policy, which jobs may evict, and where gangs are placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field

from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session
from stromboli.placement import domains
from stromboli.placement.pending import PendingGroup, pending_job
from stromboli.state.pods import PodRecord

_MAX_DOMAINS = 8


class GangEvictionArguments(Arguments):
    """Arguments of the actions that evict for gangs."""

    max_domains: int = Field(default=_MAX_DOMAINS, alias="maxDomains")
    """How many HyperNodes are tried for a job; 0 and less count as the default."""
    allow_whole_bundle: bool = Field(default=True, alias="allowWholeBundle")
    """Whether gangs may be evicted that then cannot run, or only what they have above their minimum."""

    @classmethod
    def of(cls, session: Session, action: str) -> GangEvictionArguments:
        """Those of an action in the session's policy; actions that do not take these have the defaults."""
        found = session.policy.action_arguments.get(action)
        return found if isinstance(found, cls) else cls()


def may_evict(session: Session, pods: Sequence[PodRecord]) -> bool:
    """Whether there are pods to place, and none whose preemption policy Never counts."""
    never = session.ask.heeds_vetoes and any(pod.pod_class.spec.preemption_policy == "Never" for pod in pods)
    return bool(pods) and not never


def search_domains(session: Session, job: Job, action: str) -> list[int]:
    """The HyperNodes to try for a job, in order."""
    top, most = session.view.topology.top, GangEvictionArguments.of(session, action).max_domains
    gradients = domains.gradients(session, job, top, evicting=True)
    found = [hyper_node for gradient in gradients for hyper_node in gradient.tolist()]
    if not found and not domains.is_bound(job):
        found = [top]
    return found[: most if most > 0 else _MAX_DOMAINS]


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
            gradients = domains.gradients(session, group.sub_job, domain, evicting=True)
            hyper_nodes = [hyper_node for gradient in gradients for hyper_node in gradient.tolist()]
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
