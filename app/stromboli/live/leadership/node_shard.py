"""Publishes a service's shard to the cluster, in the status of its NodeShard and in its Lease.

Other shards avoid the nodes that the status lists as in use, so a node that moves from one shard to another changes
hands once the status of the first no longer lists it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from stromboli.framework.cluster.shard import NodeShardStatus
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.observer import Observer
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.settings import Settings

log = Logger(__name__)

#: annotation of the Lease: how its shard schedules
SHARD = "stromboli.io/shard"
PATH = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
_PAUSES = (0.2, 5.0)


class ShardTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=False, rename="camel"):
    """The settings that a replica needs to schedule for a shard."""

    name: str
    mode: Literal["hard", "soft"]
    scheduler_names: tuple[str, ...]

    @classmethod
    def annotation(cls, settings: Settings) -> Mapping[str, str]:
        """The Lease's annotations about the shard of a service; none if it has all nodes."""
        if not settings.shard:
            return {}
        terms = cls(settings.shard, settings.shard_mode, settings.scheduler_names)
        return {SHARD: msgspec.json.encode(terms).decode()}

    def applied_to(self, settings: Settings, lease: str) -> Settings:
        """The settings of a service of another shard, for this one."""
        own = {
            "shard": self.name,
            "shard_mode": self.mode,
            "scheduler_names": self.scheduler_names,
            "extender_scheduler_names": (),
            "leader_elect": True,
            "lease_name": lease,
        }
        return settings.model_copy(update=own)


class NodeShardWriter(Observer):
    """Writes the result of the last session, until it succeeds."""

    def __init__(self, kube: Kube, name: str, wanted: Callable[[], bool]) -> None:
        """`wanted` is asked before each attempt: whether this replica leads."""
        self._kube = kube
        self._path = f"{PATH}/{name}/status"
        self._wanted = wanted
        self._changed = asyncio.Event()
        self._status: NodeShardStatus | None = None

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        self.tell(result.session.view.shard.new_status)

    def tell(self, status: NodeShardStatus | None) -> None:
        """Accept the status that the NodeShard should get; None if it is up to date."""
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
