"""gangreclaim: a starving job takes back what other queues hold above their share, for all its places at once.

Other than reclaim it finds places for all pods together, in one HyperNode where the job asks for that, and evicts in
bundles: first what gangs can lose and still run, then whole gangs, of these first the ones that give most for what
they lose. The HyperNode is remembered: allocate of the next session tries each pod first where room was made for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.framework.action import Action
from stromboli.framework.job import Queue
from stromboli.framework.session import Session
from stromboli.tactics.bundles import Bundle, worth
from stromboli.tactics.gang_victims import GangEvictionArguments, GangWay, serve_gang
from stromboli.tactics.victims import Holders, starving, victim_queue_key


class GangReclaim(Action):
    name = "gangreclaim"
    Arguments: ClassVar[type[BaseModel]] = GangEvictionArguments

    def run(self, session: Session) -> None:
        waiting = starving(session, among_others=True, by_share=session.ask.takes_back_by_share)
        if not waiting:
            return
        holders = Holders(session, (PodState.Running,))
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            queue = session.view.queues[name]
            if session.ask.overused(queue) is not None:
                continue
            candidates = holders.outside(queue)
            for job in sorted(waiting[name], key=session.ask.job_key):
                serve_gang(session, self._way(session, holders, queue), job, candidates)

    def _way(self, session: Session, holders: Holders, queue: Queue) -> GangWay:
        #: keys of queues, as they are after so many changes of nodes
        keys: dict[tuple[int, str], tuple[Any, ...]] = {}

        def least_entitled_first(bundle: Bundle, need: Vector) -> tuple[Any, ...]:
            of = (len(session.view.nodes.log), bundle.job.queue.name)
            if of not in keys:
                keys[of] = victim_queue_key(session, bundle.job.queue, queue)
            return *keys[of], -worth(session, bundle, need), bundle.job.key

        return GangWay(self.name, reclaiming=True, holders=holders, order=least_entitled_first)
