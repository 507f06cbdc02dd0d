"""Places that are kept from session to session: for pods that were moved, and for those that they made room for.

An evicted pod comes back as another one, some time later and perhaps first in order. If each pod took what it likes
best then, the place that was made could be gone, and another pod would have to move again. So what was promised counts
as taken for all jobs but its own, until the pods have come, or until it was kept long enough.

The same holds for nodes that kube-scheduler nominated for pods that it binds: it evicted others there for them, and
lets only pods of a higher priority have that room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.framework.job import Job
from stromboli.framework.kept import KeptPlaces
from stromboli.framework.nodes import NodeLedger
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord


@dataclass(frozen=True, slots=True)
class _Nomination:
    """The node that kube-scheduler nominated for a pod that it binds, as an index."""

    row: int
    job: str
    priority: int
    node: int
    request: Vector


class Keeper:
    """What is kept in a session; jobs are looked up by key."""

    def __init__(self, view: View, nodes: NodeLedger) -> None:
        """Keep what the sessions before kept, as far as it still makes sense; a job that has places is admitted."""
        self._view = view
        self._nodes = nodes
        self.kept: dict[str, KeptPlaces] = {}
        #: what counts as taken now, as indices of nodes with amounts
        self._reserved: dict[str, Sequence[tuple[int, Vector]]] = {}
        #: nodes that are kept for pods that kube-scheduler binds
        self.nominations = list(self._nominated()) if view.snapshot.bound_elsewhere else []
        #: those that count as taken now
        self._counted: list[_Nomination] = []
        self._count(self.nominations)
        for key, kept in view.environment.kept.items():
            job = view.jobs.get(key)
            if job is None or job.pod_group.metadata.uid != kept.uid or not kept.stands(view.time()):
                continue
            if job.allocated_count < kept.complete:
                self.kept[key] = kept
                self.restore(job)
                if job.pending_phase:
                    job.phase = "Inqueue"

    def bars(self, job: Job) -> bool:
        """Whether something is kept that a job may have."""
        if job.key in self.kept:
            return True
        return bool(self.nominations) and any(self._may_have(job, each) for each in self.nominations)

    def lift(self, job: Job) -> None:
        """Let a job have its places, and what was nominated for pods that are less important."""
        for node, request in self._reserved.pop(job.key, ()):
            self._nodes.promise(node, request, (0.0, 0.0), -1)
        for each in [each for each in self._counted if self._may_have(job, each)]:
            self._nodes.promise(each.node, each.request, (0.0, 0.0), -1)
            self._counted.remove(each)

    def restore(self, job: Job) -> None:
        """Keep for a job what its pods have not taken; what is promised to them is taken."""
        if job.key in self.kept:
            self._restore_kept(job)
        counted = {each.row for each in self._counted}
        self._count([each for each in self.nominations if each.row not in counted])

    def _nominated(self) -> Iterator[_Nomination]:
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
                yield _Nomination(row, pod.job, pod.spec_priority or 0, node, view.request(pod))

    def _may_have(self, job: Job, nomination: _Nomination) -> bool:
        return nomination.job == job.key or nomination.priority < job.priority

    def _count(self, nominations: Sequence[_Nomination]) -> None:
        """Count nominations of pods that still wait as taken."""
        for each in nominations:
            if self._view.pods.state[each.row] == PodState.Pending:
                self._nodes.promise(each.node, each.request, (0.0, 0.0), 1)
                self._counted.append(each)

    def _restore_kept(self, job: Job) -> None:
        kept = self.kept[job.key]
        left = max(0, kept.complete - job.allocated_count - job.waiting_count)
        index = self._view.nodes.facts.index
        places = kept.places[-left:] if left else ()
        reserved = [(index[node], self._amounts(of)) for node, of in places if node in index]
        for node, request in reserved:
            self._nodes.promise(node, request, (0.0, 0.0), 1)
        self._reserved[job.key] = reserved

    def keep(self, job: Job, places: Sequence[tuple[PodRecord, int]], until: float) -> None:
        """Keep the nodes that pods of a job were just promised, from the next session on."""
        view = self._view
        names = view.dimensions
        self.kept[job.key] = KeptPlaces(
            uid=job.pod_group.metadata.uid,
            places=tuple(
                (view.nodes.name(node), dict(zip(names, view.request(pod).tolist(), strict=True)))
                for pod, node in places
            ),
            complete=job.allocated_count + job.waiting_count,
            until=until,
            since=view.time(),
        )

    def _amounts(self, of: Mapping[str, float]) -> Vector:
        """Amounts by resource in this session's dimensions."""
        return np.array([of.get(name, 0.0) for name in self._view.dimensions])
