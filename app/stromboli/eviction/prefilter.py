"""The pods that may be evicted at most, by columns of pods, gangs and plugins, before single pods are judged."""

from __future__ import annotations

import numpy as np

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import TOLERANCE, Mask, Vector, compared
from stromboli.eviction.context import PreemptionContext
from stromboli.state.pods import PodRecord


class Prefilter:
    """Which indexed pods may be evicted at most for pods of a job, as things stand whenever that is asked.

    Evictions for that job never make an ineligible pod eligible.
    """

    def __init__(self, context: PreemptionContext, candidates: Mask, pod: PodRecord) -> None:
        """`pod` is the one that plugins are asked for."""
        self._session = context.session
        self._pod_index = context.pod_index
        self._context = context
        self._candidates = candidates
        self._pod = pod

    def pods(self, *, whole: bool = True) -> Mask:
        """Which pods may be evicted, shape (indexed pods,). `whole` says whether gangs may fall below their minimum."""
        pod_index, ask = self._pod_index, self._session.ask
        alive = pod_index.alive()
        willing = alive & pod_index.willing
        jobs = queues = None
        if self._context.reclaiming:
            queues = pod_index.giving(self._pod)
        else:
            jobs = ask.preemptable_jobs(self._pod, len(self._session.view.jobs), pod_index.least_of_jobs)
        if jobs is not None:
            willing &= jobs[pod_index.job]
        if queues is not None:
            willing &= queues[pod_index.queue]
        pods = ask.evictable_pods(self._context.point, pod_index.rows)
        if pods is not None:
            willing &= pods
        return willing & self._candidates & self._can_give(alive, willing, whole=whole)[pod_index.job]

    def nodes(self, request: Vector, *, whole: bool = True) -> Mask:
        """On which nodes a request would fit if all of them were evicted, shape (nodes,)."""
        pod_index, nodes = self._pod_index, self._session.view.nodes
        at = np.flatnonzero(self.pods(whole=whole))
        node, free = pod_index.node[at], nodes.future_idle()
        enough = np.ones(len(nodes), np.bool_)
        for column in np.flatnonzero(compared(request, nodes.always)).tolist():
            gain = np.bincount(node, weights=pod_index.requests[column][at], minlength=len(nodes))
            enough &= free[column] + gain > request[column] - TOLERANCE
        return enough

    def _can_give(self, alive: Mask, willing: Mask, *, whole: bool) -> Mask:
        """Which jobs have more than they start with, or may be evicted whole as far as their pods are concerned."""
        jobs, of = self._session.view.jobs, self._pod_index.job
        held = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count)
        able: Mask = held > jobs.min_available
        if whole:
            able |= ~np.bincount(of[alive & ~willing], minlength=len(jobs)).astype(np.bool_)
        return able
