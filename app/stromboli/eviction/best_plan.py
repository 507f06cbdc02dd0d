"""The best plan for a job: the cheapest of some attempts, and what an exact search makes of it.

Attempts give pods places one after the other, and take the first pods of a gang that starts with fewer than it has.
Where the first pod of a gang goes decides where those can go that must be near it, or away from it: its place costs
least by itself, but for those that follow there may be too few victims around it, or too many that matter. So attempts
differ in the place of the first pod.

An exact search finds places for all pods at once: where attempts find none, it is tried with all units evicted that may
be; where they do, it is tried without each unit, the most expensive first, for pods that are not alike or whose places
depend on other pods. What the pods can do without is given back like the victims of any other search (`reprieve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from stromboli.api.resources import Mask
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.node_candidates import NodeCandidates
from stromboli.eviction.plan import Place, Plan
from stromboli.eviction.reprieve import give_back, settle
from stromboli.eviction.room import Room, alike, found_no_victims, kinds_to_place, may_start
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.operation import Operation
from stromboli.framework.session.session import Session
from stromboli.placement.exact.problem import Problem
from stromboli.placement.exact.reading import read
from stromboli.placement.exact.search import Places
from stromboli.placement.exact.solving import Solver, budget_of
from stromboli.state.pods import PodRecord

#: upper bound on the pods evicted before places are searched for, the cheapest units first
_MOST_PODS = 500
#: steps of a search that an eviction takes as long as, about
_EVICTION = 10
#: number of times that plugins may refuse found places before the search ends
_MOST_REFUSED = 16
#: number of searches for other places for one plan
_MOST_SEARCHES = 24
#: number of first places that are tried
_MOST_FIRST = 8


def best_plan(
    context: PreemptionContext,
    job: Job,
    pods: Sequence[PodRecord],
    attempts: Iterable[Callable[[FirstPlaces], Plan | None]],
) -> Plan | None:
    """The cheapest plan for a job, in effect; None, and nothing done, without any. `pods` may all be placed.

    An attempt finds places, the first of them where it says; None, and nothing done, without enough of them.
    """
    # 1. What amounts rule out, or an earlier session, is not attempted.
    session = context.session
    kinds = kinds_to_place(session, job, pods)
    starts = bool(kinds) and session.ask.job_missing(job) > 0
    if starts and not may_start(context, job, kinds):
        return None
    # 2. The cheapest attempt, or else places for all pods at once.
    plan = _cheapest(session, attempts)
    if plan is None and starts and any(context.may_take(job, kind[:1]) for kind in kinds):
        plan = _plan_in_any_order(context, job, pods, kinds)
        if plan is None:
            found_no_victims(context, job, kinds)
    # 3. Without victims that the job can do without to start.
    if plan is not None and plan.evicted and context.search_left and kinds and not alike(session, job, kinds):
        give_back(plan, _InAnyOrder(plan, kinds, least=len(plan.placed)))
    return plan


def _cheapest(session: Session, attempts: Iterable[Callable[[FirstPlaces], Plan | None]]) -> Plan | None:
    """The first of the cheapest plans that attempts, each with different first places, come to; it is in effect."""
    best = plan = None
    for attempt in attempts:
        places = FirstPlaces(session)
        for _ in range(_MOST_FIRST):
            if best is not None and not best.evicted:
                break
            if plan is not None:
                plan.set_aside()
            plan = attempt(places)
            if plan is not None and (best is None or plan.cost < best.cost):
                best = plan
            if not places.another():
                break
    if best is not None and best is not plan:
        if plan is not None:
            plan.set_aside()
        best.resume()
    return best


class FirstPlaces:
    """The nodes that are left for the first pod of a gang, from one attempt to the next."""

    def __init__(self, session: Session) -> None:
        self._session = session
        #: nodes that were tried, and those that the present attempt adds, shape (nodes,)
        self.tried: Mask = np.zeros(len(session.view.nodes), np.bool_)
        self._now: Mask | None = None

    def end(self, placed: Sequence[Place], failed: PodRecord | None) -> None:
        """An attempt ends: these places were found, and none for the pod that failed, None if all have theirs."""
        self._now, kernel = None, self._session.kernel
        pod = failed or (placed[-1].pod if len(placed) > 1 else None)
        if pod is None or not placed or not kernel.varies(pod):
            return
        first, near = placed[0].node, kernel.feasible(pod)
        if near[first] and not near.all():
            # The first pod's surroundings, to which this one is confined.
            self._now = near.copy()
        elif failed is not None:
            self._now = self._session.view.nodes.rows == first

    def another(self) -> bool:
        """Begin the next attempt; False when no other place makes a difference."""
        now, self._now = self._now, None
        if now is None:
            return False
        self.tried = self.tried | now
        return True


def _plan_in_any_order(
    context: PreemptionContext, job: Job, pods: Sequence[PodRecord], kinds: list[list[PodRecord]]
) -> Plan | None:
    """Places for what a job needs to start, and the evictions that make them; None, and nothing done, without any."""
    if not context.search_left or alike(context.session, job, kinds):
        return None
    equivalence = context.equivalence(job, kinds)
    if context.is_hopeless(equivalence, 1):
        return None
    room, plan = Room.of(context, job, kinds), Plan(context, job)
    if room.suffices:
        _evict_most(plan, room.held, pods)
        if _InAnyOrder(plan, kinds).promise(plan):
            return settle(plan)
        plan.take_back()
    context.in_vain(equivalence, 0)
    return None


def _evict_most(plan: Plan, held: HeldAmounts, pods: Sequence[PodRecord]) -> None:
    """Evict what may be evicted for the least important pod, the cheapest units first."""
    pod = min((pod for pod in pods if not pod.pod_class.best_effort), key=lambda pod: pod.priority, default=pods[0])
    left = _MOST_PODS
    for unit in NodeCandidates(plan.context, held, pod).cheapest_first():
        left -= len(unit.pods)
        if left < 0:
            break
        plan.keep([plan.evict(unit)])


class _InAnyOrder:
    """Places for any of a job's pods beside victims that stay, by an exact search: at least `least` pods."""

    def __init__(self, plan: Plan, kinds: list[list[PodRecord]], least: int = 1) -> None:
        self._context, self._job, self._kinds, self._least = plan.context, plan.job, kinds, least
        self._left = _MOST_SEARCHES

    def may_stay(self, plan: Plan, evictions: Sequence[Operation]) -> bool:
        """Until there were too many searches, any of them."""
        return self._left > 0

    def promise(self, plan: Plan) -> bool:
        """Promise pods places; False, and none is promised, where too few find them."""
        context, session, job, least = self._context, self._context.session, self._job, self._least
        before = plan.placed
        self._left -= 1
        budget = min(context.search_left, budget_of(session))
        solver = Solver(session, job, self._kinds, budget, most_refused=_MOST_REFUSED)
        solver.took(_EVICTION * sum(len(statement.operations) for _, statement in plan.evicted))
        reading = read(session, job, self._kinds, evicting=True, least=least)

        def may_have(pod: PodRecord) -> bool:
            return plan.has_share(pod) and context.may_take(job, [pod])

        def accept(problem: Problem, places: Places) -> bool:
            """Promise the pods these places; False, undone, if some plugin objects."""
            granted = reading.granted(problem, places, may_have)
            fit = plan.promise([Place(pod, node) for pod, node in granted])
            if fit and least <= len(plan.placed) == len(places) and session.ask.starts_as_promised(job):
                return True
            plan.promises.discard()
            plan.placed = before
            return False

        verdict = solver.solve(reading, accept)
        context.search_left -= budget - solver.left
        return verdict.found.places is not None
