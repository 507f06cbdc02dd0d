"""Policies of the actions: which jobs may evict others, and for which of their pods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import Field

from stromboli.api.pod_state import PodState
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session
from stromboli.placement.exact.places import is_impossible
from stromboli.placement.pending import in_turn
from stromboli.placement.reservations import may_take_over
from stromboli.state.pods import PodRecord

#: default number of HyperNodes that are tried for a job
MAX_DOMAINS = 8
#: number of times that a search for victims looks at each node
_SEARCH = 20


def evicting_pods(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that wait for places and may evict others for them, in order."""
    pods = session.ask.in_task_order(session.view.pending(job))
    return [pod for pod in pods if not pod.pod_class.gated and pod.pod_class.spec.preemption_policy != "Never"]


def gang_pods(session: Session, job: Job) -> list[PodRecord]:
    """The pods of a job that look for places together, in order; those that request nothing if it has no others."""
    return in_turn(session, job) or evicting_pods(session, job)


def search_steps(session: Session) -> int:
    """Steps of the search for victims besides those of the kernel, see `Turns`."""
    return _SEARCH * len(session.view.nodes)


def starving(session: Session, *, among_others: bool = False, by_share: bool = False) -> dict[str, list[Job]]:
    """The jobs that may evict others, by queue; `among_others` adds the queues whose jobs all have what they need.

    With `by_share` every job whose pods wait starves: its queue's share says how much it may take.
    """
    found: dict[str, list[Job]] = {}
    jobs, behind = session.view.jobs, session.behind | session.view.trace.not_reached | session.budget.too_long
    for job in jobs.where(jobs.count(PodState.Pending) > 0):
        if job.key in behind or not job.counts[PodState.Pending] or is_impossible(session, job):
            continue
        if session.attempt(job, partial(_starves, session, job, by_share), False):
            found.setdefault(job.queue.name, []).append(job)
    if among_others:
        for queue in session.view.queues.values():
            if queue.name not in found and any(_competes(session, jobs.at(index)) for index in queue.indices.tolist()):
                found[queue.name] = []
    return found


def preempting(session: Session) -> dict[str, list[Job]]:
    """The jobs that may evict less important ones, by queue.

    For pods that kube-scheduler binds it evicts others itself: if sessions did so, too, each such pod would cost two.
    """
    found = starving(session)
    if not session.view.snapshot.bound_elsewhere:
        return found
    own = {name: [job for job in jobs if not _is_bound_elsewhere(session, job)] for name, jobs in found.items()}
    return {name: jobs for name, jobs in own.items() if jobs}


def _is_bound_elsewhere(session: Session, job: Job) -> bool:
    """Whether kube-scheduler binds the pods of a job that wait."""
    names = session.view.snapshot.bound_elsewhere
    return any(pod.scheduler_name in names for pod in session.view.pending(job))


def _starves(session: Session, job: Job, by_share: bool) -> bool:
    """Whether a job whose pods wait may evict others."""
    return _competes(session, job) and (by_share or session.ask.job_starving(job)) and not may_take_over(session, job)


def _competes(session: Session, job: Job) -> bool:
    """Whether a job is admitted and can be scheduled."""
    if job.pending_phase or session.ask.shut(job) is not None:
        return False
    return session.attempt(job, lambda: session.ask.job_valid(job) is None, otherwise=False)


class GangEvictionArguments(Arguments):
    """Arguments of the actions that evict for gangs."""

    max_domains: int = Field(default=MAX_DOMAINS, alias="maxDomains")
    """Number of HyperNodes that are tried for a job; 0 and less count as the default."""
    allow_whole_bundle: bool = Field(default=True, alias="allowWholeBundle")
    """Whether gangs may be evicted that then cannot run, or only what they have above their minimum."""

    @classmethod
    def of(cls, session: Session, action: str) -> GangEvictionArguments:
        """Arguments of an action in the session's policy; actions that do not take these have the defaults."""
        found = session.policy.action_arguments.get(action)
        return found if isinstance(found, cls) else cls()


def may_evict(session: Session, pods: Sequence[PodRecord]) -> bool:
    """Whether there are pods to place, and none whose preemption policy Never counts."""
    policies = {pod.pod_class.spec.preemption_policy for pod in pods}
    return bool(pods) and not (session.ask.heeds_vetoes and "Never" in policies)
