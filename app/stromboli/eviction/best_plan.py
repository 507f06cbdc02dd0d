"""The best plan for a job: the cheapest of some attempts, and what an exact search makes of it.

Attempts give pods places one after the other, and take the first pods of a gang that starts with fewer than it has. An
exact search finds places for all pods at once: where attempts find none, it is tried with all units evicted that may
be; where they do, it is tried without each unit, the most expensive first, for pods that are not alike or whose places
depend on other pods. What the pods can do without is given back like the victims of any other search (`reprieve`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

import numpy as np

from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.node_candidates import NodeCandidates
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.plan import Attempt, Plan, cheapest
from stromboli.eviction.reprieve import settle
from stromboli.eviction.room import Room, alike, found_no_victims, kinds_to_place, may_start
from stromboli.eviction.trial import Demand, Place, Trial
from stromboli.eviction.units import Unit, runs_in_part
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact.problem import Problem
from stromboli.placement.exact.reading import read
from stromboli.placement.exact.search import Places
from stromboli.placement.exact.solving import Solver, budget_of
from stromboli.placement.pending import largest_first
from stromboli.state.pods import PodRecord

#: how many pods are evicted at most before places are searched for, the cheapest units first
_MOST_PODS = 500
#: steps of a search that an eviction takes as long as, about
_EVICTION = 10
#: how often plugins may refuse places that were found before the search ends
_MOST_REFUSED = 16
#: how many searches for other places there are for one plan
_MOST_SEARCHES = 24


def best_plan(
    context: PreemptionContext,
    job: Job,
    pods: Sequence[PodRecord],
    attempts: Iterable[Attempt],
) -> Plan | None:
    """The cheapest plan for a job, in effect; None, and nothing done, without any. `pods` may all be placed."""
    # 1. What amounts rule out, or an earlier session, is not attempted.
    session = context.session
    kinds = kinds_to_place(session, job, pods)
    starts = bool(kinds) and session.ask.job_missing(job) > 0
    if starts and not may_start(context, job, kinds):
        return None
    # 2. The cheapest attempt, or else places for all pods at once.
    plan = cheapest(session, attempts)
    if plan is None and starts and _may_take_what_lacks(context, job, pods):
        plan = _plan_in_any_order(context, job, pods, kinds)
        if plan is None:
            found_no_victims(context, job, kinds)
    # 3. Without victims that the job can do without to start.
    if plan is not None and plan.evicts and context.search_left and kinds and not alike(session, job, kinds):
        plan.set_aside()
        plan = _OtherPlaces(context, job, kinds, plan).found()
        plan.resume()
    return plan


def _may_take_what_lacks(context: PreemptionContext, job: Job, pods: Sequence[PodRecord]) -> bool:
    """Whether a queue may take as many places back as its job lacks to start, for the smallest pods at least.

    Pods that request little of one resource may request much of another: those with the least of any are asked about.
    """
    session = context.session
    lacking = max(1, session.ask.job_missing(job))
    if context.may_take(job, largest_first(session, list(pods))[-lacking:]):
        return True
    requests = np.array([session.view.request(pod) for pod in pods])
    orders = (np.argsort(requests[:, column], kind="stable") for column in np.flatnonzero(requests.any(axis=0)))
    return any(context.may_take(job, [pods[at] for at in order[:lacking].tolist()]) for order in orders)


def _plan_in_any_order(
    context: PreemptionContext, job: Job, pods: Sequence[PodRecord], kinds: list[list[PodRecord]]
) -> Plan | None:
    """Places for what a job needs to start, and the evictions that make them; None, and nothing done, without any."""
    equivalence = context.equivalence(job, pods)
    in_vain = equivalence is not None and context.is_hopeless(equivalence, 1)
    if in_vain or not context.search_left or alike(context.session, job, kinds):
        return None
    room, plan = Room.of(context, job, kinds), None
    if room.suffices:
        plan = _plan_beside(context, job, kinds, _units(context, room.held, pods))
    if plan is None and equivalence is not None:
        context.in_vain(equivalence, 0)
    return plan


def _units(context: PreemptionContext, held: HeldAmounts, pods: Sequence[PodRecord]) -> list[Unit]:
    """The units that may be evicted for the least important pod, the cheapest first."""
    pod = min((pod for pod in pods if not pod.pod_class.best_effort), key=lambda pod: pod.priority, default=pods[0])
    units = [victim.unit for victim in NodeCandidates(context, held, pod).everything()]
    sums = accumulate(len(unit.pods) for unit in units)
    return [unit for unit, _ in takewhile(lambda each: each[1] <= _MOST_PODS, zip(units, sums, strict=True))]


def _plan_beside(
    context: PreemptionContext, job: Job, kinds: list[list[PodRecord]], units: Iterable[Unit], least: int = 1
) -> Plan | None:
    """Evict units, and find so many pods of a job at least, by kind, places; None, and nothing done, without them."""
    trial = Trial(context, job)
    trial.evicted = [each for each in map(trial.evict, units) if each[1]]
    _promise(context, trial, job, kinds, least)
    if not trial.placed:
        trial.take_back()
        return None
    return settle(context.session, trial, _groups_of(context.session, job, trial.placed))


def _promise(context: PreemptionContext, trial: Trial, job: Job, kinds: list[list[PodRecord]], least: int) -> None:
    """Promise so many pods of a job at least, by kind, places beside what a trial evicted, or none."""
    session = context.session
    budget = min(context.search_left, budget_of(session))
    solver = Solver(session, job, kinds, budget, most_refused=_MOST_REFUSED)
    solver.took(_EVICTION * sum(len(unit.pods) for unit, _ in trial.evicted))
    reading = read(session, job, kinds, evicting=True, least=least)

    def may_have(pod: PodRecord) -> bool:
        return trial.has_share(pod) and context.may_take(job, [pod])

    def accept(problem: Problem, places: Places) -> bool:
        """Promise the pods these places; False, undone, if some plugin objects."""
        for pod, node in reading.granted(problem, places, may_have):
            if not trial.fits(pod, node):
                break
            trial.keep([], Place(pod, node, Demand(session, pod)))
        if least <= len(trial.placed) == len(places) and session.ask.starts_as_promised(job):
            return True
        trial.withdraw()
        trial.placed = []
        return False

    solver.solve(reading, accept)
    context.search_left -= budget - solver.left


def _groups_of(session: Session, job: Job, placed: Sequence[Place]) -> dict[str, int]:
    """The HyperNode around the places of each group of a job, by uid."""
    nodes: dict[str, list[int]] = {}
    for place in placed:
        nodes.setdefault(session.view.sub_job_of(job, place.pod).uid, []).append(place.node)
    tree = session.view.topology
    return {uid: tree.around(np.array(rows)) for uid, rows in nodes.items()}


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
        for pods in (unit.pods, unit.pods[::-1]) if len(unit.pods) > 1 else ():
            plan, stay = None, list[PodRecord]()
            for pod in pods:
                fewer = self._without(unit, [*stay, pod])
                if fewer is not None:
                    plan = fewer
                    stay.append(pod)
            if plan is not None and self._runs_in_part(plan, unit.job):
                return plan
        return None

    def _runs_in_part(self, plan: Plan, job: Job) -> bool:
        plan.resume()
        runs = runs_in_part(self._context.session, job)
        plan.set_aside()
        return runs

    def _without(self, unit: Unit, stay: Sequence[PodRecord]) -> Plan | None:
        """The plan in which some pods of a unit stay; None if the job finds too few places then."""
        if not self._left:
            return None
        self._left -= 1
        units = [each.without(stay) if each is unit else each for each in self._plan.units]
        fewer = _plan_beside(self._context, self._job, self._kinds, units, self._plan.places)
        if fewer is not None:
            fewer.set_aside()
        return fewer
