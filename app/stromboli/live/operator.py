"""The kopf operator: it owns the loop, the login and the watches of Queues, PodGroups and HyperNodes.

Pods and nodes are too many for it and come through reflectors. Handlers return nothing, and none of them is more than
`on.event`: kopf would otherwise annotate the objects. What is deleted while kopf's watch is broken it never tells, so
the same kinds are listed from time to time. That also finds HyperNodes whose definition came after the start: kopf
looks only once what there is to watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import kopf

from stromboli.api.crds import KINDS, SCHEDULING, TOPOLOGY
from stromboli.live.client import Credentials
from stromboli.live.mirror import Mirror
from stromboli.live.reflector import Source

OPERATOR_SOURCES = (
    Source("Queue", f"/apis/{SCHEDULING}/queues", required=True),
    Source("PodGroup", f"/apis/{SCHEDULING}/podgroups", required=True),
    Source("HyperNode", f"/apis/{TOPOLOGY}/hypernodes"),
)
#: API versions of the kinds that kopf watches
_API_VERSIONS = {"Queue": SCHEDULING, "PodGroup": SCHEDULING, "HyperNode": TOPOLOGY}


def operator_settings() -> kopf.OperatorSettings:
    """kopf for objects that it only watches."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.request_timeout = 600
    settings.process.ultimate_exiting_timeout = None
    return settings


def operator_registry(
    credentials: Credentials,
    mirror: Mirror,
    startup: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """The handlers. `startup` runs in kopf's loop, and kopf watches nothing before it returns."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        await startup()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        await credentials.log_in_again()
        # A session of its own: kopf closes it when the API server refuses its token.
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=credentials.session())

    for kind in KINDS:
        _watch(registry, kind, mirror)
    return registry


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> Sequence[BaseException | None]:
    """End the tasks of an operator; returns how each ended.

    `kopf.run_tasks` would do that too, but to every task in the loop that began later than the operator.
    """
    for task in tasks:
        task.cancel()
    ends: Sequence[BaseException | None] = await asyncio.gather(*tasks, return_exceptions=True)
    return ends


def _watch(registry: kopf.OperatorRegistry, kind: str, mirror: Mirror) -> None:
    group, _, version = _API_VERSIONS[kind].partition("/")

    @kopf.on.event(group, version, KINDS[kind].plural, registry=registry, id=kind)
    async def apply(event: kopf.RawEvent, **_: Any) -> None:
        mirror.event(kind, event["type"] or "ADDED", event["object"])
