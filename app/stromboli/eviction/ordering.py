"""The order in which pods are evicted: what a set of victims costs, and the keys and columns that it follows from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cmp_to_key
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stromboli.eviction.units import Unit
from stromboli.framework.cluster.job import Queue
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: the rank of a set without victims: the pod fits already
NO_VICTIMS = -1
#: makes a key that sorts the other way round
descending: Callable[[Any], Any] = cmp_to_key(lambda one, other: (one < other) - (other < one))


class Cost(NamedTuple):
    """The cost of evicting a set of pods; the smaller tuple is cheaper. The criteria, the most important first:

    0. Pods that must not be evicted are no candidates: a disruption budget that is used up (plugin `pdb`), a pod that
       protects itself, a plugin's veto. So no budget is broken, whatever it would save.
    1. The lowest highest rank. Ranks are priorities: of the PodGroup, then of the pod. When a queue reclaims, the
       order of queues that a plugin asks for comes before (`victim_queue_order`, `gives_back_in_order`).
    2. The fewest gangs broken, for each place that is gained.
    3. The fewest pods evicted, for each place that is gained.
    4. The latest start: of the pods of the highest rank, the one that has run longest started last.

    Sets that are equal in all of these lie on nodes of which the better one is taken. On one node, and where a queue
    frees its share, pods of the job that is served last go first, and of one job the last pod.
    """

    rank: int
    gangs: float
    pods: float
    age: float

    @classmethod
    def of(cls, units: Iterable[Unit], places: float = 1) -> Cost:
        """The cost of each of some places that are gained by evicting units."""
        rank, gangs, pods, oldest = NO_VICTIMS, 0, 0, 0.0
        for unit in units:
            gangs += unit.whole
            pods += len(unit.pods)
            if unit.rank > rank:
                rank, oldest = unit.rank, unit.began
            elif unit.rank == rank:
                oldest = min(oldest, unit.began)
        return cls(rank, gangs / places, pods / places, -oldest)


def unit_cost(unit: Unit) -> Cost:
    """The cost of a unit alone."""
    return Cost(unit.rank, unit.whole, len(unit.pods), -unit.began)


def cheapness(unit: Unit) -> tuple[float, ...]:
    """Sort key of units: the smaller one is evicted first."""
    return *unit_cost(unit), unit.order


def began(pod: PodRecord) -> float:
    """Start time of a pod, infinite if unknown: it counts as the last."""
    return pod.started or math.inf


def ascending(*columns: NDArray[Any]) -> list[tuple[Any, ...]]:
    """Tuples with their parts in columns, the most important first, as a sorted list, which is a heap."""
    order = np.lexsort(columns[::-1])
    return list(zip(*(column[order].tolist() for column in columns), strict=True))


def victim_queue_key(session: Session, queue: Queue, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller gives way first: the queue served last, unless a plugin knows better."""
    return *session.ask.victim_queue_order(queue, beneficiary), descending(session.ask.queue_key(queue))


def victim_key(session: Session, pod: PodRecord, beneficiary: Queue) -> tuple[object, ...]:
    """Smaller is evicted first: of the queue that gives way first its last job, of which the last pod goes first."""
    job, ask = session.view.jobs[pod.job], session.ask
    of_queue = victim_queue_key(session, job.queue, beneficiary)
    return *of_queue, descending(ask.job_order(job)), descending(ask.task_key(pod))
