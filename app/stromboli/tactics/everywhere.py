"""Everybody who may go for a job, wherever that is, the cheapest first, worked out as far as somebody asks.

Where one comes in the order at the earliest is known from columns: by rank, of equals those that may go alone before
whole gangs, small gangs before large ones, the young before the old. So of thousands of jobs few are asked what they
can do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import Mask, Rows
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.candidates import Reversed, distinct
from stromboli.tactics.frontier import Frontier
from stromboli.tactics.holders import Holders
from stromboli.tactics.sellers import Item, Sellers


class Everywhere:
    """See the module's docstring. One for a turn of a job; it may be gone through again when others went.

    What is said of a victim must stay so whoever else is one.
    """

    def __init__(self, session: Session, holders: Holders, candidates: Mask, sellers: Sellers) -> None:
        """`candidates` are of the holders: who may go at most."""
        self._session = session
        self._holders = holders
        self._sellers = sellers
        #: those that may go, job by job, and which jobs may have anybody to spare
        self._candidates: Rows = holders.by_job[candidates[holders.by_job]]
        jobs = session.view.jobs
        spare = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count) > jobs.min_available
        alone = np.flatnonzero(candidates & spare[holders.job])
        rank, began = holders.rank[alone], holders.began[holders.rows[alone]]
        order = np.lexsort((-began, rank))
        #: those that may go alone, equals together, and where each lot of equals begins and the last one ends
        self._alone: Rows = alone[order]
        rank, began = rank[order], began[order]
        differs = np.ones(len(alone), np.bool_)
        differs[1:] = (rank[1:] != rank[:-1]) | (began[1:] != began[:-1])
        self._ends: list[int] = [*np.flatnonzero(differs).tolist(), len(alone)]
        #: the rows of the lots that were looked at, in order, by where they begin
        self._sorted: dict[int, Rows] = {}

    def __iter__(self) -> Iterator[Item]:
        """As things stand now; whoever was told of may go meanwhile."""
        gangs = _Gangs(self._session, self._holders, self._candidates, self._sellers)
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            yield from gangs.below(int(self._holders.rank[self._alone[start]]))
            for pod in self._lot(start, end):
                if self._holders.held[self._session.view.pods.state[pod.row]]:
                    item = gangs.alone(pod.job).get(pod.row)
                    if item is not None:
                        yield item
        yield from gangs.below(None)

    def _lot(self, start: int, end: int) -> Iterator[PodRecord]:
        rows = self._sorted.get(start)
        if rows is None:
            alone = self._alone[start:end]
            rows = self._sorted[start] = self._holders.rows[alone if len(alone) == 1 else self._in_order(alone)]
        return map(self._session.view.record, rows)

    def _in_order(self, alone: Rows) -> Rows:
        """Equals in the order in which they would go: of the last jobs, where these are equals, too, the last pods."""
        holders, view = self._holders, self._session.view
        jobs, of = distinct(holders.job[alone], len(view.jobs))
        places = [self._sellers.place(view.jobs.at(job)) for job in jobs.tolist()]
        number, numbers = 0, np.zeros(len(jobs), np.intp)
        in_order = sorted(range(len(jobs)), key=places.__getitem__)
        for before, job in pairwise(in_order):
            number += places[before] != places[job]
            numbers[job] = number
        order: Rows = np.lexsort((holders.task_places(alone), numbers[of]))[::-1]
        return alone[order]


class _Gangs:
    """What jobs give, each worked out when somebody first asks, before any of its pods has gone."""

    def __init__(self, session: Session, holders: Holders, candidates: Rows, sellers: Sellers) -> None:
        """`candidates` are of the holders, job by job."""
        self._jobs = session.view.jobs
        self._holders = holders
        self._sellers = sellers
        self._alive = holders.alive()
        self._candidates = candidates[self._alive[candidates]]
        self._of = holders.job[self._candidates]
        self._lowest = int(holders.rank[self._candidates].min(initial=np.iinfo(np.intp).max))
        #: by job, the items of those that may go alone, by row
        self._alone: dict[str, dict[int, Item]] = {}
        #: by job, the first pod that its gang cannot do without, and the item of the whole gang
        self._whole: dict[str, tuple[PodRecord, Item]] = {}

    def alone(self, key: str) -> dict[int, Item]:
        """Those of a job that may go alone, by row."""
        found = self._alone.get(key)
        if found is None:
            sellers, index = self._sellers, self._jobs[key].index
            items, rest = sellers.sparable(sellers.permitted(self._holders.rows[self._candidates_of(index)]))
            found = self._alone[key] = {item.pod.row: item for item in items if item.pod is not None}
            for whole in sellers.gangs(rest):
                self._whole[key] = rest[key][0], whole
        return found

    def below(self, rank: int | None) -> Iterator[Item]:
        """The gangs of lower ranks that were not told of; None for all.

        An entry has the price and, once that matters, the place among equals: first at the earliest, then as it is.
        """
        if rank is not None and rank <= self._lowest:
            return
        frontier, sellers = self._frontier, self._sellers
        while frontier and (rank is None or frontier.first()[0] < rank):
            highest, size, began, *among, index = frontier.pop()
            key = self._jobs.key(index)
            if len(among) == 1:
                first = -int(self._holders.rank[self._candidates_of(index)].min())
                frontier.push((highest, size, began, 1, Reversed((first, sellers.place(self._jobs[key]))), 0, index))
            elif len(among) == 3:
                self.alone(key)
                if key in self._whole:
                    lead, item = self._whole[key]
                    *before, last = sellers.place_of(lead)
                    among = [Reversed(tuple(before)), 1, Reversed(last)]
                    frontier.push((item.rank, item.size, -item.began, 1, *among, index))
            else:
                yield self._whole[key][1]

    def _candidates_of(self, job: int) -> Rows:
        start, end = np.searchsorted(self._of, (job, job + 1))
        return self._candidates[start:end]

    @cached_property
    def _frontier(self) -> Frontier:
        """The jobs that have candidates, by what their gangs cost at least."""
        holders, number = self._holders, len(self._jobs)
        jobs = np.unique(self._of) if self._sellers.may_go_whole else self._of[:0]
        alive = holders.by_job[self._alive[holders.by_job]]
        of = holders.job[alive]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        highest, size, began = np.zeros(number, np.intp), np.zeros(number, np.intp), np.zeros(number)
        if len(starts):
            highest[of[starts]] = np.maximum.reduceat(holders.rank[alive], starts)
            size[of[starts]] = np.diff(starts, append=len(of))
            began[of[starts]] = np.minimum.reduceat(holders.began[holders.rows[alive]], starts)
        return Frontier((highest[jobs], size[jobs], -began[jobs], np.zeros(len(jobs), np.intp), jobs))
