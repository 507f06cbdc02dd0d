"""A label on the leader's pod, by which a Service selects the replica that answers kube-scheduler.

kube-scheduler ignores an extender that answers with an error. If the Service also selected standby replicas, every
other pod would be placed without its gang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger

log = Logger(__name__)

LABEL = "stromboli.io/leads"
_PAUSES = (0.2, 5.0)


class LeaderMark:
    """Labels this replica's pod and no other pod of its namespace, in case the former leader did not remove its
    label."""

    def __init__(self, kube: Kube, namespace: str, pod: str) -> None:
        """`pod` is the name of this replica's pod, empty outside a cluster."""
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._pod = pod

    async def run(self) -> None:
        """Move the label to this pod, once."""
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
