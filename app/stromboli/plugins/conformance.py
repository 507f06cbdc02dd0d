"""conformance: pods that the cluster itself needs are never victims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.eviction.eligibility import critical
from stromboli.framework.cluster.job import Job
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.state.pods import PodRecord


class Conformance(Plugin):
    name = "conformance"
    steady = True
    protects = True

    def open(self, view: View) -> None:
        self._facts = view.snapshot.pod_facts

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return [candidate for candidate in candidates if not critical(candidate)]

    def evictable_pods(self, rows: Rows) -> Mask:
        column = self._facts.column("critical", critical)
        needed = np.array([*column.values[:], False], np.bool_)
        spared: Mask = ~needed[column.numbers[rows]]
        return spared

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    reclaimable = preemptable

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    gang_reclaimable = gang_preemptable
