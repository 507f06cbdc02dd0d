"""Repairs what a former leader left behind when it was interrupted during its bindings.

A request in flight cannot be recalled. Such a binding may arrive after the next leader has given the resources to
another pod, and a gang may be partially bound. For a while after a change of leader, overcommitted nodes and partial
gangs are looked for. Only pods of ours that were bound recently are evicted: from an overcommitted node the latest
ones, until it fits; and of a gang that sessions could not complete, all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.decisions import Evict
from stromboli.api.pod_state import ALLOCATED_STATES, ON_NODE_STATES, READY_STATES, PodState
from stromboli.api.words import counted
from stromboli.live.binding.evictor import Evictor
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger
from stromboli.live.reporting.events import Events, about_pod, about_pod_group
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord, seconds

log = Logger(__name__)

#: duration of the search, and its interval, in seconds
_LASTS = 30.0
_PERIOD = 1.0
#: bindings older than this many seconds before the change of leader were not in flight; where leaders changed before
#: they came to the end of their repairs, before the first of these changes
_LATELY = 60.0
#: seconds that sessions get to complete a gang before it is evicted
_PATIENCE = 5.0


class Takeover:
    """Runs once, at the beginning of a term."""

    def __init__(
        self, state: ClusterState, events: Events, evictor: Evictor, observer: Observer, since: float | None = None
    ) -> None:
        """`since`, in seconds since the epoch, no leader came to the end of this."""
        self._since = since
        self._state = state
        self._events = events
        self._evictor = evictor
        self._observer = observer
        #: partially bound gangs, and when their time is over
        self._begun: dict[str, float] = {}
        #: excess pods of the last look
        self._too_many: set[str] = set()
        #: keys of evicted pods
        self._evicted: set[str] = set()

    async def run(self) -> None:
        """Look and repair until nothing more is expected."""
        began, end = time.time(), time.monotonic() + _LASTS
        since = (began if self._since is None else min(began, self._since)) - _LATELY
        while time.monotonic() < end or self._begun:
            self._relieve_nodes(since)
            self._complete_gangs(since, began)
            await asyncio.sleep(_PERIOD)

    def _relieve_nodes(self, since: float) -> None:
        """An excess that is seen only once may be a binding of ours about to be refused, or a pod about to end."""
        found = list(overcommitting(self._state, since))
        for record in found:
            if record.uid in self._too_many:
                why = f"node {record.node_name} was overcommitted while the leader changed"
                self._evict(record, "NodeOvercommitted", why)
        self._too_many = {record.uid for record in found}

    def _complete_gangs(self, since: float, began: float) -> None:
        """Sessions place partial gangs first. Of those that they could not complete, the smallest is evicted."""
        now, begun = time.monotonic(), {group.key: pods for group, pods in begun_gangs(self._state, since, began)}
        for key in begun.keys() - self._begun.keys():
            self._tell(key, len(begun[key]))
        self._begun = {key: self._begun.get(key, now + _PATIENCE) for key in begun}
        late = [key for key, until in self._begun.items() if until <= now]
        if late:
            least = min(late, key=lambda key: (len(begun[key]), key))
            for record in begun[least]:
                self._evict(record, "GangIncomplete", f"the rest of gang {least} cannot be scheduled")
            self._begun = {key: now + _PATIENCE for key in self._begun if key != least}

    def _tell(self, key: str, bound: int) -> None:
        group = self._state.pod_group(key)
        assert group is not None
        of = counted(group.spec.min_member, "pod")
        note = f"{bound} of {of} were bound when the leader changed; scheduling the rest first"
        self._events.emit(about_pod_group(group), "Warning", "GangIncomplete", note, "TakingOver")
        self._observer.mended("gang")
        log.warning("gang incomplete", job=key, queue=group.queue, bound=bound, needed=group.spec.min_member)

    def _evict(self, record: PodRecord, reason: str, why: str) -> None:
        if record.uid in self._evicted:
            return
        self._evicted.add(record.uid)
        self._events.emit(about_pod(record), "Warning", reason, why, "TakingOver")
        self._observer.mended("pod")
        log.warning("evicting after a change of leader", pod=record.key, job=record.job, node=record.node_name, why=why)
        self._evictor.evict([Evict(record.namespace, record.name, record.uid, record.node_name, "takeover")])


def overcommitting(state: ClusterState, since: float) -> Iterator[PodRecord]:
    """The pods that overcommit their nodes, the most recently bound ones of each node.

    Only pods that the service bound after `since`, in seconds since the epoch, and none if those do not suffice to make
    the node fit. kube-scheduler has its own view of free resources: if it chose another node than was decided, a node
    only seems overcommitted until that decision is revised.
    """
    nodes, pods = state.nodes, state.pods
    # A resource that the node does not have at all was not given twice.
    excess = np.where(nodes.allocatable > 0, nodes.used - nodes.releasing - nodes.allocatable, 0.0)
    for row in np.flatnonzero((excess > 0).any(axis=0)).tolist():
        left, victims = excess[:, row].copy(), []
        on_node = np.flatnonzero((pods.node[: pods.size] == row) & np.isin(pods.state[: pods.size], ALLOCATED_STATES))
        for record in _bound_since(state, on_node.tolist(), since):
            if record.scheduler_name not in state.scheduler_names:
                continue
            request = state.classes.request(record.pod_class)
            if (request[left > 0] > 0).any():
                left -= request
                victims.append(record)
        if (left <= 0).all():
            yield from victims


def begun_gangs(state: ClusterState, since: float, began: float) -> Iterator[tuple[PodGroup, list[PodRecord]]]:
    """Gangs with fewer bound pods than they need, though enough exist, and their bound pods.

    All bound pods must be ours and bound after `since`, and not all of them by this replica, which leads since `began`;
    other gangs were running and lost pods.
    """
    pods = state.pods
    states, jobs = pods.state[: pods.size], pods.job[: pods.size]
    held = np.bincount(jobs[np.isin(states, READY_STATES) & (jobs >= 0)], minlength=len(state.jobs.pod_groups))
    waiting = np.bincount(jobs[(states == PodState.Pending) & (jobs >= 0)], minlength=len(state.jobs.pod_groups))
    for job in np.flatnonzero((held > 0) & (waiting > 0)).tolist():
        group = state.jobs.pod_groups[job]
        if group is None or not held[job] < group.spec.min_member <= held[job] + waiting[job]:
            continue
        members = np.flatnonzero((jobs == job) & np.isin(states, (*ON_NODE_STATES, *READY_STATES))).tolist()
        lately = list(_bound_since(state, members, since))
        if len(lately) == len(members) and _bound_at(lately[-1]) <= began:
            yield group, lately


def _bound_since(state: ClusterState, rows: list[int], since: float) -> Iterator[PodRecord]:
    """Our pods, of some, that were bound after a time, the latest first."""
    records = (state.pods.records[row] for row in rows)
    ours = [record for record in records if record is not None and _is_ours(state, record)]
    lately = [record for record in ours if _bound_at(record) > since]
    yield from sorted(lately, key=lambda record: (_bound_at(record), record.created, record.key), reverse=True)


def _is_ours(state: ClusterState, record: PodRecord) -> bool:
    """Whether sessions decide where a pod goes, also where kube-scheduler binds it."""
    if record.scheduler_name in state.extender_scheduler_names:
        return bool(record.job)
    return record.scheduler_name in state.scheduler_names


def _bound_at(record: PodRecord) -> float:
    """Time when the API server accepted the binding, in seconds since the epoch, 0 if it is not bound."""
    conditions = (c for c in record.conditions if c.type == "PodScheduled" and c.status == "True")
    return max((seconds(condition.last_transition_time) for condition in conditions), default=0.0)
