"""On which nodes kube-scheduler may evict the pods that it would evict there.

It knows budgets and priorities, and nothing of gangs: it takes pods one by one, wherever they are. So of the nodes that
it offers those are left out where a gang would lose some of its pods and have fewer than it starts with, or where the
policy protects one of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stromboli.extender.published import Published
from stromboli.extender.wire import MetaVictims, Victims
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import agrees

#: for how long pods that may be evicted count as gone though they do not show as terminating, in seconds
_UNSEEN = 5.0


@dataclass(frozen=True, slots=True)
class _Grant:
    """The pods that may be evicted by an answer: those of one node, by node their uids by job."""

    until: float
    by_node: Mapping[str, Mapping[str, frozenset[str]]]


class Grants:
    """What was allowed lately. kube-scheduler evicts in the background, and asks for the next pod meanwhile."""

    def __init__(self) -> None:
        self._given: list[_Grant] = []

    def add(self, by_node: Mapping[str, Mapping[str, frozenset[str]]]) -> None:
        """These pods may be evicted, on one of the nodes."""
        if any(by_node.values()):
            self._given.append(_Grant(asyncio.get_running_loop().time() + _UNSEEN, by_node))

    def outstanding(self, running: Mapping[str, PodRecord]) -> Counter[str]:
        """How many pods of each job may be on their way out, of those that seem to run, by uid."""
        now = asyncio.get_running_loop().time()
        # When one shows as terminating, kube-scheduler took that node, and the others stay.
        self._given = [
            grant
            for grant in self._given
            if grant.until > now
            and all(uids <= running.keys() for jobs in grant.by_node.values() for uids in jobs.values())
        ]
        out: Counter[str] = Counter()
        for grant in self._given:
            most: Counter[str] = Counter()
            for jobs in grant.by_node.values():
                most |= Counter({job: len(uids) for job, uids in jobs.items()})
            out += most
        return out


def spared(
    published: Published, beneficiary: PodRecord | None, victims: Mapping[str, Victims | MetaVictims], grants: Grants
) -> list[str]:
    """The nodes on which all victims may go for a pod, None for one that is not ours."""
    running = published.running()
    leaving = grants.outstanding(running)
    allowed = {}
    for node, offered in victims.items():
        pods = [running[uid] for uid in offered.uids if uid in running]
        if _may_go(published, pods, leaving) and (beneficiary is None or published.affords(beneficiary, pods)):
            of_job: defaultdict[str, set[str]] = defaultdict(set)
            for pod in pods:
                if pod.job:
                    of_job[pod.job].add(pod.uid)
            allowed[node] = {job: frozenset(uids) for job, uids in of_job.items()}
    grants.add(allowed)
    return list(allowed)


def evictable(session: Session, pods: Sequence[PodRecord]) -> list[PodRecord]:
    """Those of some pods that may go at all; what their gangs keep is another question."""
    ours = [pod for pod in pods if pod.job in session.view.jobs]
    kept = {pod.row for pod in ours}.difference(pod.row for pod in session.ask.evictable(ours) if agrees(session, pod))
    gangs = session.ask.may_wait_for_gangs
    for pod in ours:
        job = session.view.jobs[pod.job]
        if gangs and 1 < job.min_available >= job.ready_count:
            kept.add(pod.row)
    return [pod for pod in pods if pod.row not in kept]


def _may_go(published: Published, pods: Sequence[PodRecord], leaving: Mapping[str, int]) -> bool:
    """Whether the core would let some pods go together; whoever is in no PodGroup is none of ours."""
    session = published.session
    of_job: defaultdict[str, list[PodRecord]] = defaultdict(list)
    for pod in pods:
        if pod.job in session.view.jobs:
            of_job[pod.job].append(pod)
    ours = [pod for members in of_job.values() for pod in members]
    if len(session.ask.evictable(ours)) < len(ours) or not all(agrees(session, pod) for pod in ours):
        return False
    return not session.ask.may_wait_for_gangs or all(
        _leaves_all_or_enough(published, session.view.jobs[key], members, leaving.get(key, 0))
        for key, members in of_job.items()
    )


def _leaves_all_or_enough(published: Published, job: Job, victims: Sequence[PodRecord], leaving: int) -> bool:
    """Whether a gang that loses pods loses all, or keeps as many as it starts with, by role and group, too."""
    view = published.session.view
    holding = view.holding(job)
    gone = {pod.row for pod in victims}
    if gone.issuperset(pod.row for pod in holding):
        return True
    if job.ready_count - len(gone) - leaving < job.min_available:
        return False
    left = [pod for pod in holding if pod.row not in gone]
    roles = Counter(pod.role for pod in left)
    if any(roles[role] - leaving < need for role, need in job.min_by_role.items()):
        return False
    if not job.divided:
        return True
    groups = Counter(view.sub_job_of(job, pod).uid for pod in left)
    hit = {(group := view.sub_job_of(job, pod)).uid: group for pod in victims}
    return all(groups[uid] - leaving >= group.min_available for uid, group in hit.items())
