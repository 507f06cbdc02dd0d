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
    """Give jobs turns, by queue, round by round as far as the budget reaches.

    After a `turn` that returns True the job has another one. Where it does not and the job `blocks`, the others of a
    queue that serves strictly in order wait; and those of a queue that is `refused` turns have none.
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
    ask, job_key = session.ask, turns.by(session.ask.job_key)
    put_off: _Waiting = {}
    queues: list[tuple[Any, Queue]] = []
    for name, jobs in jobs_of.items():
        heapq.heapify(jobs)
        queue = session.view.queues[name]
        heapq.heappush(queues, (ask.queue_key(queue), queue))
    while queues:
        _, queue = heapq.heappop(queues)
        jobs = jobs_of[queue.name]
        why = None if refused is None else refused(queue)
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
        heapq.heappush(queues, (ask.queue_key(queue) if queues else (), queue))
    return put_off
