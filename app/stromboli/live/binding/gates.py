"""Lifts the scheduling gates of pods that their queues may allocate, or whose gang was decided."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stromboli.api.decisions import LiftGate
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers

log = Logger(__name__)

_WORKERS = 4


async def lift(kube: Kube, namespace: str, name: str, uid: str) -> None:
    """Remove the only gate of a pod. Raises ApiError and CONNECTION_ERRORS."""
    # Gates cannot be added to an existing pod, so clearing the list removes no other gate.
    patch = {"metadata": {"uid": uid}, "spec": {"schedulingGates": None}}
    await kube.persist("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", msgspec.json.encode(patch), MERGE_PATCH)


class Gates:
    """Removes the scheduling gates of pods. A failed removal is decided again by a later session."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: FairQueue[LiftGate] = FairQueue(lambda gate: gate.namespace)
        #: uids of pods whose gates are being removed
        self._pending: set[str] = set()

    def lift(self, decided: Iterable[LiftGate]) -> None:
        """Queue the removal of gates; each is the only gate of its pod."""
        for each in decided:
            if each.uid not in self._pending:
                self._pending.add(each.uid)
                self._queue.put_nowait(each)

    async def run(self) -> None:
        """Remove gates until cancelled."""
        await run_workers("gates", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            gate = await self._queue.get()
            try:
                await lift(self._kube, gate.namespace, gate.name, gate.uid)
            except (ApiError, *CONNECTION_ERRORS) as error:
                if not (isinstance(error, ApiError) and error.status in (404, 409)):
                    log.recurring("scheduling gate not lifted", error, pod=gate.key)
            finally:
                self._pending.discard(gate.uid)
