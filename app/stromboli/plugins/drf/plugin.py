"""Jobs, and queues in the tree of their annotations with `enableHierarchy`, by their dominant share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import truediv

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Job, Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Key, Plugin
from stromboli.framework.plugin.operation import Operation
from stromboli.plugins.drf.hierarchy import PlaceInTree, Tree
from stromboli.state.pods import PodRecord

#: shares that differ by less are equal
_SHARE_TOLERANCE = 1e-6


class Drf(Plugin):
    name = "drf"
    by_share = True
    always_decides = True

    def open(self, view: View) -> None:
        self._view = view
        self._total = view.total
        #: total of each dimension, infinite where there is nothing
        self._wholes = np.where(view.total < TOLERANCE, np.inf, view.total).tolist()
        self._allocated = view.job_allocated.copy()
        whole = shares.share(self._allocated, self._total)
        #: by column; there are few
        largest = reduce(np.maximum, whole.T, np.zeros(len(whole)))
        self._share: list[float] = largest.tolist()
        self._tree = Tree(view, self._allocated) if self.hierarchy else None
        #: the preemptor asked about last, and by job and request whether a victim would yield, while nothing changes
        self._asking: tuple[int, bytes] | None = None
        self._yielding: dict[tuple[int, bytes], bool] = {}

    def job_order(self, job: Job) -> float:
        return self._share[job.index]

    def job_orders(self) -> Vector:
        return np.array(self._share)

    def queue_order(self, queue: Queue) -> Key:
        return PlaceInTree(self._tree, self._tree.path(queue)) if self._tree else 0

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Victims are those whose job keeps at least the share that the pod's own gets."""
        view, wanted = self._view, self._share_with(pod)
        left: dict[str, Vector] = {}
        victims = []
        for candidate in candidates:
            held = left.get(candidate.job)
            if held is None:
                held = self._allocated[view.jobs[candidate.job].index]
            left[candidate.job] = held = held - view.request(candidate)
            if wanted <= shares.dominant_share(held, self._total) + _SHARE_TOLERANCE:
                victims.append(candidate)
        return victims

    def preemptable_jobs(self, pod: PodRecord, smallest: Callable[[], Matrix]) -> Mask:
        """The jobs that keep the share that the pod's own gets, whichever of their pods is evicted first."""
        wanted = self._share_with(pod)
        kept = shares.dominant_shares(self._allocated - smallest(), self._total)
        enough: Mask = wanted <= kept + _SHARE_TOLERANCE
        return enough

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord] | None:
        """Victims are those whose queue, with one pod less, still comes after the own queue with one more."""
        if self._tree is None:
            return None
        view, own = self._view, self._view.jobs[pod.job]
        request = view.request(pod)
        asking = own.index, request.tobytes()
        if asking != self._asking:
            self._asking, self._yielding = asking, {}
        known, victims = self._yielding, []
        self._hold(own, request)
        for candidate in candidates:
            job, given = view.jobs[candidate.job], view.request(candidate)
            kind = job.index, given.tobytes()
            if kind not in known:
                self._hold(job, -given)
                known[kind] = self.queue_order(own.queue) < self.queue_order(job.queue)
                self._hold(job, given)
            if known[kind]:
                victims.append(candidate)
        self._hold(own, -request)
        return victims

    def on_allocate(self, operation: Operation) -> None:
        self._change(operation, operation.total)

    def on_deallocate(self, operation: Operation) -> None:
        self._change(operation, -operation.total)

    def _share_with(self, pod: PodRecord) -> float:
        """The share of a pod's job once the pod has its place."""
        held = self._allocated[self._view.jobs[pod.job].index]
        return shares.dominant_share(held + self._view.request(pod), self._total)

    def _change(self, operation: Operation, amount: Vector) -> None:
        if operation.job is not None:
            self._asking = None
            self._hold(operation.job, amount)

    def _hold(self, job: Job, amount: Vector) -> None:
        """Let a job hold more, or less."""
        held = self._allocated[job.index]
        held += amount
        self._share[job.index] = max(map(truediv, held.tolist(), self._wholes))
        if self._tree is not None:
            self._tree.changed(job.index, amount)
