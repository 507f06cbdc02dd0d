"""Queues and their jobs take turns: the queue with the smallest share is next, in it the first job by order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from stromboli.api.reasons import Reason
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.session.session import Session
from stromboli.framework.session.turns import Turns

#: jobs of queues, by name, each list a heap
_Waiting = dict[str, list[tuple[Any, Job]]]


def take_turns(
    session: Session,
    turns: Turns,
    waiting: Mapping[str, Sequence[Job]],
    turn: Callable[[Job], bool],
    blocks: Callable[[Job], bool],
    refused: Callable[[Queue], Reason | None] | None = None,
) -> None:
    """Give jobs turns, by queue, round by round within the budget.

    If a `turn` returns True, the job gets another one. If it does not, and the job `blocks`, the other jobs of a queue
    that serves strictly in order wait. Jobs of a queue that is `refused` get no turns.
    """
    job_key = turns.by(session.ask.job_key)
    left: _Waiting = {name: [(job_key(job), job) for job in jobs] for name, jobs in waiting.items()}
    while left:
        left = _round(session, turns, left, turn, blocks, refused)
        if not turns.begin_round({name: [job for _, job in jobs] for name, jobs in left.items()}):
            break


def _round(
    session: Session,
    turns: Turns,
    jobs_of: _Waiting,
    turn: Callable[[Job], bool],
    blocks: Callable[[Job], bool],
    refused: Callable[[Queue], Reason | None] | None,
) -> _Waiting:
    """Turns until no job is left but those that are put off, which are returned."""
    job_key = turns.by(session.ask.job_key)
    said = _Said(session, refused)
    put_off: _Waiting = {}
    queues: list[tuple[Any, Queue]] = []
    for name, jobs in jobs_of.items():
        heapq.heapify(jobs)
        queue = session.view.queues[name]
        heapq.heappush(queues, (said.key(queue), queue))
    while queues:
        _, queue = heapq.heappop(queues)
        jobs = jobs_of[queue.name]
        why = said.refusal(queue)
        if why is not None:
            waiting = [job.key for _, job in (*jobs, *put_off.pop(queue.name, ()))]
            session.view.trace.all_jobs([*waiting, *turns.drop_queue(queue)], why)
            continue
        if not jobs:
            continue
        if turns.scarce and turns.puts_off_queue(queue):
            put_off.setdefault(queue.name, []).extend(jobs)
            continue
        key, job = heapq.heappop(jobs)
        if turns.scarce and not session.view.in_strict_order(queue) and turns.puts_off(job):
            put_off.setdefault(queue.name, []).append((key, job))
        elif session.budget.take(turns, job, partial(turn, job), otherwise=False):
            heapq.heappush(jobs, (job_key(job), job))
        elif session.view.in_strict_order(queue) and blocks(job):
            session.hold_back(queue, [*(other.key for _, other in jobs), *turns.drop_queue(queue)])
            continue
        # A queue that is the last one left needs no place in an order.
        heapq.heappush(queues, (said.key(queue) if queues else (), queue))
    return put_off


class _Said:
    """A cache of plugins' answers about queues, which hold until a turn changes something; most turns place nothing."""

    def __init__(self, session: Session, refused: Callable[[Queue], Reason | None] | None) -> None:
        self._session = session
        self._refused = refused
        #: the changes of the ledger after which plugins were asked, for what is known
        self._asked_after = -1
        self._keys: dict[str, tuple[object, ...]] = {}
        self._refusals: dict[str, Reason | None] = {}

    def key(self, queue: Queue) -> tuple[object, ...]:
        """The place of a queue among queues."""
        self._forget_if_changed()
        known = self._keys.get(queue.name)
        if known is None:
            known = self._keys[queue.name] = self._session.ask.queue_key(queue)
        return known

    def refusal(self, queue: Queue) -> Reason | None:
        """Why the jobs of a queue get nothing more."""
        if self._refused is None:
            return None
        self._forget_if_changed()
        if queue.name not in self._refusals:
            self._refusals[queue.name] = self._refused(queue)
        return self._refusals[queue.name]

    def _forget_if_changed(self) -> None:
        changes = self._session.ledger.changes
        if changes != self._asked_after:
            self._asked_after = changes
            self._keys.clear()
            self._refusals.clear()
