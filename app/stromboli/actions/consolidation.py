"""consolidation: moves running pods so that a job fits that fits nowhere as things are.

There is enough free capacity, but it is fragmented. A pod moves only if there is another place for it; that place is
reserved until its replacement arrives, like the places of the job. A moved pod loses only its progress, so neither
shares nor priorities matter; pods that must not be evicted stay where they are.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from stromboli.api.duration import Duration
from stromboli.api.pod_state import HELD
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.pod_index import PodIndex
from stromboli.eviction.preemptors import starving
from stromboli.eviction.relocation import Relocation
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session


class ConsolidationArguments(Arguments):
    """Arguments of consolidation."""

    most: int = Field(default=16, alias="maxMovedPods", ge=1)
    """Maximum number of pods that move for one job."""
    keeping: Duration = Field(default=120.0, alias="keepPlaces")
    """Time for which places are reserved for moved pods, and for the pods that they were moved for."""


class Consolidation(Action):
    name = "consolidation"
    Arguments: ClassVar[type[BaseModel]] = ConsolidationArguments

    def run(self, session: Session) -> None:
        waiting = starving(session)
        if not waiting:
            return
        arguments = session.policy.action_arguments.get(self.name, ConsolidationArguments())
        assert isinstance(arguments, ConsolidationArguments)
        context = PreemptionContext(session, PodIndex(session, HELD), self.name, "evictable")
        turns = session.budget.turns(self.name, waiting)
        queues: list[tuple[Any, Queue]] = [
            (session.ask.queue_key(session.view.queues[name]), session.view.queues[name]) for name in waiting
        ]
        jobs_of = {name: turns.in_order(jobs, session.ask.job_key)[::-1] for name, jobs in waiting.items()}
        heapq.heapify(queues)
        while queues:
            _, queue = heapq.heappop(queues)
            jobs = jobs_of[queue.name]
            if not jobs or session.ask.overused(queue) is not None:
                continue
            job = jobs.pop()
            session.budget.serve(turns, job, partial(_serve, context, arguments, job))
            heapq.heappush(queues, (session.ask.queue_key(queue), queue))
        session.budget.end(self.name, turns)


def _serve(context: PreemptionContext, arguments: ConsolidationArguments, job: Job) -> None:
    """Move pods for a job, unless it has reservations already."""
    if not has_topology(job) and not context.session.keeper.reserves(job):
        Relocation(context, job, most=arguments.most, keeping=arguments.keeping).run()
