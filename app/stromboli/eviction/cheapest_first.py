"""All units that may be evicted for a job, on any node, the cheapest first, computed as far as they are read.

A lower bound of the cost of a job's cheapest unit follows from columns, so that of thousands of jobs only few are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.lazy_heap import LazyHeap
from stromboli.eviction.node_candidates import NodeCandidates
from stromboli.eviction.ordering import unit_cost
from stromboli.eviction.units import Unit, above_minimum

#: the place of a job among its units: it is asked before any of them
_JOB = -1


class CheapestFirst:
    """The units that may be evicted in a job's turn, to be iterated again after evictions.

    Plugins must judge a victim independently of the others.
    """

    def __init__(self, context: PreemptionContext, candidates: Mask, node_candidates: NodeCandidates) -> None:
        """`candidates` masks the pod index: the pods that may be evicted at most."""
        jobs = context.session.view.jobs
        self._pod_index = pod_index = context.pod_index
        self._node_candidates = node_candidates
        #: those pods, job by job
        self._candidates: Rows = pod_index.by_job[candidates[pod_index.by_job]]
        #: whether jobs may have pods to spare, and their places among equals, the last job first, shape (jobs,)
        self._spares: Mask = above_minimum(jobs)
        self._place: Rows = np.zeros(len(jobs), np.intp)
        in_order = context.session.ask.in_job_order(jobs, np.unique(pod_index.job[self._candidates]))
        self._place[in_order] = -np.arange(len(in_order))

    def __iter__(self) -> Iterator[Unit]:
        """In the present state; units may be evicted while it is iterated."""
        at = self._candidates[self._pod_index.alive()[self._candidates]]
        if not len(at):
            return
        starts = np.flatnonzero(np.diff(self._pod_index.job[at], prepend=-1))
        sizes = np.diff(starts, append=len(at))
        heap = self._bounds(at, starts, sizes)
        while heap:
            *_, place, number, of = heap.pop()
            if number == _JOB:
                rows = self._pod_index.rows[at[starts[of] :][: sizes[of]]]
                permitted = self._node_candidates.permitted(rows)
                for number, unit in enumerate(self._node_candidates.units(permitted)):
                    heap.push((*unit_cost(unit), place, number, unit))
            else:
                yield of

    def _bounds(self, at: Rows, starts: Rows, sizes: Rows) -> LazyHeap:
        """What the cheapest unit of each job costs at least: a pod that it can spare, or else all its candidates."""
        rank, began = self._pod_index.ranks.rank[at], self._pod_index.began[self._pod_index.rows[at]]
        jobs = self._pod_index.job[at[starts]]
        spares = self._spares[jobs]
        ranks = np.where(spares, np.minimum.reduceat(rank, starts), np.maximum.reduceat(rank, starts))
        age = -np.where(spares, np.maximum.reduceat(began, starts), np.minimum.reduceat(began, starts))
        number = np.full(len(jobs), _JOB)
        return LazyHeap(
            (ranks, ~spares, np.where(spares, 1, sizes), age, self._place[jobs], number, np.arange(len(jobs)))
        )
