"""priority: jobs and pods of a higher priority come first."""

from __future__ import annotations

from stromboli.framework.job import Job, SubJob
from stromboli.framework.plugin import Plugin
from stromboli.state.pods import PodRecord


class Priority(Plugin):
    name = "priority"

    def job_order(self, job: Job) -> int:
        return -job.priority

    def sub_job_order(self, sub_job: SubJob) -> int:
        return -sub_job.priority

    def task_order(self, pod: PodRecord) -> int:
        return -pod.priority

    def job_starving(self, job: Job) -> bool:
        return job.waiting_count + job.ready_count < job.size
