"""Makes kube-scheduler ask again about pods that it was refused and that have been decided since.

kube-scheduler learns of a decision only by asking the extender, and after a refusal it asks again only after some
event; in a quiet cluster that takes minutes. Annotating the pod is such an event. kube-scheduler never asks about a pod
with the gate of its gang: that gate is removed instead, once the pod's node is nominated.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from stromboli.api import objects
from stromboli.api.decisions import Bind
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube
from stromboli.live.binding.gates import lift
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.watch.mirror import Mirror

log = Logger(__name__)

_WORKERS = 8
_ANNOTATION = "stromboli.io/decided-at"


class Recall:
    """Annotates each pod that was both refused and decided, in whichever order these are seen, or lifts its gate."""

    def __init__(self, kube: Kube, mirror: Mirror) -> None:
        self._kube = kube
        self._state = mirror.state
        self._queue: FairQueue[Bind] = FairQueue(lambda bind: bind.namespace)
        #: decided pods whose refusal has not been seen, by key
        self._decided: dict[str, Bind] = {}
        mirror.listen("Pod", self._pod_changed)

    def decided(self, bind: Bind) -> None:
        """A session has decided the node of a pod that kube-scheduler binds."""
        key = bind.key
        self._decided[key] = bind
        record = self._state.record(key)
        if record is not None and record.pod_class.waits_for_gang:
            self._queue.put_nowait(bind)
            return
        if record is not None:
            self._look(key, record.conditions)

    async def run(self) -> None:
        """Annotate until cancelled."""
        await run_workers("recall", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            bind = await self._queue.get()
            record = self._state.record(bind.key)
            if record is not None and record.uid == bind.uid and record.pod_class.waits_for_gang:
                await self._lift(bind)
                continue
            path = f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}"
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            patch = {"metadata": {"uid": bind.uid, "annotations": {_ANNOTATION: now}}}
            try:
                await self._kube.persist("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.recurring("pod not annotated for kube-scheduler", error, pod=bind.key)

    async def _lift(self, bind: Bind) -> None:
        """Let kube-scheduler see a pod of a decided gang, with the node that is kept for it."""
        path = f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}/status"
        nominated = {"metadata": {"uid": bind.uid}, "status": {"nominatedNodeName": bind.node}}
        try:
            await self._kube.persist("PATCH", path, msgspec.json.encode(nominated), MERGE_PATCH)
            await lift(self._kube, bind.namespace, bind.name, bind.uid)
        except (ApiError, *CONNECTION_ERRORS) as error:
            # The pod is decided again when its place is not taken in time.
            log.recurring("gate of a gang not lifted", error, pod=bind.key)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        if not self._decided:
            return
        key = pod if isinstance(pod, str) else pod.metadata.key
        if isinstance(pod, str) or type == "DELETED" or pod.spec.node_name:
            self._decided.pop(key, None)
        elif key in self._decided and not pod.spec.scheduling_gates:
            self._look(key, pod.status.conditions or ())

    def _look(self, key: str, conditions: Iterable[objects.PodCondition]) -> None:
        refused = objects.refusal(conditions)
        if refused is not None and refused.reason != "SchedulingGated":
            self._queue.put_nowait(self._decided.pop(key))
