"""stalegangeviction: evicts the rest of a gang that lost pods and stays below its minimum.

Such a gang makes no progress but holds its places. It has a grace period to become complete again, which begins when a
session first finds it short; a restart of the service starts the period anew. The remaining pods are then evicted
together, including those of jobs that are never evicted for others, but not pods that are critical to the cluster.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pydantic import BaseModel, Field

from stromboli.api.duration import Duration
from stromboli.api.pod_state import ALLOCATED_STATES, HELD
from stromboli.eviction.eligibility import critical
from stromboli.framework.action import Action
from stromboli.framework.cluster.job import Job
from stromboli.framework.plugin.base import Arguments
from stromboli.framework.session.session import Session


class StaleGangEvictionArguments(Arguments):
    """Arguments of stalegangeviction."""

    grace_period: Duration = Field(default=60.0, alias="gracePeriod")
    """Time for which a gang may stay below its minimum."""


class StaleGangEviction(Action):
    name = "stalegangeviction"
    Arguments: ClassVar[type[BaseModel]] = StaleGangEvictionArguments

    def run(self, session: Session) -> None:
        arguments = session.policy.action_arguments.get(self.name, StaleGangEvictionArguments())
        assert isinstance(arguments, StaleGangEvictionArguments)
        before: dict[tuple[str, str], float] = session.view.environment.left.get(self.name, {})
        since: dict[tuple[str, str], float] = {}
        jobs = session.view.jobs
        for job in jobs.where(jobs.count(*ALLOCATED_STATES) > 0):
            if not job.allocated_count or not session.attempt(job, partial(_is_short, session, job), otherwise=False):
                continue
            this = job.key, job.pod_group.metadata.uid
            now = session.view.time()
            since[this] = min(before.get(this, now), now)
            if now - since[this] >= arguments.grace_period:
                session.attempt(job, partial(self._evict, session, job), otherwise=None)
        session.actions_left[self.name] = since

    def _evict(self, session: Session, job: Job) -> None:
        """Evict the rest of a gang, unless it is about to become complete."""
        if session.ask.starts_as_promised(job):
            return
        held = [pod for pod in session.view.members(job) if session.view.pods.state[pod.row] in HELD]
        if any(map(critical, held)):
            return
        statement = session.statement()
        for pod in held:
            statement.evict(pod, self.name)
        statement.commit()


def _is_short(session: Session, job: Job) -> bool:
    """Whether a job runs below its minimum."""
    return session.ask.job_missing(job) > 0
