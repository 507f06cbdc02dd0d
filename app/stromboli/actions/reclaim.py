"""reclaim: pods of a starving job take back what other queues hold above their share.

Queues take turns in order, unless they hold their whole share. The pods of a job are promised places on one
statement until the job no longer starves, and the statement is committed if the job may then run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial

from stromboli.api.pod_state import PodState
from stromboli.eviction import first_fit
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.held_amounts import HeldAmounts
from stromboli.eviction.pod_index import PodIndex
from stromboli.eviction.preemptors import evicting_pods, search_steps, starving
from stromboli.eviction.search import evict_for_job
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


class Reclaim(Action):
    name = "reclaim"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        jobs_of = starving(session, among_others=True, by_share=session.ask.takes_back_by_share)
        if not jobs_of:
            return
        turns = session.budget.turns(self.name, jobs_of, search_steps(session))
        pod_index = PodIndex(session, (PodState.Running,))
        context = PreemptionContext(session, pod_index, self.name, "reclaimable")
        queues = [(session.ask.queue_key(session.view.queues[name]), session.view.queues[name]) for name in jobs_of]
        heapq.heapify(queues)
        while queues:
            _, queue = heapq.heappop(queues)
            jobs = jobs_of[queue.name]
            if session.ask.overused(queue) is not None:
                turns.drop(jobs)
                continue
            if not jobs:
                continue
            if session.rules.first_fit:
                serve = partial(_first_fit, context, HeldAmounts(session, pod_index, pod_index.outside(queue)))
            else:
                serve = partial(_at_min_cost, context)
            for job in turns.in_order(jobs, session.ask.job_key):
                session.budget.serve(turns, job, partial(serve, job), search_steps(session))
            for _ in range(len(jobs) - 1):
                heapq.heappush(queues, (session.ask.queue_key(queue), queue))
            jobs_of[queue.name] = []
        session.budget.end(self.name, turns)


def _at_min_cost(context: PreemptionContext, job: Job) -> None:
    """Pods are evicted at the least cost, and only where the reclaimers then fit."""
    evict_for_job(context, job, partial(evicting_pods, context.session, job))


def _first_fit(context: PreemptionContext, held: HeldAmounts, job: Job) -> None:
    """Pods are evicted on the first node that works."""
    first_fit.evict_for_pods(context, job, partial(_reclaimers, context.session, job), held)


def _reclaimers(session: Session, job: Job) -> Iterator[PodRecord]:
    """The pods of a job for which its queue may reclaim from other queues now, in order."""
    #: requests that the queue may not take more of: placements of the same turn do not change that
    refused: set[int] = set()
    for pod in evicting_pods(session, job):
        if pod.pod_class.id in refused:
            continue
        if session.ask.preemptive(job.queue, [pod]) is None:
            yield pod
        else:
            refused.add(pod.pod_class.id)
