"""gangreclaim: a starving job takes back what other queues hold above their share, for all its places at once.

Other than reclaim it finds places for all pods together, in one HyperNode where the job asks for that, and evicts in
bundles: first what gangs can lose and still run, then whole gangs, of these first the ones that give most for what
they lose. The HyperNode is remembered: allocate of the next session tries each pod first where room was made for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Matrix, Rows, Vector
from stromboli.framework.action import Action
from stromboli.framework.job import Queue
from stromboli.framework.session import Session
from stromboli.tactics.bundles import Bundle, worth, worths
from stromboli.tactics.candidates import starving, victim_queue_key
from stromboli.tactics.gang_victims import GangEvictionArguments, GangWay, serve_gang
from stromboli.tactics.holders import Holders


class GangReclaim(Action):
    name = "gangreclaim"
    Arguments: ClassVar[type[BaseModel]] = GangEvictionArguments

    def run(self, session: Session) -> None:
        waiting = starving(session, among_others=True, by_share=session.ask.takes_back_by_share)
        if not waiting:
            return
        holders = Holders(session, (PodState.Running,))
        requested = session.view.membership.requested_by_all()
        turns = session.turns(self.name, waiting)
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            queue = session.view.queues[name]
            if session.ask.overused(queue) is not None:
                turns.drop(waiting[name])
                continue
            candidates = holders.outside(queue)
            order = partial(LeastEntitledFirst, session, queue, requested)
            way = GangWay(self.name, reclaiming=True, holders=holders, order=order)
            for job in turns.in_order(waiting[name], session.ask.job_key):
                serve_gang(session, way, turns, job, candidates)
        session.end_turns(self.name, turns)


class LeastEntitledFirst:
    """The order in which bundles go: by queue, then what gives most for what it loses. It is that of one moment."""

    def __init__(self, session: Session, queue: Queue, requested: Matrix, need: Vector) -> None:
        """`queue` takes back, `need` is what it asks for; `requested` is what all pods of jobs request together."""
        self._session = session
        self._queue = queue
        self._requested = requested
        self._need = need
        self._keys: dict[int, tuple[Any, ...]] = {}

    def key(self, bundle: Bundle) -> tuple[Any, ...]:
        """See `Order`."""
        job = bundle.job
        return *self._of_queue(job.queue.index), -worth(self._session, bundle, self._need), job.key

    def soonest(self, jobs: Rows, *, whole: bool) -> Iterator[tuple[tuple[Any, ...], int]]:
        """See `Order`. A whole bundle gives what its job holds at most, and a safe one costs nothing."""
        known, most = self._session.view.jobs, np.full(len(jobs), np.inf)
        if whole:
            most = worths(self._session.view.job_allocated[jobs], self._requested[jobs], self._need)
        order = np.lexsort((known.alphabetical[jobs], -most))
        jobs, most = jobs[order], most[order]
        for queue in sorted(np.unique(known.queue[jobs]).tolist(), key=self._of_queue):
            for at in np.flatnonzero(known.queue[jobs] == queue):
                job = int(jobs[at])
                yield (*self._of_queue(queue), -float(most[at]), known.key(job)), job

    def _of_queue(self, index: int) -> tuple[Any, ...]:
        """The place of a queue among those that are taken from."""
        key = self._keys.get(index)
        if key is None:
            queues = self._session.view.queues
            given = queues[list(queues)[index]]
            key = self._keys[index] = victim_queue_key(self._session, given, self._queue)
        return key
