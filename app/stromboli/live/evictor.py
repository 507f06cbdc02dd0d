"""Carries out evictions and nominations.

A pod that is evicted first gets the condition DisruptionTarget, which says to its controller that the failure is not
the pod's own, and is then deleted with its own grace period.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec.json import encode

from stromboli.api import objects
from stromboli.api.decisions import Evict, Nominate
from stromboli.live.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, timestamp
from stromboli.live.events import Events, about_pod
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer
from stromboli.live.pod_conditions import write_condition
from stromboli.live.workers import run_workers

log = Logger(__name__)

_WORKERS = 8
#: how long a deletion may take to show in the watch before sessions go on without it
_PATIENCE = 5.0

#: why a pod is evicted, where no other gets its place
_CAUSES = {"takeover": "undoing what was bound while the leader changed"}


class Evictor:
    """Deletes victims and nominates nodes, a few at a time."""

    def __init__(self, kube: Kube, mirror: Mirror, events: Events, observer: Observer, scheduler_name: str) -> None:
        self._kube = kube
        self._events = events
        self._observer = observer
        self._name = scheduler_name
        self._queue: asyncio.Queue[Evict | Nominate] = asyncio.Queue()
        #: uid -> when it was submitted, of victims that do not yet show as terminating
        self._invisible: dict[str, float] = {}
        self._visible = asyncio.Event()
        self._visible.set()
        self._nominated: dict[str, str] = {}
        mirror.listen("Pod", self._pod_changed)

    def evict(self, victims: Sequence[Evict]) -> None:
        """Evict each victim once, however often it is decided."""
        for victim in victims:
            if victim.uid not in self._invisible:
                self._invisible[victim.uid] = time.monotonic()
                self._visible.clear()
                self._queue.put_nowait(victim)

    def nominate(self, nominations: Sequence[Nominate]) -> None:
        """Write nominations that differ from the last one of the pod."""
        for nomination in nominations:
            if self._nominated.get(nomination.uid) != nomination.node:
                self._nominated[nomination.uid] = nomination.node
                self._queue.put_nowait(nomination)

    async def caught_up(self) -> None:
        """Return when all victims show as terminating: a session that ran before would evict others as well."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._visible.wait()
        except TimeoutError:
            log.warning("evictions not visible", pods=len(self._invisible))
            self._invisible.clear()
            self._visible.set()

    async def run(self) -> None:
        """Evict until cancelled."""
        await run_workers("evictor", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if isinstance(item, Evict):
                    await self._evict(item)
                else:
                    await self._nominate(item)
            except (ApiError, *CONNECTION_ERRORS) as error:
                pod = item.key
                gone = isinstance(error, ApiError) and error.status in (404, 409)
                log.recurring("pod not changed", error, pod=pod, what=type(item).__name__)
                if isinstance(item, Evict):
                    self._observer.evict_result("gone" if gone else "failed", 0.0)
                    self._done(item.uid)
                self._nominated.pop(item.uid, None)

    async def _evict(self, victim: Evict) -> None:
        started = time.perf_counter()
        path = f"/api/v1/namespaces/{victim.namespace}/pods/{victim.name}"
        reason = f"Pod is evicted, because of {victim.action}"
        if victim.beneficiary:
            reason += f" for {victim.beneficiary}"
        self._events.emit(about_pod(victim), "Warning", "Evict", reason, "Evicting")
        cause = _CAUSES.get(victim.action, "preempting to accommodate a higher priority pod")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._name}: {cause}",
            "lastTransitionTime": timestamp(),
        }
        await write_condition(self._kube, path, victim.uid, condition)
        await self._kube.persist("DELETE", path, encode({"preconditions": {"uid": victim.uid}}))
        log.info("evicted", pod=victim.key, node=victim.node, action=victim.action)
        self._observer.evict_result("evicted", time.perf_counter() - started)

    async def _nominate(self, nomination: Nominate) -> None:
        path = f"/api/v1/namespaces/{nomination.namespace}/pods/{nomination.name}/status"
        patch = {"metadata": {"uid": nomination.uid}, "status": {"nominatedNodeName": nomination.node}}
        await self._kube.persist("PATCH", path, encode(patch), MERGE_PATCH)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if isinstance(pod, str):
            # From a list, without its uid; whoever waits for it gives up after a while.
            return
        uid = pod.metadata.uid or ""
        if type == "DELETED":
            self._nominated.pop(uid, None)
        if uid in self._invisible and (type == "DELETED" or pod.metadata.deletion_timestamp):
            self._done(uid)

    def _done(self, uid: str) -> None:
        self._invisible.pop(uid, None)
        if not self._invisible:
            self._visible.set()
