"""The earliest time at which the pods of a gang fit, given when running jobs end.

Amounts have the shape (dimensions, nodes). A place is an amount on a node that passes the pod's selector, affinity and
tolerations; rules between pods are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.state.pods import PodRecord

_ON_NODES = (PodState.Binding, PodState.Bound, PodState.Running, PodState.Releasing)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Identical pods of a gang."""

    request: Vector
    count: int
    #: which nodes they may be on
    nodes: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Earliest:
    """Earliest time at which a gang fits, and its places."""

    #: seconds since the epoch
    time: float
    #: amounts that it takes
    taken: Matrix
    #: the amounts left free next to it then, if nothing else is placed before
    spare: Matrix


class Ends:
    """The amounts that become free as jobs end, and when."""

    def __init__(self, view: View, ends: Vector) -> None:
        """`ends` has the time at which each job is over, shape (jobs,); infinite where that is not known."""
        pods = view.pods
        rows = np.flatnonzero((pods.node >= 0) & np.isin(pods.state, _ON_NODES))
        jobs = view.membership.index_of[pods.job[rows]]
        over = np.where(jobs >= 0, ends[jobs] if len(ends) else np.inf, np.inf)
        terminating = pods.state[rows] == PodState.Releasing
        self._over = np.where(terminating, -np.inf, over)
        self._nodes = pods.node[rows]
        self._amounts = view.amounts(rows)
        self._free = view.nodes.allocatable - view.nodes.used
        #: the times at which something becomes free, ascending
        self.times = np.unique(self._over[np.isfinite(self._over)])

    def free(self, time: float) -> Matrix:
        """The amounts free at a time, if nothing else is placed before."""
        gone = self._over <= time
        nodes, width = self._nodes[gone], self._free.shape[1]
        back = [np.bincount(nodes, weights=amounts[gone], minlength=width) for amounts in self._amounts]
        free: Matrix = self._free + np.array(back).reshape(self._free.shape)
        return free

    def earliest(self, demands: Sequence[Demand], now: float) -> Earliest | None:
        """Earliest time at which the pods of a gang fit, None if not even after all known ends."""
        times = [now, *self.times[self.times > now].tolist()]
        low, high = 0, len(times) - 1
        if _places(self.free(times[high]), demands) is None:
            return None
        while low < high:
            middle = (low + high) // 2
            if _places(self.free(times[middle]), demands) is None:
                low = middle + 1
            else:
                high = middle
        free = self.free(times[low])
        taken = _places(free, demands)
        assert taken is not None
        return Earliest(times[low], taken, free - taken)


def _places(free: Matrix, demands: Sequence[Demand]) -> Matrix | None:
    """The amounts that the pods take on each node, filling the nodes with most room first; None if they do not fit."""
    taken = np.zeros_like(free)
    for demand in demands:
        asked = np.flatnonzero(demand.request)
        left = free[asked] - taken[asked] + TOLERANCE
        room = np.floor((left / demand.request[asked, None]).min(axis=0)).clip(0, demand.count)
        room[~demand.nodes] = 0
        # More than it needs is as good as enough, so that the choice stands when others take what is left over.
        order = np.argsort(-room, kind="stable")
        before = np.cumsum(room[order]) - room[order]
        given = np.clip(demand.count - before, 0, room[order])
        if given.sum() < demand.count:
            return None
        taken[:, order] += demand.request[:, None] * given
    return taken


def demands_of(view: View, job: Job, passing: Callable[[PodRecord], Mask]) -> list[Demand]:
    """The pods that a job lacks to start, the largest first; `passing` says which nodes one may be on."""
    missing = max(job.min_available - job.ready_count, 1)
    kinds: dict[int, list[PodRecord]] = {}
    for pod in view.pending(job)[:missing]:
        kinds.setdefault(pod.pod_class.id, []).append(pod)
    made = [Demand(view.request(pods[0]), len(pods), passing(pods[0])) for pods in kinds.values()]
    total = np.maximum(view.total, 1.0)
    return sorted(made, key=lambda demand: -float((demand.request / total).max()))
