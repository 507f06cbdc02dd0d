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
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.eviction.node_candidates import NodeCandidates, PotentialVictim
from stromboli.eviction.ordering import distinct
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
        #: those that may be evicted alone, equals together, and by rank where each lot of equals begins and ends
        self._alone: Rows = alone[order]
        self._lots = _lots(rank[order], began[order])
        #: the rows of the lots that were looked at, in order, by where they begin
        self._sorted: dict[int, Rows] = {}

    def __iter__(self) -> Iterator[PotentialVictim]:
        """In the present state; units may be evicted while it is iterated."""
        units = _Units(self._session, self._pod_index, self._candidates, self._node_candidates)
        for rank in range(self._pod_index.ranks.rank.max(initial=-1) + 1):
            for start, end in self._lots.get(rank, ()):
                for pod in self._lot(start, end):
                    if self._pod_index.held[self._session.view.pods.state[pod.row]]:
                        victim = units.alone(pod.job).get(pod.row)
                        if victim is not None:
                            yield victim
            yield from units.whole(rank)

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


class _Units:
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
        #: by job, those that may be evicted alone, by row, and the whole gang if it may be evicted
        self._known: dict[str, tuple[dict[int, PotentialVictim], PotentialVictim | None]] = {}

    def alone(self, key: str) -> dict[int, PotentialVictim]:
        """The pods of a job that may be evicted alone, by row."""
        return self._of_job(key)[0]

    def whole(self, rank: int) -> Iterator[PotentialVictim]:
        """The gangs of a rank: small ones first, then young ones, of equals the last job first."""
        for lot in self._gangs.get(rank, ()):
            jobs = [self._jobs.at(index) for index in lot]
            for job in sorted(jobs, key=self._node_candidates.gang_place, reverse=True):
                victim = self._of_job(job.key)[1]
                if victim is not None:
                    yield victim

    def _of_job(self, key: str) -> tuple[dict[int, PotentialVictim], PotentialVictim | None]:
        found = self._known.get(key)
        if found is None:
            start, end = np.searchsorted(self._of, (self._jobs[key].index, self._jobs[key].index + 1))
            pods = self._node_candidates.permitted(self._pod_index.rows[self._candidates[start:end]])
            alone, rest = self._node_candidates.sparable(pods)
            whole = next(iter(self._node_candidates.gangs(rest)), None)
            found = self._known[key] = {victim.unit.pods[0].row: victim for victim in alone}, whole
        return found

    @cached_property
    def _gangs(self) -> dict[int, list[list[int]]]:
        """The jobs with candidates by the rank of their gang, in lots that cost the same, by index."""
        pod_index = self._pod_index
        if not self._node_candidates.may_go_whole or not len(self._of):
            return {}
        alive = pod_index.by_job[self._alive[pod_index.by_job]]
        starts = np.flatnonzero(np.diff(pod_index.job[alive], prepend=-1))
        jobs, sizes = pod_index.job[alive[starts]], np.diff(starts, append=len(alive))
        ranks = np.maximum.reduceat(pod_index.ranks.rank[alive], starts)
        began = np.minimum.reduceat(pod_index.began[pod_index.rows[alive]], starts)
        order = np.lexsort((-began, sizes, ranks))
        order = order[np.isin(jobs[order], self._of)]
        lots = _lots(ranks[order], sizes[order], began[order])
        return {rank: [jobs[order[start:end]].tolist() for start, end in ends] for rank, ends in lots.items()}


def _lots(rank: Rows, *also: Rows | Vector) -> dict[int, list[tuple[int, int]]]:
    """Where each lot of equals begins and ends, by rank; all columns are in their common order."""
    differs = np.ones(len(rank), np.bool_)
    differs[1:] = np.any([column[1:] != column[:-1] for column in (rank, *also)], axis=0)
    starts = np.flatnonzero(differs)
    found: dict[int, list[tuple[int, int]]] = {}
    for of, *ends in zip(rank[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(rank)], strict=False):
        found.setdefault(of, []).append((ends[0], ends[1]))
    return found
