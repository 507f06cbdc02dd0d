"""The nodes on which kube-scheduler may evict the victims that it has chosen there.

kube-scheduler considers budgets and priorities, but not gangs: it chooses pods one by one, on any node. Where a gang
would lose some of its pods and fall below its minimum, all of it is evicted if it lies on that node; kube-scheduler
evicts none elsewhere for that pod, so other such nodes are ruled out, as are those where the policy protects a victim.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stromboli.api.objects import Pod
from stromboli.eviction.eligibility import agrees
from stromboli.extender.gang_fit import victims_on
from stromboli.extender.published import Published
from stromboli.framework.cluster.job import Job
from stromboli.state.pods import PodRecord

#: seconds for which permitted victims count as evicted although they do not show as terminating
_UNSEEN = 5.0


@dataclass(frozen=True, slots=True)
class _Grant:
    """The victims that an answer permits: by node, the pods' uids by job. Only one of the nodes is used."""

    until: float
    by_node: Mapping[str, Mapping[str, frozenset[str]]]


class Grants:
    """The evictions that were permitted recently. kube-scheduler evicts in the background, and asks about the next
    pod meanwhile."""

    def __init__(self) -> None:
        self._given: list[_Grant] = []

    def add(self, by_node: Mapping[str, Mapping[str, frozenset[str]]]) -> None:
        """Permit the eviction of these pods, on one of the nodes."""
        if any(by_node.values()):
            self._given.append(_Grant(time.monotonic() + _UNSEEN, by_node))

    def outstanding(self, running: Mapping[str, PodRecord]) -> Counter[str]:
        """The number of pods of each job, among running ones, that may be about to be evicted."""
        now = time.monotonic()
        # A terminating pod shows that kube-scheduler chose its node, so the pods on other nodes stay.
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
    published: Published, pod: Pod, beneficiary: PodRecord | None, victims: Mapping[str, Sequence[str]], grants: Grants
) -> dict[str, list[str]]:
    """The uids of pods that may be evicted for a pod, by node, with the rest of gangs on that node.

    `beneficiary` is the pod as a session saw it, None for one that is not ours.
    """
    running = published.running()
    leaving = grants.outstanding(running)
    allowed, given = dict[str, dict[str, frozenset[str]]](), dict[str, list[str]]()
    for node, uids in victims.items():
        pods = [running[uid] for uid in uids if uid in running]
        more = list(_rest_of_gangs(published, node, pods, pod.spec.priority or 0, leaving))
        if _may_go(published, [*pods, *more], leaving) and (
            beneficiary is None or published.affords(beneficiary, [*pods, *more])
        ):
            of_job: defaultdict[str, set[str]] = defaultdict(set)
            for each in (*pods, *more):
                if each.job:
                    of_job[each.job].add(each.uid)
            allowed[node] = {job: frozenset(of) for job, of in of_job.items()}
            given[node] = _in_order(published, uids, more)
    grants.add(allowed)
    return given


def _rest_of_gangs(
    published: Published, node: str, victims: Sequence[PodRecord], priority: int, leaving: Mapping[str, int]
) -> Iterator[PodRecord]:
    """Other pods on a node of gangs that lose some there and then have too few, if they are less important."""
    session, gone = published.session, {victim.row for victim in victims}
    jobs = session.view.jobs
    for key in dict.fromkeys(victim.job for victim in victims if victim.job in jobs):
        of_job = [victim for victim in victims if victim.job == key]
        if session.ask.may_wait_for_gangs and not _leaves_all_or_enough(
            published, jobs[key], of_job, leaving.get(key, 0)
        ):
            for each in victims_on(session, priority, published.rows([node])):
                if each.job == key and each.row not in gone:
                    yield each


def _in_order(published: Published, uids: Sequence[str], more: Sequence[PodRecord]) -> list[str]:
    """Victims with others, the most important first, as kube-scheduler compares the first ones of nodes."""
    if not more:
        return list(uids)
    priorities = {uid: each.spec_priority or 0 for uid, each in published.running().items()}
    return sorted([*uids, *(each.uid for each in more)], key=lambda uid: -priorities.get(uid, 0))


def _may_go(published: Published, pods: Sequence[PodRecord], leaving: Mapping[str, int]) -> bool:
    """Whether pods may be evicted together; pods without a PodGroup are not ours."""
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
    """Whether a gang that loses pods loses all, or keeps its minimum, also by role and sub group."""
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
