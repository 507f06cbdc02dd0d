"""Places that are kept from session to session: for pods that were moved, and for those that they made room for.

An evicted pod comes back as another one, some time later and perhaps first in order. If everybody took what they like
best then, the place that was made could be gone, and somebody would have to move again. So what was promised counts as
taken for all jobs but its own, until the pods have come, or until it was kept long enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stromboli.api.resources import Vector
from stromboli.framework.job import Job
from stromboli.framework.kept import KeptPlaces
from stromboli.framework.nodes import NodeLedger
from stromboli.framework.view import View
from stromboli.state.pods import PodRecord


class Keeper:
    """What is kept in a session; jobs are looked up by key."""

    def __init__(self, view: View, nodes: NodeLedger) -> None:
        """Keep what the sessions before kept, as far as it still makes sense; a job that has places is admitted."""
        self._view = view
        self._nodes = nodes
        self.kept: dict[str, KeptPlaces] = {}
        #: what counts as taken now, as indices of nodes with amounts
        self._reserved: dict[str, Sequence[tuple[int, Vector]]] = {}
        for key, kept in view.environment.kept.items():
            job = view.jobs.get(key)
            if job is None or job.pod_group.metadata.uid != kept.uid or not kept.stands(view.time()):
                continue
            if job.allocated_count < kept.complete:
                self.kept[key] = kept
                self.restore(job)
                if job.pending_phase:
                    job.phase = "Inqueue"

    def lift(self, job: Job) -> None:
        """Let a job have its places."""
        for node, request in self._reserved.pop(job.key, ()):
            self._nodes.promise(node, request, (0.0, 0.0), -1)

    def restore(self, job: Job) -> None:
        """Keep for a job what its pods have not taken; what is promised to them is taken."""
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
