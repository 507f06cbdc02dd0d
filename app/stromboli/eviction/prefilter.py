"""The pods that may be evicted at most, by columns of pods, gangs and plugins, before single pods are judged."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Vector, compared
from stromboli.eviction.context import PreemptionContext
from stromboli.eviction.units import above_minimum
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
        pod_index = self._pod_index
        alive = pod_index.alive()
        willing = alive & pod_index.willing & self._context.giving(self._pod)
        pods = self._session.ask.evictable_pods(self._context.point, pod_index.rows)
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
        able = above_minimum(self._session.view.jobs)
        if whole:
            able |= ~np.bincount(self._pod_index.job[alive & ~willing], minlength=len(able)).astype(np.bool_)
        return able
