"""State that the searches of one action share: the eligible pods, their ranks, and earlier findings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.eviction.held_amounts import CostBounds, HeldAmounts
from stromboli.eviction.pod_index import PodIndex, Ranks, queue_ranks
from stromboli.eviction.preemptors import MAX_DOMAINS, GangEvictionArguments
from stromboli.eviction.units import above_minimum
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.recent import Recent
from stromboli.framework.session.session import Session
from stromboli.framework.session.statement import Statement
from stromboli.placement import domains
from stromboli.state.pods import PodRecord

#: the number of kinds of pods for which the amounts and bounds are cached
_MOST_KINDS = 8
#: the part of `session.search` that exact searches of one action may take together
_SEARCHES = 5


class PreemptionContext:
    """State that all searches of an action share in a session: indexed pods, eligibility for eviction, and caches."""

    def __init__(
        self, session: Session, pod_index: PodIndex, action: str, point: str, *, less_important: bool = False
    ) -> None:
        """`less_important` has only pods of jobs evicted that have a lower priority."""
        self.session = session
        self.pod_index = pod_index
        self.action = action
        #: the extension point that says which pods may be evicted
        self.point = point
        #: whether other queues give pods up, and not other jobs of the queue
        self.reclaiming = point == "reclaimable"
        self.less_important = less_important
        #: whether gangs may be evicted that then cannot run
        self.may_break_gangs = (arguments := GangEvictionArguments.of(session, action)).allow_whole_bundle
        #: number of HyperNodes that are tried for a job
        self.most_domains = arguments.max_domains if arguments.max_domains > 0 else MAX_DOMAINS
        #: whether a queue's share says how much it takes back, so that a job that runs goes on, one pod after the other
        self.grows_by_share = self.reclaiming and session.ask.takes_back_by_share
        #: whether pods that request nothing preempt any others
        self._helps_any = session.rules.evict_only_what_helps
        #: the steps that are left for exact searches, see `best_plan`
        self.search_left = session.policy.session.search // _SEARCHES if session.rules.what_fits else 0
        #: by kind of pod, the most places that failed searches found since a search succeeded
        self._in_vain: dict[Hashable, int] = {}
        #: caches of the last searches, by their subject
        self._held_amounts: Recent[Hashable, HeldAmounts] = Recent(_MOST_KINDS)
        self._bounds: Recent[Hashable, CostBounds] = Recent(_MOST_KINDS)

    def may_take(self, job: Job, pods: Sequence[PodRecord]) -> bool:
        """Whether a job's queue may reclaim from others for some pods; for pods that take no share it need not."""
        if not self.reclaiming or not any(map(self.shares, pods)):
            return True
        return self.session.ask.preemptive(job.queue, pods) is None

    def shares(self, pod: PodRecord) -> bool:
        """Whether a pod takes a part of the shared capacity."""
        return self.session.view.counts_pods or not pod.pod_class.best_effort

    def takes_only_like(self, pod: PodRecord) -> bool:
        """Whether a pod requests nothing and is due no more than the place of another such pod."""
        takes_any = self.shares(pod) if self.reclaiming else self._helps_any
        return pod.pod_class.best_effort and not takes_any

    def candidates(self, job: Job, pod: PodRecord, *, within_job: bool = False) -> Mask:
        """Mask of candidates for eviction for a pod of a job, as things stand, shape (indexed pods,).

        Evictions for that job never make an ineligible pod eligible. `within_job` has pods of the job itself evicted.
        """
        pod_index, ask, view = self.pod_index, self.session.ask, self.session.view
        # 1. The pods of other queues, of other jobs of the queue, or of the job, and whether these may give to the pod.
        if self.reclaiming:
            found = pod_index.outside(job.queue)
            of, gives = pod_index.queue, ask.reclaimable_queues(pod, pod_index.requests_of_queues)
        else:
            own = pod_index.job == job.index
            found = own if within_job else (pod_index.queue == job.queue.index) & ~own
            found = found & pod_index.may_go_for(job.queue)
            of, gives = pod_index.job, ask.preemptable_jobs(pod, len(view.jobs), lambda: pod_index.least_of_jobs)
        if gives is not None:
            found = found & gives[of]
        if self.less_important:
            found = found & (view.jobs.priority[pod_index.job] < job.priority)
        # 2. Those that may be evicted as far as they say, and that plugins allow whatever else is evicted.
        willing = pod_index.willing
        let_go = ask.evictable_pods(self.point, pod_index.rows)
        if let_go is not None:
            willing = willing & let_go
        # 3. Those of gangs that can spare pods, or that may be broken because no pod has to stay.
        able = above_minimum(view.jobs)
        if self.may_break_gangs and not within_job:
            able |= ~np.bincount(pod_index.job[pod_index.alive() & ~willing], minlength=len(able)).astype(np.bool_)
        mask: Mask = found & willing & able[pod_index.job]
        return mask

    def evict(self, pods: Iterable[PodRecord], job: Job) -> Statement:
        """Evict pods for a job, on a statement, unless they have been evicted before."""
        statement, state_of = self.session.statement(), self.session.view.pods.state.item
        for pod in pods:
            if state_of(pod.row) in self.pod_index.states:
                statement.evict(pod, self.action, job.key)
        return statement

    def ranks(self, queue: Queue) -> Ranks:
        """The ranks of pods as victims for a queue, see `Cost`."""
        return queue_ranks(self.session, self.pod_index, queue) if self.reclaiming else self.pod_index.ranks

    def held_amounts(self, job: Job, candidates: Mask) -> HeldAmounts:
        """Amounts that candidates for a job hold now; `candidates` is a mask as `candidates` returns it."""
        ranks = self.ranks(job.queue)
        key = candidates.tobytes(), ranks
        found = self._held_amounts.get(key, lambda: HeldAmounts(self.session, self.pod_index, candidates, ranks))
        found.refresh()
        return found

    def bounds(self, held_amounts: HeldAmounts, request: Vector) -> CostBounds:
        """Lower bounds on the current cost of places on nodes."""
        key = held_amounts, request.tobytes()
        found = self._bounds.get(key, lambda: CostBounds(self.session, held_amounts, request))
        found.refresh()
        return found

    def kind(self, job: Job, pod: PodRecord) -> Hashable:
        """A key that is equal for pods for which a search finds the same places, while the session does not change."""
        own = job.key if self.session.ask.by_share(self.point) else ""
        return own, job.queue.index, job.priority, pod.priority, pod.role, self.session.kernel.identity(pod)

    def equivalence(self, job: Job, kinds: Sequence[Sequence[PodRecord]]) -> Hashable:
        """A key that is equal for jobs whose pods, by kind, find places at once or do not; often for no other job."""
        alone = domains.is_bound(job) or job.divided or job.min_by_role
        own = job.key if alone or any(self.session.kernel.varies(pods[0]) for pods in kinds) else ""
        counts = tuple((self.kind(job, pods[0]), len(pods)) for pods in kinds)
        return own, counts, self.session.ask.job_missing(job)

    def is_hopeless(self, kind: Hashable, count: int) -> bool:
        """Whether a search found fewer than `count` places for pods of a kind, and nothing changed since."""
        return self._in_vain.get(kind, count) < count

    def in_vain(self, kind: Hashable, found: int) -> None:
        """Remember that a search for pods of a kind found no more places."""
        self._in_vain[kind] = min(found, self._in_vain.get(kind, found))

    def promise(self, job: Job, statements: Sequence[Statement]) -> None:
        """Decide for the evictions and places that were found for a job."""
        self._in_vain.clear()
        self.session.promise(job, statements)
