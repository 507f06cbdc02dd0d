"""A label on the pod of the replica that leads, by which a Service finds the one that answers kube-scheduler.

kube-scheduler goes on without an extender that answers with an error, so a Service that also led to replicas that wait
would have every other pod placed without its gang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from stromboli.live.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger

log = Logger(__name__)

LABEL = "stromboli.io/leads"
_PAUSES = (0.2, 5.0)


class LeaderMark:
    """Labels this replica's pod, and no other of its namespace. The former leader may not have come to it."""

    def __init__(self, kube: Kube, namespace: str, pod: str) -> None:
        """`pod` is the name of this replica's pod, empty where it runs in none."""
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pod = pod

    async def run(self) -> None:
        """Label it, once."""
        backoff = Backoff(*_PAUSES)
        while self._pod:
            try:
                for other in await self._labelled():
                    if other != self._pod:
                        await self._label(other, None)
                await self._label(self._pod, "true")
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("leader not labelled", error, pod=self._pod)
                await asyncio.sleep(backoff.delay())
            else:
                return

    async def _labelled(self) -> Iterable[str]:
        found = await self._kube.get(f"{self._path}?labelSelector={LABEL}%3Dtrue")
        return [pod["metadata"]["name"] for pod in found["items"]]

    async def _label(self, pod: str, value: str | None) -> None:
        patch: dict[str, Any] = {"metadata": {"labels": {LABEL: value}}}
        await self._kube.persist("PATCH", f"{self._path}/{pod}", msgspec.json.encode(patch), MERGE_PATCH)
