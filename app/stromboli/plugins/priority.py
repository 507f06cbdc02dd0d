"""priority: jobs and pods of higher priority come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stromboli.api.resources import Mask, Matrix, Rows
from stromboli.framework.cluster.job import Job, SubJob
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.state.pods import PodRecord


class Priority(Plugin):
    name = "priority"
    steady = True
    always_decides = True

    def open(self, view: View) -> None:
        self._jobs = view.jobs
        self._priorities = view.jobs.priority

    def job_order(self, job: Job) -> int:
        return -job.priority

    def job_orders(self) -> Rows:
        return -self._priorities

    def sub_job_order(self, sub_job: SubJob) -> int:
        return -sub_job.priority

    def task_order(self, pod: PodRecord) -> int:
        return -pod.priority

    def job_starving(self, job: Job) -> bool:
        return job.waiting_count + job.ready_count < job.size

    def preemptable(self, pod: PodRecord, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        """Victims have lower priority: their job's, or within a job their own."""
        own = self._jobs[pod.job].priority
        return [
            candidate
            for candidate in candidates
            if (
                candidate.priority < pod.priority
                if candidate.job == pod.job
                else self._jobs[candidate.job].priority < own
            )
        ]

    def preemptable_jobs(self, pod: PodRecord, smallest: Callable[[], Matrix]) -> Mask:
        """Candidates of lower priority."""
        job = self._jobs[pod.job]
        less: Mask = self._priorities < job.priority
        less[job.index] = True
        return less

    def gang_preemptable(self, job: Job, candidates: Sequence[PodRecord]) -> list[PodRecord]:
        return [candidate for candidate in candidates if self._jobs[candidate.job].priority < job.priority]

    def gang_reclaimable(self, job: Job, candidates: Sequence[PodRecord]) -> Sequence[PodRecord]:
        """Priorities are not compared between queues."""
        return candidates
