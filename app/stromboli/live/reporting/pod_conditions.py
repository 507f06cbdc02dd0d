"""Writes on pods why they are not scheduled, for users and for cluster autoscalers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

import msgspec

from stromboli.api import objects
from stromboli.api.decisions import SetPodUnscheduled
from stromboli.api.errors import in_words
from stromboli.api.keys import namespace_of
from stromboli.api.pod_state import PodState
from stromboli.live.api_server.client import CONNECTION_ERRORS, STRATEGIC_PATCH, ApiError, Kube, timestamp
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import Reluctance, TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.events import Events, about_pod
from stromboli.live.watch.mirror import Mirror
from stromboli.state.pods import PodRecord

log = Logger(__name__)

_WORKERS = 4


class PodConditions:
    """Writes the PodScheduled condition of waiting pods, only the latest one, at a bounded rate.

    Each new reason is also emitted as an Event, since `kubectl describe` shows no messages of conditions.
    """

    def __init__(self, kube: Kube, mirror: Mirror, events: Events, rate: float, patience: float) -> None:
        """A pod waits `patience` seconds before its condition is written: most are scheduled by then."""
        self._kube = kube
        self._state = mirror.state
        self._events = events
        self._bucket = TokenBucket(rate)
        self._queue: FairQueue[str] = FairQueue(namespace_of)
        self._reluctance = Reluctance(patience)
        #: conditions to write, and timers of pods that wait for further changes
        self._wanted: dict[str, SetPodUnscheduled] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        mirror.listen("Pod", self._pod_changed)

    def tell(self, refusals: Sequence[SetPodUnscheduled], put_off: Collection[str]) -> None:
        """Queue the conditions of waiting pods. Pending conditions of other pods are dropped, but for those of jobs
        that were `put_off`."""
        wanted = {refusal.key: refusal for refusal in refusals}
        for key in self._wanted.keys() - wanted.keys():
            record = self._state.record(key)
            if record is None or record.job not in put_off:
                self._withdraw(key)
        for key, refusal in wanted.items():
            known = self._wanted.get(key)
            self._wanted[key] = refusal
            if known is None or (known.minor and not refusal.minor):
                self._schedule(key, refusal)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers("pod-conditions", _WORKERS, self._work)

    def _schedule(self, key: str, refusal: SetPodUnscheduled) -> None:
        record = self._state.record(key)
        if record is None or not self._applies(refusal, record):
            # Kept without a timer, it would hold back all later ones.
            self._withdraw(key)
            return
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.cancel()
        pause = self._reluctance.pause(refusal.uid, minor=refusal.minor)
        self._waiting[key] = asyncio.get_running_loop().call_later(pause, self._hurry, key)

    def _hurry(self, key: str) -> None:
        del self._waiting[key]
        self._queue.put_nowait(key)

    def _withdraw(self, key: str) -> None:
        del self._wanted[key]
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.cancel()

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            await self._bucket.wait()
            refusal, record = self._wanted.pop(key, None), self._state.record(key)
            if refusal is None or record is None or not self._applies(refusal, record):
                continue
            self._reluctance.told(refusal.uid, minor=refusal.minor)
            if not refusal.minor:
                self._events.emit(about_pod(refusal), "Warning", "FailedScheduling", refusal.message)
            try:
                await self._write(refusal, record)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.debug("condition not written", pod=key, error=in_words(error))

    def _applies(self, refusal: SetPodUnscheduled, record: PodRecord) -> bool:
        """Whether a pod still waits and shows a different condition; kube-scheduler writes those of its own pods."""
        if record.uid != refusal.uid or self._state.pods.state[record.row] != int(PodState.Pending):
            return False
        if record.scheduler_name in self._state.extender_scheduler_names:
            return False
        said = objects.refusal(record.conditions)
        return said is None or (said.reason, said.message) != (refusal.reason, refusal.message)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        """Drop the pending condition of a pod that no longer waits."""
        if not isinstance(pod, str) and (type == "DELETED" or pod.spec.node_name):
            self._reluctance.forget(pod.metadata.uid)

    async def _write(self, refusal: SetPodUnscheduled, record: PodRecord) -> None:
        new = objects.refusal(record.conditions) is None
        path = f"/api/v1/namespaces/{refusal.namespace}/pods/{refusal.name}"
        await write_unscheduled(self._kube, path, refusal.uid, refusal.reason, refusal.message, new=new)


async def write_unscheduled(kube: Kube, path: str, uid: str, reason: str, message: str, *, new: bool) -> None:
    """Write why a pod is not scheduled; `new` says whether it had no such condition. Raises as `Kube.persist` does."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if new:
        condition["lastTransitionTime"] = timestamp()
    await write_condition(kube, path, uid, condition)


async def write_condition(kube: Kube, path: str, uid: str, condition: Mapping[str, str]) -> None:
    """Set a condition of the pod at a path, if it has the same uid. Raises as `Kube.persist` does."""
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    await kube.persist("PATCH", f"{path}/status", msgspec.json.encode(patch), STRATEGIC_PATCH)
