"""Says on pods why they have no node, for whoever describes them and for cluster autoscalers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from stromboli.api.decisions import SetPodUnscheduled
from stromboli.api.status import PodState
from stromboli.live.kube import CONNECTION_ERRORS, STRATEGIC_PATCH, ApiError, Kube
from stromboli.live.limits import TokenBucket
from stromboli.live.logs import Logger
from stromboli.live.workers import run_workers
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import PodRecord

log = Logger(__name__)

_WORKERS = 4


class PodConditions:
    """Writes the condition PodScheduled of pods that wait, the newest only, at a bounded rate."""

    def __init__(self, kube: Kube, state: ClusterState, rate: float) -> None:
        self._kube = kube
        self._state = state
        self._bucket = TokenBucket(rate)
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: dict[str, SetPodUnscheduled] = {}

    def put(self, refusals: Iterable[SetPodUnscheduled]) -> None:
        """Have conditions written; what is no longer so when its turn comes is dropped."""
        for refusal in refusals:
            key = f"{refusal.namespace}/{refusal.name}"
            if key not in self._wanted:
                self._queue.put_nowait(key)
            self._wanted[key] = refusal

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers("pod-conditions", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            refusal, record = self._wanted.pop(key), self._state.record(key)
            if record is None or not self._applies(refusal, record):
                continue
            await self._bucket.wait()
            try:
                await self._write(refusal, record)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.debug("condition not written", pod=key, error=str(error) or repr(error))

    def _applies(self, refusal: SetPodUnscheduled, record: PodRecord) -> bool:
        """Whether a pod still waits, and does not say so yet; kube-scheduler speaks for its own."""
        if record.uid != refusal.uid or self._state.pods.state[record.row] != int(PodState.Pending):
            return False
        if record.scheduler_name in self._state.extender_scheduler_names:
            return False
        said = [(c.reason, c.message) for c in record.conditions if c.type == "PodScheduled" and c.status == "False"]
        return (refusal.reason, refusal.message) not in said

    async def _write(self, refusal: SetPodUnscheduled, record: PodRecord) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": refusal.reason, "message": refusal.message}
        if not any(c.type == "PodScheduled" and c.status == "False" for c in record.conditions):
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = f"/api/v1/namespaces/{refusal.namespace}/pods/{refusal.name}/status"
        patch = {"metadata": {"uid": refusal.uid}, "status": {"conditions": [condition]}}
        await self._kube.persist("PATCH", path, msgspec.json.encode(patch), STRATEGIC_PATCH)
