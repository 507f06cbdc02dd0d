"""Evicting pods so that a whole gang gets its places at once: the search of gangpreempt and gangreclaim.

For a job that asks for it all places are in one HyperNode; of several the one where they cost least is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from stromboli.eviction.best_plan import best_plan
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.first_places import Attempt, FirstPlaces
from stromboli.eviction.min_cost import MinCostSearch
from stromboli.eviction.ordering import Cost
from stromboli.eviction.plan import Plan
from stromboli.eviction.preemptors import identical, may_evict, place_gang, search_domains
from stromboli.eviction.reprieve import settle
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.topology import has_topology
from stromboli.placement import domains
from stromboli.placement.exact.reading import kinds_of
from stromboli.placement.pending import (
    PendingGroup,
    by_group,
    in_turn,
    largest_first,
    least_together,
    needed_first,
)
from stromboli.state.pods import PodRecord

#: how many kinds of pods of a group are left out, each in turn, where not all of its pods are needed
_MOST_KINDS = 8


def evict_for_gang(context: PreemptionContext, job: Job) -> None:
    """Evict for a job and promise its pods their places, if possible."""
    found = list[Plan]()
    while (plan := GangSearch(context, job).run()) is not None:
        found.append(plan)
        if not context.grows_by_share:
            break
    if len(found) > 1 and not context.session.ask.gives_back_in_order:
        found = _at_once(context, job, found)
    for plan in found:
        plan.decide()


def _at_once(context: PreemptionContext, job: Job, found: list[Plan]) -> list[Plan]:
    """What a job starts with and grows by in one plan, if that costs less; the victims of one may do for another."""
    places, apart = sum(len(plan.placed) for plan in found), Cost.of([unit for plan in found for unit in plan.units])
    for plan in reversed(found):
        plan.set_aside()
    at_once = GangSearch(context, job, places).run()
    if at_once is not None and len(at_once.placed) >= places and at_once.cost < apart:
        return [at_once]
    if at_once is not None:
        at_once.set_aside()
    for plan in found:
        plan.resume()
    return found


class GangSearch:
    """The search for all pods of a job that are to be placed at once."""

    def __init__(self, context: PreemptionContext, job: Job, least: int = 0) -> None:
        """`least` pods get places, or as many as the job starts or grows with if these are more."""
        self._context = context
        self._session = session = context.session
        self._job = job
        self._least = least
        #: whether the job runs or is to, and looks for places for more pods
        self._ready = session.ask.job_missing(job) <= job.waiting_count

    def run(self) -> Plan | None:
        """The evictions and the places of the job's pods, in effect; None, and nothing done, without enough of them.

        A job that runs grows by the first of its groups, or kinds of pods, for which there are places.
        """
        session, job = self._session, self._job
        pods = in_turn(session, job)
        turns: Iterable[list[PodRecord]] = [pods]
        if self._ready and (job.divided or not self._context.grows_by_share):
            turns = chain.from_iterable(map(self._choices, by_group(session, job, pods)))
        elif self._ready and not self._least:
            turns = kinds_of(session, job, pods)
        return next(filter(None, map(self._place, turns)), None)

    def _choices(self, group: list[PodRecord]) -> Iterator[list[PodRecord]]:
        """The pods of a group in order, and the smallest that make it whole, with and without those of one kind."""
        yield group
        session, job = self._session, self._job
        least = least_together(session, job, group)
        if not self._context.grows_by_share or len(group) <= least:
            return
        kinds = kinds_of(session, job, group)
        tried = [{pod.row for pod in needed_first(session, job, group)[:least]}]
        for without in [[], *kinds[:_MOST_KINDS]] if len(kinds) > 1 else []:
            out = {pod.row for pod in without}
            chosen = largest_first(session, [pod for pod in group if pod.row not in out])[-least:]
            rows = {pod.row for pod in chosen}
            if len(chosen) == least and rows not in tried:
                tried.append(rows)
                yield chosen

    def _place(self, pods: list[PodRecord]) -> Plan | None:
        """The evictions and places for some of the job's pods, in effect; None, and nothing done, without enough."""
        session, context, job = self._session, self._context, self._job
        #: the pods that may be placed, and of them those that are to be, in order
        self._all = self._pods = needed_first(session, job, pods)
        grows, roles = self._ready and context.grows_by_share, job.min_by_role
        if grows or (not (self._ready or job.divided) and (roles or not job.pod_group.spec.min_task_member)):
            # No pod is evicted for more than the job starts or grows with, nor does it wait for that.
            self._pods = self._pods[: max(self._least, least_together(session, job, self._pods))]
        # 1. What failed for an equivalent job is not tried again.
        equivalence = context.equivalence(job, self._pods)
        if equivalence is not None and context.is_hopeless(equivalence, 1):
            return None
        # 2. In each HyperNode that the job may be placed in, the least cost of all its places.
        plan = None
        if may_evict(session, self._pods):
            attempts = list[Attempt]()
            if context.may_take(job, self._pods):
                attempts = [partial(self._plan, domain) for domain in search_domains(session, job, context.action)]
            plan = best_plan(context, job, self._all, attempts)
        if plan is None:
            if equivalence is not None:
                context.in_vain(equivalence, 0)
            return None
        # 3. Where it lies.
        if has_topology(job):
            domains.locate(session, plan.promises, job)
        plan.nominate()
        return plan

    def _plan(self, domain: int, places: FirstPlaces) -> Plan | None:
        """The evictions of the lowest cost in a HyperNode; None, and nothing done, if none suffice.

        The first pod goes where `places` says.
        """
        plan = Plan(self._context, self._job)
        of_groups = place_gang(
            self._session,
            self._job,
            self._pods,
            domain,
            lambda group, hyper_node: self._place_group(plan, group, hyper_node, places),
        )
        if of_groups is None:
            plan.take_back()
            return None
        plan.of_groups = of_groups
        places.end(plan.placed, None)
        return settle(plan)

    def _place_group(self, plan: Plan, group: PendingGroup, hyper_node: int, places: FirstPlaces) -> bool:
        """Find places for all pods of a group in a HyperNode, beside those of a plan; False, undone, if one fails."""
        session, of_group = self._session, Plan(self._context, self._job)
        left = largest_first(session, group.left())
        within, failed = session.view.topology.mask(hyper_node), None
        while left and failed is None:
            run, placed = identical(session, left), plan.placed or of_group.placed
            found = MinCostSearch(of_group, run, within if placed else places.within(within)).run()
            failed = run[found] if found < len(run) else None
            left = left[len(run) :]
        places.end(plan.placed + of_group.placed, failed)
        missing = session.ask.sub_job_missing(group.sub_job) > 0 and not session.ask.sub_job_pipelined(group.sub_job)
        if failed is not None or missing:
            of_group.take_back()
            return False
        plan.absorb(of_group)
        return True
