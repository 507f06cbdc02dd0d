"""The churn breaker of a session: which evictions are paused, and the record of evictions for the next session."""

from __future__ import annotations

from stromboli.framework.cluster.churn import Churn, Eviction, Pair
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Operation


class ChurnBreaker:
    """Counts evictions between jobs and queues, and pauses those that repeat too often.

    Under Volcano's rules it works where the environment brings it along.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._settings = view.policy.evictions
        known = view.environment.churn
        self._churn = Churn() if known is None and view.rules.served_next else known
        #: the jobs that were evicted for queues too often
        self.paused: frozenset[Pair] = frozenset()
        if self._churn is not None and self._churn.may_be_paused(self._settings):
            self.paused = self._churn.paused(self._settings, view.time())
        #: uids of the pods that were evicted
        self._evicted: dict[Pair, set[str]] = {}

    def evicted(self, operation: Operation) -> None:
        """An eviction was decided."""
        beneficiary = self._view.jobs.get(operation.beneficiary)
        if operation.job is not None and beneficiary is not None:
            pair = operation.job.key, beneficiary.queue.name
            self._evicted.setdefault(pair, set()).add(operation.pods[0].uid)

    def paused_for(self, queue: Queue) -> list[int]:
        """The indices of the jobs that no pod may be evicted from for a queue now."""
        jobs = self._view.jobs
        return [jobs[key].index for key, name in self.paused if name == queue.name and key in jobs]

    def tripped(self) -> list[Pair]:
        """The pairs that are paused from now on."""
        after = self.after_session()
        if after is None or after is self._churn or not after.may_be_paused(self._settings):
            return []
        return sorted(after.paused(self._settings, self._view.time()) - self.paused)

    def after_session(self) -> Churn | None:
        """The record of evictions for the next session."""
        if self._churn is None or not self._evicted:
            return self._view.environment.churn
        evictions = [self._eviction(pair, frozenset(uids)) for pair, uids in self._evicted.items()]
        return self._churn.after(evictions, self._settings, self._view.time())

    def _eviction(self, pair: Pair, uids: frozenset[str]) -> Eviction:
        view, job = self._view, self._view.jobs[pair[0]]
        left = job.allocated_count
        return Eviction(pair, left + len(uids), left, uids, uids.union(pod.uid for pod in view.holding(job)))
