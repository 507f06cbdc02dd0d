"""gangpreempt: a starving job evicts gangs of its own queue that are less important, to get all its places at once.

Other than preempt it finds places for all pods together, in one HyperNode where the job asks for that, and evicts in
bundles: first what gangs can lose and still run, then whole gangs. The HyperNode is remembered: allocate of the next
session tries each pod first where room was made for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from pydantic import BaseModel

from stromboli.api.resources import Rows, Vector
from stromboli.framework.action import Action
from stromboli.framework.session import Session
from stromboli.tactics.bundles import Bundle
from stromboli.tactics.candidates import HELD, Reversed, preempting
from stromboli.tactics.cheapest import Market
from stromboli.tactics.gang_victims import GangEvictionArguments, GangWay, serve_gang
from stromboli.tactics.holders import Holders


class GangPreempt(Action):
    name = "gangpreempt"
    Arguments: ClassVar[type[BaseModel]] = GangEvictionArguments

    def run(self, session: Session) -> None:
        waiting = preempting(session)
        if not waiting:
            return

        holders = Holders(session, HELD)
        market = Market(session, holders, self.name, "preemptable") if session.rules.evict_only_what_helps else None
        way = GangWay(self.name, reclaiming=False, holders=holders, order=partial(LastJobFirst, session), market=market)
        priorities = session.view.jobs.priority[holders.job]
        turns = session.turns(self.name, waiting)
        for _, name in sorted((session.ask.queue_key(session.view.queues[name]), name) for name in waiting):
            queue = session.view.queues[name]
            in_queue = (holders.queue == queue.index) & holders.may_go_for(queue)
            for job in turns.in_order(waiting[name], session.ask.job_key):
                serve_gang(session, way, turns, job, in_queue & (priorities < job.priority))
        session.end_turns(self.name, turns)


class LastJobFirst:
    """The order in which bundles go: those of the job that is served last first."""

    def __init__(self, session: Session, need: Vector) -> None:
        self._session = session

    def key(self, bundle: Bundle) -> tuple[Reversed]:
        """See `Order`."""
        return (Reversed(self._session.ask.job_key(bundle.job)),)

    def soonest(self, jobs: Rows, *, whole: bool) -> Iterator[tuple[tuple[()], int]]:
        """See `Order`. It takes plugins to know."""
        return (((), job) for job in jobs.tolist())
