"""A scheduler small enough to know what it does: gangs, oldest first, on the first nodes with room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stromboli.api.crds import PodGroup, PodGroupCondition, PodGroupStatus
from stromboli.api.decisions import Bind, Decision, Evict, SetPodGroupStatus, SetQueueStatus
from stromboli.api.pod_state import PodState
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

_PLACED = (PodState.Binding, PodState.Bound, PodState.Running)


@dataclass(slots=True)
class Decisions:
    """What one session decided."""

    decisions: list[Decision] = field(default_factory=list)
    conclusive: bool = False
    again_at: float = math.inf
    unfinished: bool = False
    put_off: Sequence[str] = ()


class FirstFit:
    """Knows no queues but counts the pods in each."""

    queue_rules: Sequence[QueueRule] = ()

    def __init__(self, policy: str | None = None) -> None:
        self.policy = policy
        self.sessions = 0
        #: pods (NAMESPACE/NAME) to evict when they run
        self.victims: set[str] = set()
        self.fail = False
        #: further decisions of every session
        self.more: list[Decision] = []

    def decide(self, snapshot: Snapshot, *, now: float) -> Decisions:
        self.sessions += 1
        if self.fail:
            raise RuntimeError("told to fail")
        out = Decisions([*self.more])
        room = snapshot.nodes.allocatable - snapshot.nodes.used
        in_queues: dict[str, int] = dict.fromkeys(snapshot.queues, 0)
        for row, group in enumerate(snapshot.pod_groups):
            if group is not None:
                members = np.flatnonzero(snapshot.pods.job == row).tolist()
                placed = self._gang(snapshot, group, members, room, out)
                in_queues[group.spec.queue] = in_queues.get(group.spec.queue, 0) + placed
        for record in snapshot.pods.records:
            running = record is not None and snapshot.pods.state[record.row] == PodState.Running
            if record is not None and running and record.key in self.victims:
                out.decisions.append(Evict(record.namespace, record.name, record.uid, record.node_name, "preempt"))
        for name, queue in snapshot.queues.items():
            amounts = {"pods": str(in_queues[name])} if in_queues[name] else {}
            if amounts != dict(queue.status.allocated):
                out.decisions.append(SetQueueStatus(name, amounts))
        return out

    def _gang(self, snapshot: Snapshot, group: PodGroup, rows: list[int], room: np.ndarray, out: Decisions) -> int:
        """Bind the pending pods of a group if enough of them fit; returns how many pods then have a node."""
        states = [PodState(int(snapshot.pods.state[row])) for row in rows]
        placed = sum(state in _PLACED for state in states)
        tried, binds = room.copy(), []
        for row, state in zip(rows, states, strict=True):
            record = snapshot.pods.records[row]
            if state == PodState.Pending and record is not None:
                node = self._first(snapshot, record, tried)
                if node is not None:
                    binds.append(Bind(record.namespace, record.name, record.uid, node))
        if placed + len(binds) >= group.spec.min_member:
            room[:] = tried
            out.decisions.extend(binds)
            placed += len(binds)
        ready = placed >= group.spec.min_member
        condition = PodGroupCondition(
            type="Scheduled" if ready else "Unschedulable",
            status="True",
            reason="Ready" if ready else "NotEnoughResources",
            transition_id=str(self.sessions),
        )
        running = states.count(PodState.Running)
        status = PodGroupStatus(
            phase="Running" if running and ready else "Inqueue", conditions=[condition], running=running
        )
        old = group.status
        if (status.phase, running, [condition.type]) != (
            old.phase,
            old.running,
            [c.type for c in old.conditions],
        ):
            out.decisions.append(SetPodGroupStatus(group.metadata.namespace, group.metadata.name, status))
        return placed

    def _first(self, snapshot: Snapshot, pod: PodRecord, room: np.ndarray) -> str | None:
        request = snapshot.requests[pod.pod_class.id, : len(room)]
        fitting = np.flatnonzero((room >= request[:, None]).all(axis=0))
        if not len(fitting):
            return None
        room[:, fitting[0]] -= request
        return snapshot.nodes.facts.records[int(fitting[0])].name
