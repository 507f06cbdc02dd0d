"""Reservations of a session: places for which pods were evicted or moved, and nominated nodes.

Between an eviction and the end of its victims other pods would take what they free, and more pods would be evicted for
it. The replacement of a moved pod arrives some time later and perhaps first in order. So a reserved place counts as
taken from the start of a session, whatever the order of actions, until its pod has it: see `placement/reservations.py`.
A reservation ends when its pods are bound or gone, its places are lost, or it expires.

Nodes that kube-scheduler nominated for pods that it binds are reserved in the same way: it evicted others there for
them, and lets only pods of a higher priority have that capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Rows, Vector, fits
from stromboli.framework.cluster.job import NO_ROWS, Job
from stromboli.framework.cluster.nodes import NodeLedger
from stromboli.framework.cluster.reservation import Place, Reservation
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.state.pods import PodRecord

_WAITING = (PodState.Allocated, PodState.Pipelined)
#: number of a queue's jobs that may take over what was reserved for less important ones
_MOST_OUTRANKING = 64


@dataclass(frozen=True, slots=True)
class Nomination:
    """The node that kube-scheduler nominated for a pod that it binds, as an index."""

    row: int
    job: str
    priority: int
    node: int
    request: Vector


class Keeper:
    """The reservations of a session, by key of the job."""

    def __init__(self, view: View, nodes: NodeLedger) -> None:
        """Take over the reservations of earlier sessions that are still valid; their jobs count as admitted."""
        self._view = view
        self._nodes = nodes
        self.reservations: dict[str, Reservation] = {}
        #: which of these places each waiting pod has, by row, and the places whose pods have not come back yet
        self.taken: dict[str, Mapping[int, Place]] = {}
        self.absent: dict[str, Sequence[Place]] = {}
        #: amounts reserved for places that no pod has yet, as indices of nodes with amounts
        self._held: dict[str, list[tuple[int, Vector]]] = {}
        #: the places that this session reserves, where pods were moved
        self._made: dict[str, Reservation] = {}
        #: nodes that are kept for pods that kube-scheduler binds
        self.nominations = list(self._nominated()) if view.snapshot.bound_elsewhere else []
        #: those that count as taken now
        self._counted: list[Nomination] = []
        self._count(self.nominations)
        for key, reservation in view.environment.reservations.items():
            job = view.jobs.get(key)
            if job is None or job.pod_group.metadata.uid != reservation.uid or not reservation.stands(view.time()):
                continue
            self.reservations[key] = reservation
            self._hold(key, reservation.places)
            if job.pending_phase:
                job.phase = "Inqueue"
            self.taken[key], self.absent[key] = self._match(job, reservation)
        self._count_absent()

    # -- reservations ------------------------------------------------------------------------------------------------

    def release(self, key: str) -> None:
        """Count the places of a job as free, for pods to take."""
        for node, request in self._held.pop(key, ()):
            self._nodes.promise(node, request, (0.0, 0.0), -1)

    def hold(self, key: str) -> None:
        """Count the places of a job as taken again."""
        self._hold(key, self.reservations[key].places)

    def go_on(self, key: str, places: Sequence[Place]) -> None:
        """Reserve these places of those that a job had; places promised to a pod count as taken by it."""
        if places:
            self.reservations[key] = replace(self.reservations[key], places=tuple(places))
            self._hold(key, [place for place in places if not place.pod])
        else:
            del self.reservations[key]

    def _hold(self, key: str, places: Sequence[Place]) -> None:
        """Count places as taken; those on nodes that are gone are none."""
        index = self._view.nodes.facts.index
        self._held[key] = held = [(index[p.node], self.amounts(p.request)) for p in places if p.node in index]
        for node, request in held:
            self._nodes.promise(node, request, (0.0, 0.0), 1)

    def _match(self, job: Job, reservation: Reservation) -> tuple[Mapping[int, Place], Sequence[Place]]:
        """The places of waiting pods, by row, and those for pods that have not come back: no more than are missing."""
        there = [place for place in reservation.places if place.node in self._view.nodes.facts.index]
        named = {place.pod: place for place in there if place.pod}
        returning = [place for place in there if not place.pod]
        missing = min(len(returning), max(0, reservation.complete - job.allocated_count))
        absent, taken = returning[len(returning) - missing :], dict[int, Place]()
        for pod in self._view.pending(job):
            if not pod.pod_class.gated:
                place = named.get(pod.uid) or self._large_enough(pod, absent)
                if place is not None:
                    taken[pod.row] = place
                    if not place.pod:
                        absent.remove(place)
        return taken, absent

    def _large_enough(self, pod: PodRecord, places: Sequence[Place]) -> Place | None:
        """The first place reserved for exactly this request, else the first that is large enough."""
        request = self._view.request(pod)
        large = [place for place in places if fits(request, self.amounts(place.request))]
        same = (place for place in large if (self.amounts(place.request) == request).all())
        return next(same, next(iter(large), None))

    def _count_absent(self) -> None:
        """Count places kept for moved pods that have not come back as held and requested by their jobs.

        Otherwise other jobs would use up their queues' shares first. It is as if these pods were promised a place:
        none of it is in use yet.
        """
        view = self._view
        waited_for = {key: places for key, places in self.absent.items() if places}
        if not waited_for:
            return
        amounts = np.zeros_like(view.job_allocated)
        for key, places in waited_for.items():
            job = view.jobs[key]
            if not view.shut[job.index]:
                amounts[job.index] = sum(self.amounts(place.request) for place in places)
        view.job_allocated, view.job_requested = view.job_allocated + amounts, view.job_requested + amounts
        for key in waited_for:
            view.jobs[key].allocated = view.job_allocated[view.jobs[key].index]
        if view.rules.terminating:
            of_jobs, of_queues = view.job_terminating, view.terminating
            view.job_terminating = (0.0 if of_jobs is None else of_jobs) - amounts
            view.terminating = (0.0 if of_queues is None else of_queues) - view.jobs.by_queue(amounts)

    def reserve(self, job: Job, places: Sequence[Place], until: float) -> None:
        """Reserve places for pods of a job from the next session on."""
        complete = job.allocated_count + job.waiting_count
        uid, passed = job.pod_group.metadata.uid, self.outranking(job.queue.index, job.priority)
        self._made[job.key] = Reservation(
            uid, tuple(places), self._view.time(), until, complete, tuple(self._view.jobs.keys_of(passed))
        )

    def reserve_promised(self, operations: Iterable[Operation], keep: float) -> None:
        """Reserve all promised places for `keep` seconds, those of pods that move for the ones that replace them."""
        by_job: dict[str, tuple[Job, list[Place]]] = {}
        for operation in operations:
            if operation.kind is Kind.Pipeline and operation.job is not None:
                _, places = by_job.setdefault(operation.job.key, (operation.job, []))
                places.append(self.place(operation.pods[0], operation.nodes[0], replaced=operation.origin >= 0))
        for job, places in by_job.values():
            self.reserve(job, places, self._view.time() + keep)

    def outranking(self, queue: int, priority: int) -> Rows:
        """The most important jobs of a queue that wait and are above a priority, as indices."""
        jobs = self._view.jobs
        above = (jobs.queue == queue) & (jobs.priority > priority)
        if not above.any():
            return NO_ROWS
        pending = jobs.now(jobs.count(PodState.Pending), lambda job: job.counts[PodState.Pending])
        found = np.flatnonzero(above & (pending > 0))
        most: Rows = found[np.argsort(-jobs.priority[found], kind="stable")][:_MOST_OUTRANKING]
        return most

    def reserves(self, job: Job) -> bool:
        """Whether places are reserved for a job, or will be."""
        return job.key in self.reservations or job.key in self._made

    def place(self, pod: PodRecord, node: int, *, replaced: bool = False) -> Place:
        """A node as the place of a pod, or of the one that replaces it."""
        view = self._view
        request = dict(zip(view.dimensions, view.request(pod).tolist(), strict=True))
        return Place(view.nodes.name(node), request, "" if replaced else pod.uid)

    def after_session(self, promised: Iterable[int], keep: float) -> Mapping[str, Reservation]:
        """The reservations for the next session: places stay reserved until their pods are bound.

        `promised` are the rows of pods that wait for victims of this session. All that their jobs were promised is
        reserved for `keep` seconds.
        """
        view = self._view
        after = {}
        for key, reservation in self.reservations.items():
            waiting = {pod.uid for pod in self._waiting(view.jobs[key])}
            places = tuple(place for place in reservation.places if not place.pod or place.pod in waiting)
            if places:
                after[key] = replace(reservation, places=places)
        for key in sorted({view.record(row).job for row in promised}) if keep > 0 else ():
            if key not in self._made:
                job = view.jobs[key]
                places = tuple(self.place(pod, int(view.pods.node[pod.row])) for pod in self._waiting(job))
                returning = [place for place in after[key].places if not place.pod] if key in after else []
                self.reserve(job, (*places, *returning), view.time() + keep)
        return after | self._made

    def _waiting(self, job: Job) -> list[PodRecord]:
        """The pods of a job that have a place and are not bound."""
        states = self._view.pods.state
        return [pod for pod in self._view.members(job) if states[pod.row] in _WAITING]

    def amounts(self, of: Mapping[str, float]) -> Vector:
        """Amounts by resource in this session's dimensions."""
        return np.array([of.get(name, 0.0) for name in self._view.dimensions])

    # -- nominations -------------------------------------------------------------------------------------------------

    def bars(self, job: Job) -> bool:
        """Whether something is kept that a job may have."""
        return any(self._may_have(job, each) for each in self.nominations)

    def nominated(self, job: Job) -> list[Nomination]:
        """The nominations that count as taken and that a job may have: those of its pods and of less important ones."""
        return [each for each in self._counted if self._may_have(job, each)]

    def lift(self, job: Job) -> None:
        """Free the nodes nominated for a job's pods, and for less important pods, so that the job can have them."""
        for each in self.nominated(job):
            self._nodes.promise(each.node, each.request, (0.0, 0.0), -1)
            self._counted.remove(each)

    def restore(self) -> None:
        """Count nominations again; places promised to these pods are taken."""
        counted = {each.row for each in self._counted}
        self._count([each for each in self.nominations if each.row not in counted])

    def _nominated(self) -> Iterator[Nomination]:
        """The nominations of pods that kube-scheduler binds and that wait."""
        view, index = self._view, self._view.nodes.facts.index
        names = view.snapshot.bound_elsewhere
        column = view.snapshot.pod_facts.column(
            "nominated by kube-scheduler",
            lambda pod: (pod.nominated_node or None) if pod.scheduler_name in names else None,
        )
        if not column.by_value:
            return
        for row in np.flatnonzero((column.numbers >= 0) & (view.pods.state == PodState.Pending)).tolist():
            pod = view.record(row)
            node = index.get(pod.nominated_node)
            if node is not None:
                yield Nomination(row, pod.job, pod.spec_priority or 0, node, view.request(pod))

    def _may_have(self, job: Job, nomination: Nomination) -> bool:
        return nomination.job == job.key or nomination.priority < job.priority

    def _count(self, nominations: Sequence[Nomination]) -> None:
        """Count nominations of pods that still wait as taken."""
        for each in nominations:
            if self._view.pods.state[each.row] == PodState.Pending:
                self._nodes.promise(each.node, each.request, (0.0, 0.0), 1)
                self._counted.append(each)
