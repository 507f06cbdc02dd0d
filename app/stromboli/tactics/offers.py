"""What gangs can give so that another gets its places, in the order in which it would go.

Of thousands of gangs few have to go. Where one comes in the order at the earliest is known from columns, so bundles are
made in that order, and only for as many gangs as somebody looks at. Plugins are asked about what was looked at, if they
judge in turn, and else about everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Any, Protocol

import numpy as np

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import Mask, Rows
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.bundles import Bundle, bundles, permitted
from stromboli.tactics.consent import Consent
from stromboli.tactics.holders import Holders

#: how many bundles are looked at first, and how many times as many more each time that those do not suffice
_FIRST, _GROWTH = 4, 3


class Order(Protocol):
    """How bundles are sorted as things stand: all whole ones last, and then by key, smaller first."""

    def key(self, bundle: Bundle) -> tuple[Any, ...]:
        """The place of a bundle."""

    def soonest(self, jobs: Rows, *, whole: bool) -> Iterable[tuple[tuple[Any, ...], int]]:
        """Some jobs by index, in order, with a key that none of their whole or safe bundles comes before."""


class Offers:
    """What can be given for one job in a HyperNode. It has to be asked as things stood when it was made."""

    def __init__(
        self, session: Session, holders: Holders, candidates: Mask, within: Mask, order: Order, point: str
    ) -> None:
        """`candidates` are of the holders, `within` has the shape (nodes,); `point` is where plugins are asked."""
        self._session = session
        self._holders = holders
        self._point = point
        self._candidates = candidates
        #: the jobs of which anybody may go, once nobody of those that come first did
        self._giving: frozenset[int] | None = None
        #: which of the holders may go at all, and of which jobs they are, ascending
        self._willing: Mask = candidates & within[holders.node] & holders.alive() & holders.willing
        self._jobs: Rows = np.flatnonzero(np.bincount(holders.job[self._willing]))
        self._in_order = self._sorted(order)

    def blocks(self, job: Job, first: PodRecord) -> Iterator[list[Bundle]]:
        """What may go of the bundles that come first, each time of more of them; at last of all.

        `first` is the pod of the job that is placed first.
        """
        seen: list[Bundle] = []
        size = _FIRST if self._session.ask.judges_in_turn(self._point) else None
        while True:
            before = len(seen)
            seen += islice(self._in_order, size)
            pods = list({pod.row: pod for bundle in seen for pod in bundle.pods}.values())
            allowed = self._session.ask.gang_victims(self._point, job, first, pods) if pods else []
            offered = permitted(seen, allowed)
            yield offered
            if size is None or len(seen) < before + size:
                return
            if not offered and self._giving is None:
                consent = Consent(self._session, self._holders, self._candidates, first, self._point)
                self._giving = frozenset(self._holders.job[consent.pods()].tolist())
            size = _GROWTH * len(seen)

    def _sorted(self, order: Order) -> Iterator[Bundle]:
        """All bundles, what goes first in front."""
        number = count()
        #: what was made, until nothing that was not can come before it
        made: list[tuple[tuple[Any, ...], int, Bundle]] = []
        spares = self._may_spare()
        for whole, jobs in ((False, self._jobs[spares]), (True, self._jobs[~spares])):
            for soonest, job in order.soonest(jobs, whole=whole):
                while made and made[0][0] < (whole, *soonest):
                    yield heapq.heappop(made)[-1]
                for bundle in self._bundles(job):
                    heapq.heappush(made, ((bundle.whole, *order.key(bundle)), next(number), bundle))
        while made:
            yield heapq.heappop(made)[-1]

    def _may_spare(self) -> Mask:
        """Which of the jobs may have a safe bundle: those above their minimum, and under Volcano's rules below it."""
        jobs = self._session.view.jobs
        held = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count)[self._jobs]
        least = jobs.min_available[self._jobs]
        spare: Mask = held > least if self._session.rules.whole_gang_eviction else held != least
        return spare

    def _bundles(self, job: int) -> list[Bundle]:
        if self._giving is not None and job not in self._giving:
            return []
        view = self._session.view
        return bundles(self._session, view.jobs.at(job), view.records(self._rows_of(job)))

    def _rows_of(self, job: int) -> Rows:
        at = self._holders.of_job(job)
        return self._holders.rows[at[self._willing[at]]]
