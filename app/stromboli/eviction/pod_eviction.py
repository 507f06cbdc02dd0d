"""Evicting pods for the pods of a job one by one, or for as many as it needs to start: preempt and reclaim."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence

from stromboli.eviction.best_plan import best_plan
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.first_places import FirstPlaces
from stromboli.eviction.gang_search import evict_for_gang
from stromboli.eviction.min_cost import MinCostSearch
from stromboli.eviction.plan import Plan
from stromboli.eviction.preemptors import identical
from stromboli.eviction.reprieve import settle
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.topology import has_topology
from stromboli.placement.pending import needed_first
from stromboli.state.pods import PodRecord


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
