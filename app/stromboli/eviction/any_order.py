"""Evicting for a gang whose pods find no places one after the other, though there may be places for all of them.

All units that may be evicted are, on statements, and an exact search finds places for all pods at once. What these can
do without is given back like the victims of any other search (`reprieve`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile

import numpy as np

from stromboli.api.resources import Mask
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.plan import Plan
from stromboli.eviction.reprieve import settle
from stromboli.eviction.room import Room, alike, lacks_all
from stromboli.eviction.trial import Demand, Place, Trial
from stromboli.eviction.units import Unit
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.exact.problem import Problem
from stromboli.placement.exact.reading import kinds_of, read
from stromboli.placement.exact.search import Places
from stromboli.placement.exact.solving import Solver, budget_of
from stromboli.state.pods import PodRecord

#: how many pods are evicted at most before places are searched for, the cheapest units first
_MOST_PODS = 500
#: steps of a search that an eviction takes as long as, about
_EVICTION = 10
#: how often plugins may refuse places that were found before the search ends
_MOST_REFUSED = 16


def plan_in_any_order(
    context: PreemptionContext, job: Job, pods: Sequence[PodRecord], candidates: Mask, *, whole: bool = True
) -> Plan | None:
    """Places for what a job needs to start, and the evictions that make them; None, and nothing done, without any.

    `candidates` may be evicted for each of the pods; `whole` says whether gangs may be that then cannot run.
    """
    session = context.session
    if not (lacks_all(session, job) and len(pods) > 1 and context.search_left):
        return None
    kinds, equivalence = kinds_of(session, job, pods), context.equivalence(job, pods)
    if alike(session, job, kinds) or (equivalence is not None and context.is_hopeless(equivalence, 1)):
        return None
    trial = Trial(context, job)
    if Room.of(context, job, kinds, candidates).suffices:
        units = _units(context, job, pods, candidates, whole=whole)
        trial.evicted = [each for each in map(trial.evict, units) if each[1]]
        promise_in_any_order(context, trial, job, kinds)
    if not trial.placed:
        trial.take_back()
        if equivalence is not None:
            context.in_vain(equivalence, 0)
        return None
    return settle(session, trial, groups_of(session, job, trial.placed))


def _units(
    context: PreemptionContext, job: Job, pods: Sequence[PodRecord], candidates: Mask, *, whole: bool
) -> list[Unit]:
    """The units that may be evicted for the least important pod, the cheapest first."""
    pod = min((pod for pod in pods if not pod.pod_class.best_effort), key=lambda pod: pod.priority, default=pods[0])
    found = context.node_candidates(context.held_amounts(job, candidates), job, pod)
    found.begin(pod, may_go_whole=whole)
    units = [victim.unit for victim in found.everything()]
    sums = accumulate(len(unit.pods) for unit in units)
    return [unit for unit, _ in takewhile(lambda each: each[1] <= _MOST_PODS, zip(units, sums, strict=True))]


def promise_in_any_order(
    context: PreemptionContext, trial: Trial, job: Job, kinds: list[list[PodRecord]], least: int = 1
) -> bool:
    """Promise so many pods of a job at least, by kind, places beside what a trial evicted; False, and none, without."""
    session = context.session
    budget = min(context.search_left, budget_of(session))
    solver = Solver(session, job, kinds, budget, most_refused=_MOST_REFUSED)
    solver.took(_EVICTION * sum(len(unit.pods) for unit, _ in trial.evicted))
    reading = read(session, job, kinds, evicting=True)

    def accept(problem: Problem, places: Places) -> bool:
        """Promise the pods these places; False, undone, if some plugin objects."""
        for pod, node in reading.granted(problem, places, trial.has_share):
            if not trial.fits(pod, node):
                break
            trial.keep([], Place(pod, node, Demand(session, pod)))
        if least <= len(trial.placed) == len(places) and session.ask.job_pipelined(job):
            return True
        trial.withdraw()
        trial.placed = []
        return False

    solver.solve(reading, accept)
    context.search_left -= budget - solver.left
    return bool(trial.placed)


def groups_of(session: Session, job: Job, placed: Sequence[Place]) -> dict[str, int]:
    """The HyperNode around the places of each group of a job, by uid."""
    nodes: dict[str, list[int]] = {}
    for place in placed:
        nodes.setdefault(session.view.sub_job_of(job, place.pod).uid, []).append(place.node)
    tree = session.view.topology
    return {uid: tree.around(np.array(rows)) for uid, rows in nodes.items()}
