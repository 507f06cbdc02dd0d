"""The cluster that questions over HTTP are about."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol

from stromboli.engine import Engine, Successive
from stromboli.explain.checkup import Finding
from stromboli.explain.past_runs import PastRuns
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.session.session import Session
from stromboli.live.service import Service

#: limit on the work for one answer, about in nodes looked at: half a minute to a minute
_MOST_STEPS = 400_000_000
#: the part of the time that a request may take after which nothing more is tried
_LATE = 0.7


class Source(Protocol):
    """The source of answers."""

    def rehearsal(self) -> Rehearsal | None:
        """A fork of the current state; None until it is known. Called in the event loop."""

    def last(self) -> Session | None:
        """The last session of this service, None if this replica runs none."""

    def unreadable(self, kind: str, key: str) -> str:
        """Why an existing object was set aside; empty if it was not."""

    def absent(self, kind: str, key: str) -> str:
        """Why a pod or a job is not known: its scheduler is not served here, or it is suspended; empty for others."""

    def served(self) -> Collection[str]:
        """The names of schedulers that are served here."""

    def outside_sessions(self) -> list[Finding]:
        """Problems that no session sees."""

    def engine(self, policy: str) -> Engine:
        """An engine for a policy. Raises PolicyError."""

    @property
    def past(self) -> PastRuns:
        """Run times of finished jobs."""


class LiveCluster:
    """The current state of the service."""

    def __init__(
        self,
        service: Service,
        sessions: Successive,
        engine: Callable[[str], Engine],
        last: Callable[[], Session | None],
    ) -> None:
        self._service = service
        self.past = service.past
        self._sessions = sessions
        self.engine = engine
        self.last = last

    def unreadable(self, kind: str, key: str) -> str:
        """Why an existing object was set aside."""
        return self._service.mirror.unreadable(kind, key)

    def absent(self, kind: str, key: str) -> str:
        """Why a pod or a job is not known."""
        return self._service.absent(kind, key)

    def served(self) -> Collection[str]:
        """The names of schedulers that are served here."""
        return self._service.settings.scheduler_names

    def outside_sessions(self) -> list[Finding]:
        """Problems that no session sees."""
        return self._service.outside_sessions()

    def rehearsal(self) -> Rehearsal | None:
        """A fork of the state, with the input of the next session."""
        if not self._service.ready:
            return None
        sessions = self._sessions
        told = replace(sessions.environment, node_usage=sessions.node_usage, queue_usage=sessions.queue_usage)
        # On a busy machine steps take longer, and what was found is worth more than no answer.
        until = time.monotonic() + _LATE * self._service.settings.http_timeout
        state, now = self._service.state.fork(), time.time()
        return Rehearsal(
            sessions.engine, state, told, now, most_steps=_MOST_STEPS, late=lambda: time.monotonic() > until
        )
