"""Writes the reason on unusable objects why they are set aside, and clears it once they are repaired.

Pods get the condition PodScheduled, as other waiting pods do; PodGroups and Queues get a condition of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.api.crds import PodGroup, Queue, dumped
from stromboli.api.keys import namespace_of
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, Object, timestamp
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.pod_conditions import write_condition, write_unscheduled
from stromboli.live.reporting.status import object_path
from stromboli.live.watch.mirror import Mirror

log = Logger(__name__)

#: reason of the condition and of the Event
REASON = "CannotBeRead"
#: type of the condition of PodGroups and Queues
CONDITION = "SetAside"
_WORKERS = 2
_LONGEST_MESSAGE = 1_024


class SetAside:
    """Writes conditions one at a time at a bounded rate, only the latest of each object."""

    def __init__(self, kube: Kube, mirror: Mirror, rate: float) -> None:
        self._kube = kube
        self._state = mirror.state
        self._bucket = TokenBucket(rate)
        self._queue: FairQueue[tuple[str, str]] = FairQueue(lambda item: namespace_of(item[1]))
        #: (kind, key) -> problem of a pod, empty for none, or the patch of another object
        self._wanted: dict[tuple[str, str], str | Object] = {}
        mirror.refuse(self._refused)
        for kind in ("PodGroup", "Queue"):
            mirror.listen(kind, self._seen)

    async def run(self) -> None:
        """Write until cancelled."""
        for record in self._state.pods.records:
            # The object was repaired while no replica led.
            said = objects.refusal(record.conditions) if record is not None else None
            if record is not None and said is not None and said.reason == REASON:
                self._put("Pod", record.key, "")
        await run_workers("set-aside", _WORKERS, self._work)

    def _refused(self, kind: str, key: str, obj: Any, problem: str) -> None:
        if kind == "Pod" and "/" in key:
            self._put(kind, key, problem[:_LONGEST_MESSAGE])
        elif kind in ("PodGroup", "Queue") and problem and isinstance(obj, dict):
            # A repaired object is read in its current version.
            patch = _patch(obj, problem[:_LONGEST_MESSAGE])
            if patch is not None:
                self._put(kind, key, patch)

    def _seen(self, type: str, obj: PodGroup | Queue | Any) -> None:
        if type == "DELETED" or not any(each.type == CONDITION for each in obj.status.conditions):
            return
        conditions = [each for each in dumped(obj.status)["conditions"] if each.get("type") != CONDITION]
        self._put(_kind(obj), obj.key, _conditions(obj.metadata.resource_version, conditions))

    def _put(self, kind: str, key: str, wanted: str | Object) -> None:
        if (kind, key) not in self._wanted:
            self._queue.put_nowait((kind, key))
        self._wanted[kind, key] = wanted

    async def _work(self) -> None:
        while True:
            kind, key = await self._queue.get()
            await self._bucket.wait()
            wanted = self._wanted.pop((kind, key))
            try:
                if isinstance(wanted, str):
                    await self._write_pod(key, wanted)
                else:
                    await self._write(kind, key, wanted)
            except (ApiError, *CONNECTION_ERRORS) as error:
                # The object has changed; the watch will tell.
                if not (isinstance(error, ApiError) and error.status in (404, 409)):
                    log.recurring("condition not written", error, kind=kind, key=key)

    async def _write(self, kind: str, key: str, patch: Object) -> None:
        path, body = object_path(kind, key), msgspec.json.encode(patch)
        try:
            await self._kube.persist("PATCH", f"{path}/status", body, MERGE_PATCH)
        except ApiError as error:
            if error.status != 404:
                raise
            # Volcano's PodGroup has no status subresource.
            await self._kube.persist("PATCH", path, body, MERGE_PATCH)

    async def _write_pod(self, key: str, problem: str) -> None:
        namespace, _, name = key.rpartition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod = await self._kube.get(path)
        spec, metadata = _mapping(pod, "spec"), _mapping(pod, "metadata")
        # kube-scheduler writes the conditions of its own pods, and a bound pod has been scheduled.
        if spec.get("nodeName") or spec.get("schedulerName") not in self._state.scheduler_names:
            return
        said = _find(_listed(_mapping(pod, "status")), "PodScheduled")
        is_ours = said is not None and said.get("reason") == REASON
        uid = str(metadata.get("uid") or "")
        if not problem and is_ours:
            await write_condition(self._kube, path, uid, {"type": "PodScheduled", "$patch": "delete"})
        elif problem and not (is_ours and said is not None and said.get("message") == problem):
            new = said is None or said.get("status") != "False"
            await write_unscheduled(self._kube, path, uid, REASON, problem, new=new)


def _kind(obj: PodGroup | Queue) -> str:
    """The kind of an object."""
    return "Queue" if isinstance(obj, Queue) else "PodGroup"


def _patch(obj: Mapping[str, Any], problem: str) -> Object | None:
    """The patch that writes an object's problem; None if the object has it already."""
    conditions = _listed(_mapping(obj, "status"))
    said = _find(conditions, CONDITION)
    if said is not None and said.get("message") == problem:
        return None
    since = said.get("lastTransitionTime") if said is not None else None
    condition = {"type": CONDITION, "status": "True", "reason": REASON, "message": problem}
    condition["lastTransitionTime"] = since or timestamp()
    others = [each for each in conditions if each is not said]
    return _conditions(_mapping(obj, "metadata").get("resourceVersion"), [*others, condition])


def _conditions(version: Any, conditions: Iterable[Object]) -> Object:
    return {"metadata": {"resourceVersion": version}, "status": {"conditions": list(conditions)}}


def _mapping(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = obj.get(key)
    return found if isinstance(found, dict) else {}


def _listed(status: Mapping[str, Any]) -> list[Object]:
    found = status.get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _find(conditions: Iterable[Object], type: str) -> Object | None:
    return next((each for each in conditions if each.get("type") == type), None)
