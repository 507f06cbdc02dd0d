"""Writes the status of the NodeShard by which a service has its nodes.

Other shards keep off the nodes that it names as in use, so a node that moves from one to another changes hands when the
status of the first no longer has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from stromboli.framework.cluster.shard import NodeShardStatus
from stromboli.live.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger

log = Logger(__name__)

PATH = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
_PAUSES = (0.2, 5.0)


class NodeShardWriter:
    """Writes what the last session found, until it is written."""

    def __init__(self, kube: Kube, name: str, wanted: Callable[[], bool]) -> None:
        """`wanted` is asked before each attempt: whether this replica leads."""
        self._kube = kube
        self._path = f"{PATH}/{name}/status"
        self._wanted = wanted
        self._changed = asyncio.Event()
        self._status: NodeShardStatus | None = None

    def tell(self, status: NodeShardStatus | None) -> None:
        """Take the status that the NodeShard should have; None when it has it."""
        self._status = status
        if status is not None:
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        backoff = Backoff(*_PAUSES)
        while True:
            await self._changed.wait()
            self._changed.clear()
            status = self._status
            if status is None or not self._wanted():
                continue
            try:
                body = msgspec.json.encode({"status": _manifest(status)})
                await self._kube.persist("PATCH", self._path, body, MERGE_PATCH, wanted=self._wanted)
                backoff = Backoff(*_PAUSES)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("node shard not written", error, path=self._path)
                await asyncio.sleep(backoff.delay())
                self._changed.set()


def _manifest(status: NodeShardStatus) -> dict[str, list[str]]:
    return {
        "nodesInUse": sorted(status.in_use),
        "nodesToAdd": sorted(status.to_add),
        "nodesToRemove": sorted(status.to_remove),
    }
