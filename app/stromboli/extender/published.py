"""The last session, as whoever answers questions between sessions sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import fits
from stromboli.framework.explain import why, why_promised
from stromboli.framework.job import Job
from stromboli.framework.session import Session
from stromboli.framework.topology import has_topology
from stromboli.state.pods import PodRecord

#: states in which a pod has no node, or one that it may not go to yet
_WITHOUT_PLACE = frozenset((PodState.Pending, PodState.Allocated, PodState.Pipelined))


class Published:
    """A finished session and an index of its pods. Nothing in it changes: the next session makes another one."""

    __slots__ = ("_rows", "_running", "session")

    def __init__(self, session: Session, rows: Mapping[str, int]) -> None:
        """`rows` gives the row of each pod by key. It may be the state's own: what moved since is not found."""
        self.session = session
        self._rows = rows
        self._running: dict[str, PodRecord] | None = None

    def pod(self, key: str, uid: str) -> PodRecord | None:
        """A pod that the session saw; None when it is newer, or of the same name only."""
        row, records = self._rows.get(key, -1), self.session.view.pods.records
        record = records[row] if 0 <= row < len(records) else None
        return record if record is not None and record.uid == uid and record.key == key else None

    def job(self, pod: PodRecord) -> Job | None:
        """The job of a pod; None when its PodGroup or its queue does not exist."""
        return self.session.view.jobs.get(pod.job)

    def place(self, pod: PodRecord) -> str | None:
        """The node that a pod has or is to be bound to, decided in this session or before."""
        pods = self.session.view.pods
        node = int(pods.node[pod.row])
        return None if node < 0 or pods.state[pod.row] in _WITHOUT_PLACE else self.session.view.nodes.name(node)

    def why(self, pod: PodRecord) -> Reason:
        """Why a pod without a place has none."""
        pods, job = self.session.view.pods, self.job(pod)
        if pods.state[pod.row] == PodState.Pipelined:
            return why_promised(self.session.view, pod)
        return why(self.session, pod, job)

    def running(self) -> Mapping[str, PodRecord]:
        """The pods that hold a place and do not terminate, by uid."""
        if self._running is None:
            rows = np.flatnonzero(np.isin(self.session.view.pods.state, ALLOCATED_STATES))
            self._running = {pod.uid: pod for pod in self.session.view.records(rows)}
        return self._running

    def may_be_on(self, pod: PodRecord, node: str) -> bool:
        """Whether a pod may be on a node instead of the one that was decided, its room aside."""
        view, job = self.session.view, self.job(pod)
        row = view.nodes.facts.index.get(node)
        if row is None or job is None or has_topology(job):
            return False
        return bool(self.session.kernel.feasible(pod)[row])

    def may_evict(self, pod: PodRecord) -> bool:
        """Whether room is what a pod lacks: its job is whole, and no place waits for it."""
        job, session = self.job(pod), self.session
        if job is None or session.view.pods.state[pod.row] != PodState.Pending or pod.pod_class.gated:
            return False
        if job.key in session.view.never_fits or session.ask.closed(job.queue) is not None:
            return False
        return session.ask.job_valid(job) is None

    def affords(self, pod: PodRecord, victims: Sequence[PodRecord]) -> bool:
        """Whether a pod may have the room that others leave: it is admitted, or will be, and its queue may have it."""
        session, job = self.session, self.job(pod)
        if job is None:
            return False
        view, request = session.view, session.view.request(pod)
        given, of_queue = np.zeros(len(view.dimensions)), np.zeros(len(view.dimensions))
        for victim in victims:
            given += view.request(victim)
            other = view.jobs.get(victim.job)
            if other is not None and other.queue is job.queue:
                of_queue += view.request(victim)
        if job.pending_phase and not fits(request, given):
            return False
        if fits(request, of_queue):
            return True
        return session.ask.overused(job.queue) is None and session.ask.allocatable(job.queue, pod)[0] > 0

    def objection(self, pod: PodRecord) -> Reason | None:
        """Why a pod may have no node now, whichever it is; None when a node with room is all that it lacks."""
        session, job = self.session, self.job(pod)
        waits = session.view.pods.state[pod.row] != PodState.Pending
        if job is None or waits or pod.pod_class.gated or job.pending_phase or session.ask.job_missing(job) > 0:
            return self.why(pod)
        overused = session.ask.overused(job.queue)
        if overused is not None:
            return overused
        room, refusal = session.ask.allocatable(job.queue, pod)
        if room:
            room, refusal = session.ask.startable(job.queue, pod)
        return None if room else refusal or self.why(pod)
