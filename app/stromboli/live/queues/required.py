"""Keeps the root queue and the default queue in existence, and makes those that rules of the policy make."""

from __future__ import annotations

import asyncio

from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, Object
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.queues.controller import ensure_queue, ensure_queues
from stromboli.live.reporting.state_field import release_states

log = Logger(__name__)

#: grace period in seconds for an administrator who deleted the Queue CRD to restore the queues from a backup
_RESTORED = 60.0


class RequiredQueues:
    """Creates the two queues at first, and again whenever one of them is deleted; others when they are wanted."""

    def __init__(self, kube: Kube, default_queue: str) -> None:
        self._kube = kube
        self._default_queue = default_queue
        self._required = frozenset(("root", default_queue))
        #: the parents of queues that are to be made, empty for the root, by name
        self._wanted: dict[str, str] = {}
        self._missing = asyncio.Event()
        self._missing.set()

    def deleted(self, name: str) -> None:
        """The operator saw that a queue was deleted."""
        if name in self._required:
            self._missing.set()

    def deleted_unseen(self, name: str) -> None:
        """A queue is not there any longer, whether the operator saw it or not."""
        if name in self._required:
            asyncio.get_running_loop().call_later(_RESTORED, self._missing.set)

    def want(self, name: str, parent: str) -> None:
        """Have a queue made if it is not there."""
        self._wanted[name] = parent
        self._missing.set()

    async def run(self) -> None:
        """Create the queues when they are missing, until cancelled."""
        backoff = Backoff(0.2, 5.0)
        while True:
            await self._missing.wait()
            self._missing.clear()
            try:
                await ensure_queues(self._kube, self._default_queue)
                await release_states(self._kube)
                while self._wanted:
                    name, parent = next(iter(self._wanted.items()))
                    await self._make(name, {"parent": parent} if parent else {})
                    del self._wanted[name]
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("queues not created", error)
                self._missing.set()
                await asyncio.sleep(backoff.delay())
            else:
                # Deleting the CRD deletes all queues; wait before the next attempt, so that a restore can come first.
                backoff = Backoff(_RESTORED, _RESTORED)

    async def _make(self, name: str, spec: Object) -> None:
        try:
            await ensure_queue(self._kube, name, spec)
        except ApiError as error:
            if error.retriable:
                raise
            # Jobs say that it is not there.
            log.warning("queue not created", queue=name, error=error)
