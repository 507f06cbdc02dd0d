"""Borrowing: queues borrow capacity that is left over because shares do not divide into whole pods.

Two queues that each deserve half of a node cannot each have half of it if their pods request all of it. When every
waiting job is beyond its queue's share, the queue furthest below its share gets one more job. No pod is evicted for it,
and nodes for which a job waits within its share are left alone, since their capacity is not spare. A queue that has
promised a pod a place within its share does not borrow either: beyond the share it could not keep the promise.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import TOLERANCE, Mask, fits
from stromboli.framework.cluster.job import Job
from stromboli.framework.session.session import Session
from stromboli.placement.pending import PendingJob, pending_job, placeable
from stromboli.state.pods import PodRecord

#: tries to place the pods of a job on some nodes, as many as the job needs or none
Turn = Callable[[Job, PendingJob, Mask], object]


def borrow_leftover(session: Session, jobs: Iterable[Job], turn: Turn) -> None:
    """Give the queues furthest below their shares a job more, one after the other, while capacity is left.

    `jobs` are those that had their turns.
    """
    if session.ask.may_lend:
        _Borrowing(session, turn).run([job for job in jobs if job.counts[PodState.Pending]])


class _Borrowing:
    def __init__(self, session: Session, turn: Turn) -> None:
        self._session = session
        self._turn = turn
        #: the pods of each job that is considered that are still to be placed, in order
        self._left: dict[str, list[PodRecord]] = {}
        #: the kinds of pods to which nodes are left
        self._waited_for: set[Hashable] = set()

    def run(self, jobs: Sequence[Job]) -> None:
        session, possible = self._session, self._possible(jobs)
        if not possible:
            return
        borrowers: dict[str, list[Job]] = {}
        promised = self._with_promises()
        possible = [job for job in possible if job.queue.name not in promised]
        spare, unlike = self._not_promised(), list[Job]()
        for job in possible:
            within = self._is_within_share(job)
            if within is False:
                borrowers.setdefault(job.queue.name, []).append(job)
            elif within and len({pod.pod_class.id for pod in self._next(job)}) > 1:
                # Each kind of pod takes a look at all nodes.
                unlike.append(job)
            elif within and not self._leave_to(job, spare):
                # As a rule: a job that may go anywhere waits within its share.
                return
        if not borrowers:
            return
        known = {job.key for job in possible}
        others = (job for job in jobs if job.key not in known and self._is_within_share(job))
        if not (all(self._leave_to(job, spare) for job in (*unlike, *others)) and spare.any()):
            return
        for of_queue in borrowers.values():
            of_queue.sort(key=session.ask.job_key, reverse=True)
        heap = [(session.ask.queue_key(session.view.queues[name]), name) for name in borrowers]
        heapq.heapify(heap)
        while heap:
            _, name = heapq.heappop(heap)
            job = borrowers[name].pop()
            if session.attempt(job, partial(self._serve, job, spare), otherwise=False) and self._left[job.key]:
                borrowers[name].append(job)
            if borrowers[name]:
                heapq.heappush(heap, (session.ask.queue_key(session.view.queues[name]), name))

    def _possible(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs that have a pod that may fit on some node now."""
        view = self._session.view
        most = view.nodes.idle.max(axis=1, initial=0.0)
        grouped, job_of = view.membership.all_pending()
        small = (view.requests(grouped.rows) < most + TOLERANCE).all(axis=1)
        small &= view.pods.state[grouped.rows] == PodState.Pending
        possible = set(job_of[small].tolist())
        return [job for job in jobs if job.index in possible]

    def _with_promises(self) -> set[str]:
        """The queues that have promised a pod a place."""
        view = self._session.view
        rows = np.flatnonzero(view.pods.state == PodState.Pipelined).tolist()
        return {view.jobs[view.record(row).job].queue.name for row in rows}

    def _pods(self, job: Job) -> list[PodRecord]:
        """The pods of a job that are to be placed, in order."""
        if job.key not in self._left:
            self._left[job.key] = self._session.ask.in_task_order(placeable(self._session, job))
        return self._left[job.key]

    def _next(self, job: Job) -> list[PodRecord]:
        """The pods of a job's next turn: those it needs to become ready, or one more if it is ready."""
        left = self._pods(job)
        return left if job.divided else left[: max(1, self._session.ask.job_missing(job))]

    def _is_within_share(self, job: Job) -> bool | None:
        """Whether a job's next turn stays within its queue's share; None when a plugin fails for it."""
        return self._session.attempt(job, partial(self._within_share, job), otherwise=None)

    def _within_share(self, job: Job) -> bool:
        ask, queue = self._session.ask, job.queue
        if ask.overused(queue) is not None:
            return False
        pods = self._next(job)
        alike = {pod.pod_class.id: pod for pod in pods}
        counts = Counter(pod.pod_class.id for pod in pods)
        return all(ask.allocatable(queue, pod, counts[number])[0] >= counts[number] for number, pod in alike.items())

    def _not_promised(self) -> Mask:
        """The nodes that no pod was promised a place on, shape (nodes,)."""
        pods = self._session.view.pods
        spare = np.ones(len(self._session.view.nodes), np.bool_)
        spare[pods.node[pods.state == PodState.Pipelined]] = False
        return spare

    def _leave_to(self, job: Job, spare: Mask) -> bool:
        """Take the nodes for which a job waits from those that are spare; whether any are left."""
        session = self._session
        for pod in self._next(job):
            identity = session.kernel.identity(pod)
            if identity not in self._waited_for:
                self._waited_for.add(identity)
                may_use = session.kernel.feasible(pod, hopeful=True)
                spare &= ~(may_use & fits(session.view.request(pod), session.view.nodes.allocatable))
        return bool(spare.any())

    def _serve(self, job: Job, spare: Mask) -> bool:
        """One turn of a job beyond its queue's share; whether it got places."""
        session, pods = self._session, self._next(job)
        if session.ask.overused(job.queue) is not None or session.ask.lendable(job.queue, pods) is not None:
            return False
        held = job.ready_count
        with session.ask.beyond_shares():
            self._turn(job, pending_job(session, job, pods), spare)
        if job.ready_count == held:
            return False
        self._left[job.key] = [
            pod for pod in self._left[job.key] if session.view.pods.state[pod.row] == PodState.Pending
        ]
        return True
