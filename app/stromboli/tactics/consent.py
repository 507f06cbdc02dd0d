"""Who may go at most: what pods, gangs and plugins say in columns, before anybody is asked about single pods."""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import TOLERANCE, Mask, Vector, compared
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord
from stromboli.tactics.holders import Holders

#: after how many that were asked in vain it is worth finding out whom to ask at all
_PATIENCE = 8


class Consent:
    """Who of some holders may go at most for pods of a job, as things stand whenever that is asked.

    Whoever may not, may not either once others have gone for that job.
    """

    def __init__(self, session: Session, holders: Holders, candidates: Mask, pod: PodRecord, point: str) -> None:
        """`pod` is the one that plugins are asked for at a `point`."""
        self._session = session
        self._holders = holders
        self._candidates = candidates
        self._pod = pod
        self._point = point

    def pods(self, *, whole: bool = True) -> Mask:
        """Which of the holders, shape (holders,). `whole` says whether gangs may go that cannot do without somebody."""
        holders, ask = self._holders, self._session.ask
        alive = holders.alive()
        willing = alive & holders.willing
        known, jobs = len(self._session.view.jobs), None
        if self._point == "preemptable":
            jobs = ask.preemptable_jobs(self._pod, known, holders.least_of_jobs)
        if jobs is not None:
            willing &= jobs[holders.job]
        queues = holders.giving(self._pod) if self._point == "reclaimable" else None
        if queues is not None:
            willing &= queues[holders.queue]
        pods = ask.evictable_pods(self._point, holders.rows)
        if pods is not None:
            willing &= pods
        return willing & self._candidates & self._can_give(alive, willing, whole=whole)[holders.job]

    def nodes(self, request: Vector, *, whole: bool = True) -> Mask:
        """Which nodes would have room for a request if all of them went, shape (nodes,)."""
        holders, nodes = self._holders, self._session.view.nodes
        at = np.flatnonzero(self.pods(whole=whole))
        node, room = holders.node[at], nodes.future_idle()
        enough = np.ones(len(nodes), np.bool_)
        for column in np.flatnonzero(compared(request, nodes.always)).tolist():
            gain = np.bincount(node, weights=holders.requests[column][at], minlength=len(nodes))
            enough &= room[column] + gain > request[column] - TOLERANCE
        return enough

    def _can_give(self, alive: Mask, willing: Mask, *, whole: bool) -> Mask:
        """Which jobs have more than they start with, or may go whole as far as their pods are concerned."""
        if not self._session.rules.whole_gang_eviction:
            return np.ones(len(self._session.view.jobs), np.bool_)
        jobs, of = self._session.view.jobs, self._holders.job
        held = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count)
        able: Mask = held > jobs.min_available
        if whole:
            able |= ~np.bincount(of[alive & ~willing], minlength=len(jobs)).astype(np.bool_)
        return able


class Patience:
    """Says when enough were asked in vain to find out whom to ask at all; later each time that this did not help."""

    __slots__ = ("_left", "_size")

    def __init__(self) -> None:
        self._size = self._left = _PATIENCE

    def is_over(self) -> bool:
        """Somebody more was asked in vain: whether that was one too many."""
        self._left -= 1
        return self._left <= 0

    def renew(self, spared: int) -> None:
        """It was found out whom to ask, which spared so many questions."""
        if spared < self._size:
            self._size *= 2
        self._left = self._size
