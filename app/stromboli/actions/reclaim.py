"""reclaim: pods of a starving job take back what other queues hold above their share.

Queues take turns in order, unless they hold all that they deserve themselves; the pods of a job are promised places on
one statement until it no longer starves, which is kept when the job may then run.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from functools import partial

from stromboli.api.pod_state import PodState
from stromboli.framework.action import Action, ErrorCacheArguments
from stromboli.framework.job import Job, Queue
from stromboli.framework.session import Session
from stromboli.framework.turns import Turns
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import search_steps, starving
from stromboli.tactics.holders import Holders
from stromboli.tactics.victims import CHOICES, Way, serve


class Reclaim(Action):
    name = "reclaim"
    Arguments = ErrorCacheArguments

    def run(self, session: Session) -> None:
        jobs_of = starving(session, among_others=True, by_share=session.ask.takes_back_by_share)
        if not jobs_of:
            return
        turns = session.turns(self.name, jobs_of)
        holders = Holders(session, (PodState.Running,))
        queues = [(session.ask.queue_key(session.view.queues[name]), session.view.queues[name]) for name in jobs_of]
        heapq.heapify(queues)
        while queues:
            _, queue = heapq.heappop(queues)
            jobs = jobs_of[queue.name]
            overused = session.ask.overused(queue)
            if overused is not None:
                turns.drop(jobs)
                continue
            if not jobs:
                continue
            self._reclaim_for(session, holders, turns, queue, jobs)
            for _ in range(len(jobs) - 1):
                heapq.heappush(queues, (session.ask.queue_key(queue), queue))
            jobs_of[queue.name] = []
        session.end_turns(self.name, turns)

    def _reclaim_for(self, session: Session, holders: Holders, turns: Turns, queue: Queue, jobs: list[Job]) -> None:
        strict = session.rules.evict_only_what_helps
        way = Way(
            action=self.name,
            point="reclaimable",
            scored=False,
            checked=strict,
            sparing=strict,
            choices=CHOICES if strict else 1,
            like_for_like=strict,
            needs_candidates=not strict,
            by_share=session.ask.takes_back_by_share,
            cheaply=session.ask.takes_back_cheaply,
        )
        releasable = holders.releasable(holders.outside(queue))
        in_vain = set[Hashable]() if session.rules.veto else None
        for job in turns.in_order(jobs, session.ask.job_key):
            turn = partial(serve, session, way, job, partial(self._reclaimers, session, job), releasable, in_vain)
            session.serve(turns, job, turn, search_steps(session))

    def _reclaimers(self, session: Session, job: Job) -> Iterator[PodRecord]:
        """The pending pods of a job that may take back, in task order."""
        #: requests that the queue may not take more of: placements of the same turn do not change that
        refused: set[int] = set()
        for pod in session.ask.in_task_order(session.view.pending(job)):
            if pod.pod_class.gated or pod.pod_class.spec.preemption_policy == "Never" or pod.pod_class.id in refused:
                continue
            if session.ask.preemptive(job.queue, [pod]) is None:
                yield pod
            else:
                refused.add(pod.pod_class.id)
