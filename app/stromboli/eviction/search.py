"""A decision: which pods are evicted for a job, and where its own pods go.

For preempt and reclaim pods find places one by one, or as many together as the job needs to start (`evict_for_job`).
For gangpreempt, gangreclaim, and jobs that say how close their pods should be, they find them all at once
(`evict_for_gang`): in one HyperNode where the job asks for that, and of several in the one where they cost least.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from stromboli.eviction.best_plan import FirstPlaces, best_plan
from stromboli.eviction.context import PreemptionContext
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


def evict_for_job(context: PreemptionContext, job: Job, pods: Sequence[PodRecord]) -> None:
    """Find places for those pods of a job that may evict others: all at once where it says how close they should be.

    Otherwise pods get places in order until the job starves no longer, and keep them if it may then run. Where the
    queue's share says how much it may take back, a job that runs goes on, pod by pod.
    """
    if not pods:
        return
    if has_topology(job) or job.divided:
        evict_for_gang(context, job)
        return
    session, pods = context.session, needed_first(context.session, job, pods)

    def attempt(places: FirstPlaces) -> Plan | None:
        plan = _try(context, job, pods, places)
        if plan.placed and session.ask.starts_as_promised(job):
            return settle(plan)
        plan.take_back()
        return None

    plan = best_plan(context, job, pods, [attempt])
    if plan is not None:
        plan.decide()


def _try(context: PreemptionContext, job: Job, pods: Sequence[PodRecord], places: FirstPlaces) -> Plan:
    """Places for a job's pods, the first of them where `places` says, as far as there are any."""
    session, left, plan = context.session, pods, Plan(context, job)
    one_by_one = context.reclaiming and session.ask.gives_back_in_order
    failed: PodRecord | None = None
    while left and (context.grows_by_share or session.ask.job_starving(job)):
        # 1. The next pods that are alike, as many as the job starts or grows with; one where each eviction changes the
        #    order.
        alike = identical(session, left)
        run = alike[: 1 if one_by_one else _together(context, job, alike)]
        # 2. Places for them, unless an equal search failed before or the queue may not reclaim them.
        equivalence, found = context.kind(job, run[0]), 0
        in_vain = context.is_hopeless(equivalence, len(run)) and not (context.reclaiming and plan.placed)
        if not in_vain and context.may_take(job, run):
            within = None if plan.placed else places.within(None)
            found = MinCostSearch(plan, run, within).run()
            if found < len(run) and len(left) == len(pods) and places.all:
                context.in_vain(equivalence, found)
        # 3. If there are none, there are none for identical pods either.
        if found < len(run) and failed is None:
            failed = run[found]
        left = left[len(run if found == len(run) else alike) :]
    places.end(plan.placed, failed)
    return plan


def _together(context: PreemptionContext, job: Job, alike: Sequence[PodRecord]) -> int:
    """For how many of identical pods places are looked for together: what a job starts with, and may grow by."""
    needed = max(1, context.session.ask.job_missing(job) - job.waiting_count)
    if not context.grows_by_share:
        return needed
    more = range(needed + 1, len(alike) + 1)
    return needed + bisect(more, False, key=lambda count: not context.may_take(job, alike[:count]))


def evict_within(context: PreemptionContext, job: Job, pods: Iterable[PodRecord]) -> None:
    """Find places for a job's pods at the cost of its less important ones, pod by pod until one finds none."""
    for pod in pods:
        plan = Plan(context, job)
        if not MinCostSearch(plan, [pod], within_job=True).run():
            return
        settle(plan).decide()


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
        # 1. The pods that are to be placed, of those that may be: no pod is evicted for more than the job starts or
        #    grows with, nor does it wait for that.
        every = chosen = needed_first(session, job, pods)
        grows, roles = self._ready and context.grows_by_share, job.min_by_role
        if grows or (not (self._ready or job.divided) and (roles or not job.pod_group.spec.min_task_member)):
            chosen = every[: max(self._least, least_together(session, job, every))]
        # 2. What failed for an equivalent job is not tried again.
        equivalence = context.equivalence(job, chosen)
        if not may_evict(session, chosen) or (equivalence is not None and context.is_hopeless(equivalence, 1)):
            return None
        # 3. In each HyperNode that the job may be placed in, the least cost of all their places.
        may_take = context.may_take(job, chosen)
        within = search_domains(session, job, context.action) if may_take else []
        plan = best_plan(context, job, every, [partial(self._plan, chosen, domain) for domain in within])
        if plan is None:
            if equivalence is not None:
                context.in_vain(equivalence, 0)
            return None
        # 4. Where it lies.
        if has_topology(job):
            domains.locate(session, plan.promises, job)
        plan.nominate()
        return plan

    def _plan(self, pods: list[PodRecord], domain: int, places: FirstPlaces) -> Plan | None:
        """The evictions of the lowest cost for pods in a HyperNode; None, and nothing done, if none suffice.

        The first pod goes where `places` says.
        """
        plan = Plan(self._context, self._job)

        def place(group: PendingGroup, hyper_node: int) -> bool:
            return self._place_group(plan, group, hyper_node, places)

        of_groups = place_gang(self._session, self._job, pods, domain, place)
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
