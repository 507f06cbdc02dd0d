"""gangpreempt: a starving job evicts less important gangs of its own queue to get all its places at once.

Unlike preempt it finds places for all pods together, in one HyperNode if the job asks for that. Pods that gangs can
spare are evicted before whole gangs. The HyperNode is remembered: in the next session allocate first tries each pod
where pods were evicted for it.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pydantic import BaseModel

from stromboli.api.pod_state import HELD
from stromboli.eviction import first_fit
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.first_fit import BundleKey
from stromboli.eviction.ordering import descending
from stromboli.eviction.pod_index import PodIndex
from stromboli.eviction.preemptors import GangEvictionArguments, gang_pods, preempting, search_steps
from stromboli.eviction.search import evict_for_job
from stromboli.framework.action import Action
from stromboli.framework.session.session import Session


class GangPreempt(Action):
    name = "gangpreempt"
    Arguments: ClassVar[type[BaseModel]] = GangEvictionArguments

    def run(self, session: Session) -> None:
        waiting = preempting(session)
        if not waiting:
            return
        pod_index = PodIndex(session, HELD)
        context = PreemptionContext(session, pod_index, self.name, "preemptable", less_important=True)
        priorities = session.view.jobs.priority[pod_index.job]
        turns = session.budget.turns(self.name, waiting, search_steps(session))
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            queue = session.view.queues[name]
            in_queue = (pod_index.queue == queue.index) & pod_index.may_go_for(queue)
            for job in turns.in_order(waiting[name], session.ask.job_key):
                turn = partial(evict_for_job, context, job, partial(gang_pods, session, job), at_once=True)
                if session.rules.first_fit:
                    candidates = in_queue & (priorities < job.priority)
                    turn = partial(first_fit.evict_for_gang, context, _last_job_first(session), job, candidates)
                session.budget.serve(turns, job, turn, search_steps(session))
        session.budget.end(self.name, turns)


def _last_job_first(session: Session) -> BundleKey:
    """The order in which Volcano evicts bundles: those of the job that is served last first."""
    return lambda bundle, need: (descending(session.ask.job_key(bundle.job)),)
