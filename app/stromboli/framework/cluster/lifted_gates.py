"""Pods whose queue gate was lifted and that have no place yet: their queue keeps what they ask for from other pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Matrix, Rows, Vector
from stromboli.framework.cluster.job import NO_ROWS
from stromboli.framework.cluster.jobs import Jobs
from stromboli.state.pods import QUEUE_GATE, PodRecord
from stromboli.state.snapshot import Snapshot

_NOTHING: Mapping[str, Vector] = {}


def waits_for_queue(pod: PodRecord) -> bool:
    """Whether a pod's scheduling gates wait for nothing but its queue."""
    gates = [gate.name for gate in pod.pod_class.spec.scheduling_gates or ()]
    return gates == [QUEUE_GATE] and _asks_for_gate(pod)


class LiftedGates:
    """Gates that were lifted in earlier sessions, and in this one."""

    __slots__ = ("_before", "_jobs", "_pods", "_queues", "_requests", "found", "now")

    def __init__(
        self, snapshot: Snapshot, jobs: Jobs, queues: Sequence[str], requests: Callable[[Rows], Matrix], *, on: bool
    ) -> None:
        """`queues` are the names of all queues by index. Unless `on`, no gate was ever lifted."""
        self._pods = snapshot.pods
        self._jobs = jobs
        self._queues = queues
        self._requests = requests
        #: rows of the pods whose gate is lifted in this session
        self.now: set[int] = set()
        self._before = self._waiting(snapshot) if on else NO_ROWS
        #: whether any pod waits for what was lifted for it
        self.found = len(self._before) > 0

    def lift(self, row: int) -> None:
        """Take note that a pod's gate is lifted in this session."""
        self.now.add(row)
        self.found = True

    def beside(self, pod: PodRecord, count: int) -> Mapping[str, Vector]:
        """The requests of waiting pods, by queue name, without up to `count` pods like the given one."""
        if not self.found:
            return _NOTHING
        pods = self._pods
        rows = np.union1d(self._before, np.fromiter(self.now, np.intp))
        rows = rows[pods.state[rows] == PodState.Pending]
        if pod.row in rows:
            like = (pods.pod_class[rows] == pod.pod_class.id) & (pods.job[rows] == pods.job[pod.row])
            rows = np.delete(rows, np.flatnonzero(like)[:count])
        queues = self._jobs.queue[self._index(rows)]
        return {
            self._queues[queue]: self._requests(rows[queues == queue]).sum(axis=0)
            for queue in np.unique(queues).tolist()
        }

    def _waiting(self, snapshot: Snapshot) -> Rows:
        asked = snapshot.pod_facts.column("queue gate", lambda pod: _asks_for_gate(pod) or None).numbers >= 0
        if not asked.any():
            return NO_ROWS
        rows = np.flatnonzero(asked & (self._pods.state == PodState.Pending))
        rows = rows[self._index(rows) >= 0]
        gated = [bool(snapshot.classes[number].gated) for number in self._pods.pod_class[rows].tolist()]
        return rows[~np.array(gated, np.bool_)]

    def _index(self, rows: Rows) -> Rows:
        return self._jobs.membership.index_of[self._pods.job[rows]]


def _asks_for_gate(pod: PodRecord) -> bool:
    """Whether a pod has or had the gate by its own will, and so may lose it."""
    return bool(pod.annotations.get(QUEUE_GATE) == "true")
