"""All units that may be evicted for a job, on any node, the cheapest first, computed as far as they are read.

The earliest place of a unit in this order follows from columns: by rank, among equals single pods before whole gangs,
small gangs before large ones, young before old. So of thousands of jobs few are asked what they can spare.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import Mask, Rows
from stromboli.eviction.lazy_heap import LazyHeap
from stromboli.eviction.node_candidates import NodeCandidates, PotentialVictim
from stromboli.eviction.ordering import Reversed, distinct, unit_cost
from stromboli.eviction.pod_index import PodIndex
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord


class CheapestFirst:
    """The units that may be evicted in a job's turn, to be iterated again after evictions.

    Plugins must judge a victim independently of the others.
    """

    def __init__(
        self, session: Session, pod_index: PodIndex, candidates: Mask, node_candidates: NodeCandidates
    ) -> None:
        """`candidates` masks the pod index: the pods that may be evicted at most."""
        self._session = session
        self._pod_index = pod_index
        self._node_candidates = node_candidates
        #: the pods that may be evicted, job by job, and which jobs may have pods to spare
        self._candidates: Rows = pod_index.by_job[candidates[pod_index.by_job]]
        jobs = session.view.jobs
        spare = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count) > jobs.min_available
        alone = np.flatnonzero(candidates & spare[pod_index.job])
        rank, began = pod_index.ranks.rank[alone], pod_index.began[pod_index.rows[alone]]
        order = np.lexsort((-began, rank))
        #: those that may go alone, equals together, and where each lot of equals begins and the last one ends
        self._alone: Rows = alone[order]
        rank, began = rank[order], began[order]
        differs = np.ones(len(alone), np.bool_)
        differs[1:] = (rank[1:] != rank[:-1]) | (began[1:] != began[:-1])
        self._ends: list[int] = [*np.flatnonzero(differs).tolist(), len(alone)]
        #: the rows of the lots that were looked at, in order, by where they begin
        self._sorted: dict[int, Rows] = {}

    def __iter__(self) -> Iterator[PotentialVictim]:
        """In the present state; units may be evicted while it is iterated."""
        gangs = _Gangs(self._session, self._pod_index, self._candidates, self._node_candidates)
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            yield from gangs.below(int(self._pod_index.ranks.rank[self._alone[start]]))
            for pod in self._lot(start, end):
                if self._pod_index.held[self._session.view.pods.state[pod.row]]:
                    item = gangs.alone(pod.job).get(pod.row)
                    if item is not None:
                        yield item
        yield from gangs.below(None)

    def _lot(self, start: int, end: int) -> Iterator[PodRecord]:
        rows = self._sorted.get(start)
        if rows is None:
            alone = self._alone[start:end]
            rows = self._sorted[start] = self._pod_index.rows[alone if len(alone) == 1 else self._in_order(alone)]
        return map(self._session.view.record, rows)

    def _in_order(self, alone: Rows) -> Rows:
        """Equals in the order in which they would go: of the last jobs, where these are equals, too, the last pods."""
        pod_index, view = self._pod_index, self._session.view
        jobs, of = distinct(pod_index.job[alone], len(view.jobs))
        places = [self._node_candidates.place(view.jobs.at(job)) for job in jobs.tolist()]
        number, numbers = 0, np.zeros(len(jobs), np.intp)
        in_order = sorted(range(len(jobs)), key=places.__getitem__)
        for before, job in pairwise(in_order):
            number += places[before] != places[job]
            numbers[job] = number
        order: Rows = np.lexsort((pod_index.task_places(alone), numbers[of]))[::-1]
        return alone[order]


class _Gangs:
    """The units of jobs, of each job computed when it is first asked for, before any of its pods is evicted."""

    def __init__(
        self, session: Session, pod_index: PodIndex, candidates: Rows, node_candidates: NodeCandidates
    ) -> None:
        """`candidates` are of the pod index, job by job."""
        self._jobs = session.view.jobs
        self._pod_index = pod_index
        self._node_candidates = node_candidates
        self._alive = pod_index.alive()
        self._candidates = candidates[self._alive[candidates]]
        self._of = pod_index.job[self._candidates]
        self._lowest = int(pod_index.ranks.rank[self._candidates].min(initial=np.iinfo(np.intp).max))
        #: by job, the items of those that may go alone, by row
        self._alone: dict[str, dict[int, PotentialVictim]] = {}
        #: by job, the first pod that its gang cannot do without, and the item of the whole gang
        self._whole: dict[str, tuple[PodRecord, PotentialVictim]] = {}

    def alone(self, key: str) -> dict[int, PotentialVictim]:
        """Those of a job that may go alone, by row."""
        found = self._alone.get(key)
        if found is None:
            node_candidates, index = self._node_candidates, self._jobs[key].index
            items, rest = node_candidates.sparable(
                node_candidates.permitted(self._pod_index.rows[self._candidates_of(index)])
            )
            found = self._alone[key] = {item.unit.pods[0].row: item for item in items}
            for whole in node_candidates.gangs(rest):
                self._whole[key] = rest[key][0], whole
        return found

    def below(self, rank: int | None) -> Iterator[PotentialVictim]:
        """The gangs of lower ranks that were not told of; None for all.

        An entry has the price and, once that matters, the place among equals: first at the earliest, then as it is.
        """
        if rank is not None and rank <= self._lowest:
            return
        heap, node_candidates = self._heap, self._node_candidates
        while heap and (rank is None or heap.first()[0] < rank):
            highest, size, began, *among, index = heap.pop()
            key = self._jobs.key(index)
            if len(among) == 1:
                first = -int(self._pod_index.ranks.rank[self._candidates_of(index)].min())
                heap.push(
                    (highest, size, began, 1, Reversed((first, node_candidates.place(self._jobs[key]))), 0, index)
                )
            elif len(among) == 3:
                self.alone(key)
                if key in self._whole:
                    lead, item = self._whole[key]
                    *before, last = node_candidates.place_of(lead)
                    among = [Reversed(tuple(before)), 1, Reversed(last)]
                    highest, _, size, began = unit_cost(item.unit)
                    heap.push((highest, size, began, 1, *among, index))
            else:
                yield self._whole[key][1]

    def _candidates_of(self, job: int) -> Rows:
        start, end = np.searchsorted(self._of, (job, job + 1))
        return self._candidates[start:end]

    @cached_property
    def _heap(self) -> LazyHeap:
        """The jobs that have candidates, by what their gangs cost at least."""
        pod_index, number = self._pod_index, len(self._jobs)
        jobs = np.unique(self._of) if self._node_candidates.may_go_whole else self._of[:0]
        alive = pod_index.by_job[self._alive[pod_index.by_job]]
        of = pod_index.job[alive]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        highest, size, began = np.zeros(number, np.intp), np.zeros(number, np.intp), np.zeros(number)
        if len(starts):
            highest[of[starts]] = np.maximum.reduceat(pod_index.ranks.rank[alive], starts)
            size[of[starts]] = np.diff(starts, append=len(of))
            began[of[starts]] = np.minimum.reduceat(pod_index.began[pod_index.rows[alive]], starts)
        return LazyHeap((highest[jobs], size[jobs], -began[jobs], np.zeros(len(jobs), np.intp), jobs))
