"""What gangpreempt and gangreclaim allow: arguments of the policy, which jobs may evict, and in which HyperNodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from stromboli.framework.job import Job, SubJob
from stromboli.framework.plugin import Arguments
from stromboli.framework.session import Session
from stromboli.placement import domains
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


def may_evict(session: Session, job: Job, pods: Sequence[PodRecord], point: str) -> bool:
    """Whether the queue of a job, and the pods of it that want places, allow to evict for them."""
    if not pods or (session.rules.veto and any(pod.pod_class.spec.preemption_policy == "Never" for pod in pods)):
        return False
    return point != "reclaimable" or session.ask.preemptive(job.queue, pods) is None


def search_domains(session: Session, job: Job, arguments: GangEvictionArguments) -> list[int]:
    """The HyperNodes to try for a job, in order."""
    top = session.view.topology.top
    gradients = domains.gradients(session, job, top, evicting=True)
    found = [hyper_node for gradient in gradients for hyper_node in gradient.tolist()]
    if not found and not domains.is_bound(job):
        found = [top]
    return found[: arguments.max_domains if arguments.max_domains > 0 else _MAX_DOMAINS]


def group_domains(session: Session, job: Job, sub_job: SubJob, domain: int) -> Iterator[int]:
    """The HyperNodes to try for a group when its job is placed in one."""
    if not domains.is_bound(job):
        yield domain
        return
    for gradient in domains.gradients(session, sub_job, domain, evicting=True):
        yield from gradient.tolist()
