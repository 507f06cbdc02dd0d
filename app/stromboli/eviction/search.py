"""A decision: which pods are evicted for a job, and where its own pods go.

The pods that a job lacks to start find places together: in one HyperNode where the job says how close they should be,
and of several in the one where they cost least. A job whose queue's share says how much it may take back goes on with
as many pods as that allows.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np

from stromboli.eviction.best_plan import FirstPlaces, best_plan
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.min_cost import MinCostSearch
from stromboli.eviction.plan import Place, Plan
from stromboli.eviction.preemptors import may_evict
from stromboli.eviction.reprieve import settle
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.topology import has_topology
from stromboli.placement import domains
from stromboli.placement.gangs import domains_to_evict_in, place_gang
from stromboli.placement.pending import PendingGroup, by_group, identical, largest_first, least_together, needed_first
from stromboli.state.pods import PodRecord


def evict_for_job(
    context: PreemptionContext, job: Job, pods: Callable[[], list[PodRecord]], *, at_once: bool = False
) -> None:
    """Evict for a job and promise its pods their places, if possible; `pods` are those that wait and may evict.

    With `at_once` a job that runs gets all places or none, unless its queue's share says how much it may take back.
    """
    while (plan := JobSearch(context, job, at_once=at_once).run(pods())) is not None:
        plan.decide()
        # Other jobs are served in one pass: victims of a second one might do for what the first was evicted for.
        if not (context.grows_by_share and (job.divided or has_topology(job))):
            break


def evict_within(context: PreemptionContext, job: Job, pods: Iterable[PodRecord]) -> None:
    """Find places for a job's pods at the cost of its less important ones, pod by pod until one finds none."""
    for pod in pods:
        plan = Plan(context, job)
        if not MinCostSearch(plan, [pod], within_job=True).run():
            return
        settle(plan).decide()


class JobSearch:
    """The search for places for pods of a job."""

    def __init__(self, context: PreemptionContext, job: Job, *, at_once: bool) -> None:
        self._context = context
        self._session = session = context.session
        self._job = job
        #: whether the job runs or is to, and looks for places for more pods
        self._ready = session.ask.job_missing(job) <= job.waiting_count
        #: whether all pods of a group that are looked at need places
        self._all = job.divided or (at_once and self._ready and not context.grows_by_share)

    def run(self, pods: list[PodRecord]) -> Plan | None:
        """The evictions and the places of the job's pods, in effect; None, and nothing done, without enough of them.

        A job with groups that runs grows by the first of them for which there are places.
        """
        turns: Iterable[list[PodRecord]] = [pods]
        if self._ready and self._job.divided:
            turns = chain.from_iterable(map(self._choices, by_group(self._session, self._job, pods)))
        return next(filter(None, map(self._place, turns)), None)

    def _choices(self, group: list[PodRecord]) -> Iterator[list[PodRecord]]:
        """The pods of a group in order, and the smallest that make it whole where not all of them are needed."""
        yield group
        least = least_together(self._session, self._job, group)
        if self._context.grows_by_share and least < len(group):
            yield largest_first(self._session, group)[-least:]

    def _place(self, pods: list[PodRecord]) -> Plan | None:
        """The evictions and places for some of the job's pods, in effect; None, and nothing done, without enough."""
        session, context, job = self._session, self._context, self._job
        # 1. The pods that may be placed, those first that the job starts or grows with.
        pods = needed_first(session, job, pods)
        needed = pods[: least_together(session, job, pods)]
        if not may_evict(session, needed):
            return None
        if self._ready and job.divided and context.grows_by_share:
            pods = needed
        # 2. In each HyperNode that the job may be placed in, the least cost of all their places.
        within = domains_to_evict_in(session, job, context.most_domains)
        plan = best_plan(context, job, pods, [partial(self._plan, pods, domain) for domain in within])
        # 3. Where it lies.
        if plan is not None:
            if has_topology(job):
                domains.locate(session, plan.promises, job)
            plan.nominate(self._around(plan.placed))
        return plan

    def _around(self, places: Iterable[Place]) -> dict[str, int]:
        """The HyperNode around the places of each group, by uid."""
        nodes: dict[str, list[int]] = {}
        for place in places:
            nodes.setdefault(self._session.view.sub_job_of(self._job, place.pod).uid, []).append(place.node)
        tree = self._session.view.topology
        return {uid: tree.around(np.array(rows)) for uid, rows in nodes.items()}

    def _plan(self, pods: list[PodRecord], domain: int, places: FirstPlaces) -> Plan | None:
        """The evictions of the lowest cost for pods in a HyperNode; None, and nothing done, if none suffice.

        The first pod goes where `places` says.
        """
        plan = Plan(self._context, self._job)

        def place(group: PendingGroup, hyper_node: int) -> bool:
            # The pods of a group are all needed, those of a job without groups until it starves no longer.
            of_group = largest_first(self._session, group.left()) if self._job.divided else pods
            return self._place_group(plan, of_group, hyper_node, places)

        if place_gang(self._session, self._job, pods, domain, place) is not None:
            return settle(plan)
        plan.take_back()
        return None

    def _place_group(self, plan: Plan, pods: list[PodRecord], hyper_node: int, places: FirstPlaces) -> bool:
        """Find places for pods of a group in a HyperNode, besides those of a plan; False, undone, without enough."""
        session, context, job, of_group = self._session, self._context, self._job, Plan(self._context, self._job)
        within, left, failed = session.view.topology.mask(hyper_node), pods, None
        while left and (self._all or context.grows_by_share or session.ask.job_starving(job)):
            # 1. The next pods that are alike.
            alike = identical(session, left)
            run, placed = self._together(alike), plan.placed or of_group.placed
            # 2. Places for them, unless an equal search failed before or the queue may not reclaim them.
            kind, found = context.kind(job, run[0]), 0
            in_vain = context.is_hopeless(kind, len(run)) and not (context.reclaiming and placed)
            if not in_vain and context.may_take(job, run):
                found = MinCostSearch(of_group, run, within if placed else within & ~places.tried).run()
                anywhere = hyper_node == session.view.topology.top and not places.tried.any()
                if found < len(run) and not placed and anywhere:
                    context.in_vain(kind, found)
            # 3. If there are none, there are none for identical pods either.
            if found < len(run) and failed is None:
                failed = run[found]
            left = left[len(run if found == len(run) else alike) :]
            if failed is not None and self._all:
                break
        places.end(plan.placed + of_group.placed, failed)
        if not of_group.placed or (failed is not None and self._all) or self._is_incomplete(pods[0]):
            of_group.take_back()
            return False
        plan.absorb(of_group)
        return True

    def _together(self, alike: list[PodRecord]) -> list[PodRecord]:
        """The identical pods to find places for together: those that a job starts with, and may grow by.

        It is one where each eviction changes the order of victims.
        """
        session, context, job = self._session, self._context, self._job
        if context.reclaiming and session.ask.gives_back_in_order:
            return alike[:1]
        if self._all:
            return alike
        needed = max(1, session.ask.job_missing(job) - job.waiting_count)
        if context.grows_by_share:
            more = range(needed + 1, len(alike) + 1)
            needed += bisect(more, False, key=lambda count: not context.may_take(job, alike[:count]))
        return alike[:needed]

    def _is_incomplete(self, pod: PodRecord) -> bool:
        """Whether the group of a pod lacks pods to run, and may not keep what it has."""
        session, group = self._session, self._session.view.sub_job_of(self._job, pod)
        return session.ask.sub_job_missing(group) > 0 and not session.ask.sub_job_pipelined(group)
