"""Victims of a plan that a job can do without if its pods, or others of them, get other places.

The search for victims gives pods places one after the other, and takes the first pods of a gang that starts with fewer
than it has; `reprieve` moves pods by amounts alone. For pods that are not alike, or whose places depend on other pods,
an exact search finds out whether the job starts beside each unit that was evicted, the most expensive first.
"""

from __future__ import annotations

from collections.abc import Sequence

from stromboli.eviction.any_order import groups_of, promise_in_any_order
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.plan import Plan
from stromboli.eviction.preemptors import identical
from stromboli.eviction.reprieve import settle
from stromboli.eviction.room import lacks_all
from stromboli.eviction.trial import Trial
from stromboli.eviction.units import Unit, may_go_in_part
from stromboli.framework.cluster.job import Job
from stromboli.placement.exact.reading import kinds_of
from stromboli.state.pods import PodRecord

#: how many searches for one plan
_MOST_SEARCHES = 24


def with_fewer_victims(context: PreemptionContext, job: Job, pods: Sequence[PodRecord], plan: Plan) -> Plan:
    """The plan, which is in effect, without victims that the job can do without to start; `pods` may all be placed."""
    session = context.session
    if not plan.units or len(pods) < 2 or not context.search_left:
        return plan
    if len(identical(session, pods)) == len(pods) and not job.divided:
        return plan
    plan.set_aside()
    if lacks_all(session, job):
        plan = _OtherPlaces(context, job, kinds_of(session, job, pods), plan).found()
    plan.resume()
    return plan


class _OtherPlaces:
    """Plans for the same job with fewer victims; all of them are set aside."""

    def __init__(self, context: PreemptionContext, job: Job, kinds: list[list[PodRecord]], plan: Plan) -> None:
        self._context, self._job, self._kinds = context, job, kinds
        self._plan = plan
        self._left = _MOST_SEARCHES

    def found(self) -> Plan:
        """The plan without what can stay."""
        for first in [unit.pods[0] for unit in sorted(self._plan.units, key=unit_cost, reverse=True)]:
            unit = next((each for each in self._plan.units if each.pods[0] is first), None)
            if unit is not None:
                self._plan = self._without(unit, unit.pods) or self._in_part(unit) or self._plan
        return self._plan

    def _in_part(self, unit: Unit) -> Plan | None:
        """The plan in which as many pods of a gang stay as can, if so it runs."""
        if not unit.whole or not may_go_in_part(unit.job):
            return None
        plan, stay = None, list[PodRecord]()
        for pod in unit.pods:
            fewer = self._without(unit, [*stay, pod])
            if fewer is not None:
                plan = fewer
                stay.append(pod)
        runs = unit.job.ready_count - len(unit.pods) + len(stay) >= unit.job.min_available
        return plan if runs else None

    def _without(self, unit: Unit, stay: Sequence[PodRecord]) -> Plan | None:
        """The plan in which some pods of a unit stay; None if the job finds too few places then."""
        if not self._left:
            return None
        self._left -= 1
        context, job, session = self._context, self._job, self._context.session
        units = [each.without(stay) if each is unit else each for each in self._plan.units]
        trial = Trial(context, job)
        trial.evicted = [each for each in map(trial.evict, units) if each[1]]
        if not promise_in_any_order(context, trial, job, self._kinds, self._plan.places):
            trial.take_back()
            return None
        fewer = settle(session, trial, groups_of(session, job, trial.placed))
        fewer.set_aside()
        return fewer
