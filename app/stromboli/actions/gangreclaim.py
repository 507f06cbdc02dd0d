"""gangreclaim: a starving job takes back what other queues hold above their share, for all its places at once.

Unlike reclaim it finds places for all pods together, in one HyperNode if the job asks for that. Pods that gangs can
spare are evicted before whole gangs, at the least cost; under Volcano's rules, first those that free the most for what
they lose. The HyperNode is remembered: in the next session allocate first tries each pod where pods were evicted for
it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.eviction import first_fit
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.ordering import victim_queue_key
from stromboli.eviction.pod_index import PodIndex
from stromboli.eviction.preemptors import GangEvictionArguments, evicting_pods, gang_pods, search_steps, starving
from stromboli.eviction.search import evict_for_job
from stromboli.eviction.units import Unit
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.session.session import Session


class GangReclaim(Action):
    name = "gangreclaim"
    Arguments: ClassVar[type[BaseModel]] = GangEvictionArguments

    def run(self, session: Session) -> None:
        waiting = starving(session, among_others=True, by_share=session.ask.takes_back_by_share)
        if not waiting:
            return
        pod_index = PodIndex(session, (PodState.Running,))
        context = PreemptionContext(session, pod_index, self.name, "reclaimable")
        turns = session.budget.turns(self.name, waiting, search_steps(session))
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            queue = session.view.queues[name]
            if session.ask.overused(queue) is not None:
                turns.drop(waiting[name])
                continue
            search = partial(_at_min_cost, context)
            if session.rules.first_fit:
                by_value = _ByValue(session, queue).key
                search = partial(first_fit.evict_for_gang, context, by_value, candidates=pod_index.outside(queue))
            for job in turns.in_order(waiting[name], session.ask.job_key):
                session.budget.serve(turns, job, partial(search, job), search_steps(session))
        session.budget.end(self.name, turns)


def _at_min_cost(context: PreemptionContext, job: Job) -> None:
    """Gangs are evicted at the least cost, and only where everything reclaimed for a job gets places."""
    if context.grows_by_share:
        # Pods beyond the minimum are searched for along with it: the same victims may do for both.
        evict_for_job(context, job, partial(evicting_pods, context.session, job))
    else:
        evict_for_job(context, job, partial(gang_pods, context.session, job), at_once=True)


class _ByValue:
    """The order in which Volcano evicts bundles: by queue as ordered at the start, then by value, the highest first."""

    def __init__(self, session: Session, queue: Queue) -> None:
        """`queue` is the one that reclaims."""
        self._session = session
        self._queue = queue
        self._keys: dict[str, tuple[Any, ...]] = {}

    def key(self, bundle: Unit, need: Vector) -> tuple[Any, ...]:
        """Smaller is evicted first."""
        job = bundle.job
        if job.queue.name not in self._keys:
            self._keys[job.queue.name] = victim_queue_key(self._session, job.queue, self._queue)
        return *self._keys[job.queue.name], -bundle_value(self._session, bundle, need), job.key


def bundle_value(session: Session, bundle: Unit, need: Vector) -> float:
    """The value of a bundle: the share of the need that it frees, relative to the total request of its job."""
    if not bundle.whole:
        return math.inf
    gives = session.view.requested(bundle.pods)
    loses = session.view.requested(session.view.members(bundle.job))
    gain, cost = 0.0, 0.0
    for column in np.flatnonzero(need > 0).tolist():
        gain += min(gives[column] / need[column], 1)
        cost += loses[column] / need[column]
    return gain / cost if cost > 0 else math.inf
