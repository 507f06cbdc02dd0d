"""The last session, as answers between sessions read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from stromboli.api.pod_state import ALLOCATED_STATES, PodState
from stromboli.api.reasons import Reason
from stromboli.api.resources import Mask, Matrix, Rows, fits
from stromboli.extender.gang_fit import fits_whole, victims_on
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.diagnosis.explain import why
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord

#: states in which a pod has no node, or none that is available yet
_WITHOUT_PLACE = frozenset((PodState.Pending, PodState.Allocated, PodState.Pipelined))


class _Freed:
    """Amounts that victims free, by node; without `nodes`, all victims are on one node."""

    def __init__(self, session: Session, victims: Sequence[PodRecord], nodes: Rows | None = None) -> None:
        self._session = session
        self._victims = victims
        self.nodes = 1 if nodes is None else len(nodes)
        self._rows = np.array([victim.row for victim in victims], np.intp)
        self._on = np.zeros(len(victims), np.intp)
        if nodes is not None:
            column = np.full(len(session.view.nodes), -1, np.intp)
            column[nodes] = np.arange(len(nodes))
            self._on = column[session.view.pods.node[self._rows]]

    def of_all(self) -> Matrix:
        """The amounts of all victims, shape (dimensions, nodes)."""
        return self._sum(np.ones(len(self._victims), np.bool_))

    def of_queue(self, queue: Queue) -> Matrix:
        """The amounts of victims in a queue, shape (dimensions, nodes)."""
        jobs = map(self._session.view.jobs.get, (victim.job for victim in self._victims))
        return self._sum(np.array([job is not None and job.queue is queue for job in jobs], np.bool_))

    def _sum(self, which: Mask) -> Matrix:
        out = np.zeros((self.nodes, len(self._session.view.dimensions)))
        np.add.at(out, self._on[which], self._session.view.requests(self._rows[which]))
        return out.T


class Published:
    """A finished session and an index of its pods. Immutable: the next session is published as a new object."""

    __slots__ = ("_gangs", "_rows", "_running", "session")

    def __init__(self, session: Session, rows: Mapping[str, int]) -> None:
        """`rows` maps keys of pods to rows. It may be the state's own; pods that have changed since are not found."""
        self.session = session
        self._rows = rows
        self._running: dict[str, PodRecord] | None = None
        #: whether a gang can fit after evictions, by key and priority of the pod
        self._gangs: dict[tuple[str, int], bool] = {}

    def pod(self, key: str, uid: str) -> PodRecord | None:
        """A pod that the session saw; None if it is newer or was replaced."""
        row, records = self._rows.get(key, -1), self.session.view.pods.records
        record = records[row] if 0 <= row < len(records) else None
        return record if record is not None and record.uid == uid and record.key == key else None

    def job(self, pod: PodRecord) -> Job | None:
        """The job of a pod; None if its PodGroup or its queue does not exist."""
        return self.session.view.jobs.get(pod.job)

    def place(self, pod: PodRecord) -> str | None:
        """The node that a pod is or will be bound to, decided in this session or before."""
        pods = self.session.view.pods
        node = int(pods.node[pod.row])
        return None if node < 0 or pods.state[pod.row] in _WITHOUT_PLACE else self.session.view.nodes.name(node)

    def why(self, pod: PodRecord) -> Reason:
        """Why an unplaced pod is not placed."""
        return why(self.session, pod, self.job(pod))

    def running(self) -> Mapping[str, PodRecord]:
        """The placed pods that are not terminating, by uid."""
        if self._running is None:
            rows = np.flatnonzero(np.isin(self.session.view.pods.state, ALLOCATED_STATES))
            self._running = {pod.uid: pod for pod in self.session.view.records(rows)}
        return self._running

    def may_be_on(self, pod: PodRecord, node: str) -> bool:
        """Whether a pod may run on another node than the decided one, resources aside."""
        view, job = self.session.view, self.job(pod)
        row = view.nodes.facts.index.get(node)
        if row is None or job is None or has_topology(job):
            return False
        return bool(self.session.kernel.feasible(pod)[row])

    def gang_can_fit(self, pod: PodRecord) -> bool:
        """Whether a pod and all other members of its gang fit after the evictions that are possible for them."""
        job, key = self.job(pod), (pod.job, pod.spec_priority or 0)
        if job is None:
            return True
        if key not in self._gangs:
            self._gangs[key] = fits_whole(self.session, job, pod)
        return self._gangs[key]

    def may_evict(self, pod: PodRecord) -> bool:
        """Whether a pod only lacks resources: its gang is complete and can fit as a whole, and no node is promised
        to the pod."""
        job, session = self.job(pod), self.session
        if job is None or session.view.pods.state[pod.row] != PodState.Pending or pod.pod_class.gated:
            return False
        if job.key in session.view.never_fits or session.ask.shut(job) is not None:
            return False
        return session.ask.job_valid(job) is None and self.gang_can_fit(pod)

    def is_served_by(self, pod: PodRecord, node: str) -> bool:
        """Whether the node that kube-scheduler has cleared for a pod takes it as soon as its gang starts.

        More victims would be in vain: kube-scheduler looks for them each time that such a node is refused.
        """
        job, row = self.job(pod), self.session.view.nodes.facts.index.get(node)
        if job is None or row is None:
            return False
        nodes, free = self.session.view.nodes, self.session.view.nodes.future_idle(row)
        for nomination in self.session.keeper.nominated(job):
            if nomination.node == row and (nomination.row == pod.row or nomination.job != job.key):
                free += nomination.request
        fitting = fits(self.session.view.request(pod), free, nodes.always) and self.session.kernel.feasible(pod)[row]
        return bool(fitting) and bool(self._within_share(pod, job, _Freed(self.session, ()))[0])

    def rows(self, names: Sequence[str]) -> Rows:
        """The rows of nodes, -1 for those that the session did not know."""
        return np.fromiter(map(self.session.view.nodes.facts.index.get, names, repeat(-1)), np.intp, len(names))

    def clearable(self, pod: PodRecord, nodes: Rows, *, in_part: bool = False) -> Mask:
        """On which nodes, given by row, evictions of less important pods would let a pod in, shape (nodes,): then it
        would fit there and be allowed to, and now it is not.

        With `in_part` gangs might lose only those of their pods that are on the node.
        """
        view, out = self.session.view, np.zeros(len(nodes), np.bool_)
        known = np.flatnonzero(nodes >= 0)
        if not len(known) or pod.pod_class.spec.preemption_policy == "Never" or not self.may_evict(pod):
            return out
        request, idle = view.request(pod), view.nodes.idle[:, nodes[known]]
        victims = victims_on(self.session, pod.spec_priority or 0, nodes[known], in_part=in_part)
        freed = _Freed(self.session, victims, nodes[known])
        now = fits(request, idle, view.nodes.always) & self.affords(pod, ())
        then = fits(request, idle + freed.of_all(), view.nodes.always) & self._affords(pod, freed)
        out[known] = then & ~now & self.session.kernel.feasible(pod)[nodes[known]]
        return out

    def affords(self, pod: PodRecord, victims: Sequence[PodRecord]) -> bool:
        """Whether a pod may use the amounts that victims on one node free."""
        return bool(self._affords(pod, _Freed(self.session, victims))[0])

    def _affords(self, pod: PodRecord, freed: _Freed) -> Mask:
        """Mask of nodes where a pod may use freed amounts: it is or will be admitted, and its queue can allocate it."""
        job = self.job(pod)
        if job is None:
            return np.zeros(freed.nodes, np.bool_)
        may = self._within_share(pod, job, freed)
        return may & fits(self.session.view.request(pod), freed.of_all()) if job.pending_phase else may

    def _within_share(self, pod: PodRecord, job: Job, freed: _Freed) -> Mask:
        """Mask of nodes where the queue of a pod can allocate it once the victims there have gone."""
        may: Mask = fits(self.session.view.request(pod), freed.of_queue(job.queue))
        if not may.all() and self.session.ask.overused(job.queue) is None:
            may |= self.session.ask.allocatable(job.queue, pod)[0] > 0
        return may

    def objection(self, pod: PodRecord) -> Reason | None:
        """Why no node is available to a pod now; None if it only lacks a node with enough resources."""
        session, job = self.session, self.job(pod)
        waits = session.view.pods.state[pod.row] != PodState.Pending
        if job is None or waits or pod.pod_class.gated or job.pending_phase or session.ask.job_missing(job) > 0:
            return self.why(pod)
        overused = session.ask.overused(job.queue)
        if overused is not None:
            return overused
        allowed, refusal = session.ask.allocatable(job.queue, pod)
        if allowed:
            allowed, refusal = session.ask.startable(job.queue, pod)
        return None if allowed else refusal or self.why(pod)
