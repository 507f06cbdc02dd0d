"""Says on pods why they have no node, for whoever describes them and for cluster autoscalers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from stromboli.api import objects
from stromboli.api.decisions import SetPodUnscheduled
from stromboli.api.pod_state import PodState
from stromboli.live.client import CONNECTION_ERRORS, STRATEGIC_PATCH, ApiError, Kube, timestamp
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

    def put(self, refusal: SetPodUnscheduled) -> None:
        """Have a condition written; what is no longer so when its turn comes is dropped."""
        key = refusal.key
        if key not in self._wanted:
            self._queue.put_nowait(key)
        self._wanted[key] = refusal

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers("pod-conditions", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            await self._bucket.wait()
            refusal, record = self._wanted.pop(key), self._state.record(key)
            if record is None or not self._applies(refusal, record):
                continue
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
        said = objects.refusal(record.conditions)
        return said is None or (said.reason, said.message) != (refusal.reason, refusal.message)

    async def _write(self, refusal: SetPodUnscheduled, record: PodRecord) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": refusal.reason, "message": refusal.message}
        if objects.refusal(record.conditions) is None:
            condition["lastTransitionTime"] = timestamp()
        path = f"/api/v1/namespaces/{refusal.namespace}/pods/{refusal.name}"
        await write_condition(self._kube, path, refusal.uid, condition)


async def write_condition(kube: Kube, path: str, uid: str, condition: Mapping[str, str]) -> None:
    """Set a condition of the pod at a path, if it is still the same pod. Raises as `Kube.persist` does."""
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    await kube.persist("PATCH", f"{path}/status", msgspec.json.encode(patch), STRATEGIC_PATCH)
