"""conformance: what the cluster itself needs is never a victim."""

from __future__ import annotations

from collections.abc import Sequence

from stromboli.framework.job import Job
from stromboli.framework.plugin import Plugin
from stromboli.state.pods import PodRecord

#: the priority of the class system-cluster-critical; only the system's own classes reach it
_CRITICAL = 2_000_000_000


class Conformance(Plugin):
    name = "conformance"
    protects = True

    def evictable(self, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return [c for c in candidates if c.namespace != "kube-system" and (c.spec_priority or 0) < _CRITICAL]

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    reclaimable = preemptable

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return self.evictable(candidates)

    gang_reclaimable = gang_preemptable
