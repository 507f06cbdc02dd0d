"""minruntime: a gang runs for a minimum time before it may be preempted or reclaimed.

The time is set by the queue (`preemptMinRuntime`, `reclaimMinRuntime`) or its nearest ancestor, else by the policy for
the priority class, else for all jobs. Pods that a gang has beyond its minimum are not protected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from stromboli.api.pod_state import READY_STATES
from stromboli.api.resources import Mask, Matrix
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.plugins.minruntime.run_times import MinRuntimeArguments, RunTimes
from stromboli.state.pods import PodRecord

_VICTIMS = frozenset(("preemptable", "preemptable_jobs", "reclaimable", "reclaimable_queues"))


class MinRuntime(Plugin):
    name = "minruntime"
    protects = True
    queue_fields = RunTimes.fields
    Arguments: ClassVar[type[BaseModel]] = MinRuntimeArguments

    def open(self, view: View) -> None:
        self._view, self._run_times = view, RunTimes(view, self.arguments)
        if not self._run_times.used:
            self.silent = _VICTIMS

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self._spared(candidates, None)

    def reclaimable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self._spared(candidates, self._view.jobs[pod.job].queue)

    def preemptable_jobs(self, pod: PodRecord, smallest: Callable[[], Matrix]) -> Mask:
        return self._giving(None)

    def reclaimable_queues(self, pod: PodRecord, least: Matrix, smallest: Matrix, largest: Matrix) -> Mask:
        giving = self._giving(self._view.jobs[pod.job].queue)
        return np.bincount(self._view.jobs.queue[giving], minlength=len(self._view.queues)) > 0

    def _giving(self, reclaimer: Queue | None) -> Mask:
        """The jobs that are not too young, or have pods beyond their minimum, shape (jobs,)."""
        jobs, young = self._view.jobs, self._run_times.young(reclaimer).jobs
        if not young.any():
            return ~young
        held = jobs.now(jobs.count(*READY_STATES), lambda job: job.ready_count, among=young)
        giving: Mask = ~young | (held > np.maximum(jobs.min_available, 1))
        return giving

    def _spared(self, candidates: Sequence[PodRecord], reclaimer: Queue | None) -> list[PodRecord]:
        """The candidates that are not too young, and of gangs that are those beyond their minimum."""
        young, rows, out = self._run_times.young(reclaimer).jobs, self._view.pods.job, []
        index_of, surplus = self._view.membership.index_of, dict[int, int]()
        for candidate in candidates:
            index = int(index_of[rows[candidate.row]])
            if young[index]:
                if index not in surplus:
                    job = self._view.jobs.at(index)
                    surplus[index] = job.ready_count - max(1, job.min_available)
                surplus[index] -= 1
                if surplus[index] < 0:
                    continue
            out.append(candidate)
        return out
