"""Writes the status of PodGroups and Queues: only changed fields, only the latest values, one write per object at a
time.

Writes that are not urgent are delayed to collect further changes: most intermediate states of a starting gang are never
written.

With our CRD a PodGroup has a status subresource; with Volcano's it has none, and its status is written with the object.
No one else writes these fields, so patches carry no version, except for the state of a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from stromboli.api.crds import KINDS, SCHEDULING, Condition, PodGroup, PodGroupStatus, Queue, dumped
from stromboli.api.keys import namespace_of
from stromboli.api.objects import Metadata
from stromboli.live.api_server.client import CONNECTION_ERRORS, MERGE_PATCH, ApiError, Kube, Object, timestamp
from stromboli.live.api_server.json import Decoder
from stromboli.live.observer import Observer
from stromboli.live.process.fair_queue import FairQueue
from stromboli.live.process.limits import TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.process.workers import run_workers
from stromboli.live.reporting.state_field import write_state
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import object_key

log = Logger(__name__)

Key: TypeAlias = tuple[str, str]
"""Kind, and `NAMESPACE/NAME` or the name alone."""
_WORKERS = 8


class _Answer(Struct):
    metadata: Metadata


class _Named(Struct):
    name: str


class _Discovered(Struct):
    resources: list[_Named]


_ANSWER, _DISCOVERED = Decoder(_Answer), Decoder(_Discovered)
#: fields of a condition that change although the situation does not
_VOLATILE = ("lastTransitionTime", "transitionID")


@dataclass(frozen=True, slots=True)
class _Wanted:
    status: Object
    #: called after the write
    then: Callable[[], None] | None
    #: version of the object that the status depends on; empty if it is valid for any version
    version: str


class StatusWriter:
    """Takes the wanted fields of statuses, and writes them some time later."""

    def __init__(self, kube: Kube, mirror: Mirror, observer: Observer, rate: float) -> None:
        self._kube = kube
        self._observer = observer
        self._bucket = TokenBucket(rate)
        self._queue: FairQueue[Key] = FairQueue(lambda at: namespace_of(at[1]))
        self._wanted: dict[Key, _Wanted] = {}
        #: timers of delayed statuses
        self._waiting: dict[Key, asyncio.TimerHandle] = {}
        self._busy: dict[Key, _Wanted] = {}
        #: the last written status and the resulting version, until another client changes the object
        self._written: dict[Key, tuple[Object, str]] = {}
        #: whether a kind has a status subresource
        self._has_subresource: dict[str, bool] = {}
        for kind in ("PodGroup", "Queue"):
            mirror.listen(kind, partial(self._changed, kind))

    def put(
        self,
        kind: str,
        key: str,
        status: Object,
        *,
        patience: float = 0.0,
        then: Callable[[], None] | None = None,
        version: str = "",
    ) -> None:
        """Schedule a write of some fields of a status; other fields are left alone.

        With a `version` they are written only to that version of the object. The write may be delayed by `patience`
        seconds; a later call replaces it, and a shorter patience brings it forward. `then` is called afterwards.
        """
        at = (kind, key)
        wanted = _Wanted(status, then, version)
        if at not in self._wanted and self._is_known(at, wanted):
            return
        new = at not in self._wanted and at not in self._busy
        self._wanted[at] = wanted
        if patience:
            loop = asyncio.get_running_loop()
            waiting = self._waiting.get(at)
            if waiting is not None and waiting.when() > loop.time() + patience:
                waiting.cancel()
                new = True
            if new:
                self._waiting[at] = loop.call_later(patience, self._hurry, at)
        elif new:
            self._queue.put_nowait(at)
        else:
            self._hurry(at)

    def withdraw(self, kind: str, but: Collection[str]) -> None:
        """Drop the delayed statuses of objects that are not in `but`: they no longer apply."""
        for at in [at for at in self._waiting if at[0] == kind and at[1] not in but]:
            self._waiting.pop(at).cancel()
            del self._wanted[at]

    def _hurry(self, at: Key) -> None:
        """Write a delayed status without further delay."""
        waiting = self._waiting.pop(at, None)
        if waiting is not None:
            waiting.cancel()
            self._queue.put_nowait(at)

    def _is_known(self, at: Key, wanted: _Wanted) -> bool:
        """Whether a status is being written, or was the last one written."""
        busy = self._busy.get(at)
        if busy is not None:
            return busy.version == wanted.version and comparable(busy.status) == comparable(wanted.status)
        return at in self._written and comparable(self._written[at][0]) == comparable(wanted.status)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers("status", _WORKERS, self._work)

    async def _work(self) -> None:
        while True:
            at = await self._queue.get()
            await self._bucket.wait()
            wanted = self._wanted.pop(at)
            self._busy[at] = wanted
            try:
                await self._write(at, wanted)
            except (ApiError, *CONNECTION_ERRORS) as error:
                result = _result(error, wanted)
                self._observer.status_result(at[0], result)
                if result == "failed":
                    # The next session sees the old status and decides again.
                    log.recurring("status not written", error, kind=at[0], key=at[1])
            else:
                if wanted.then is not None:
                    wanted.then()
            finally:
                del self._busy[at]
            if at in self._wanted:
                self._queue.put_nowait(at)

    async def _write(self, at: Key, wanted: _Wanted) -> None:
        try:
            answer = await self._send(at, wanted)
        except ApiError as error:
            if error.status == 404:
                # The object was deleted, or its CRD was replaced by one with another subresource.
                self._has_subresource.pop(at[0], None)
            raise
        self._written[at] = (wanted.status, _version(answer))
        self._observer.status_result(at[0], "written")

    async def _send(self, at: Key, wanted: _Wanted) -> bytes:
        """Write the fields of a status; returns the updated object."""
        kind, key = at
        path, fields, version = object_path(kind, key), wanted.status, wanted.version
        target = f"{path}/status" if await self._subresource(kind) else path
        if kind != "Queue" or "state" not in fields or target == path:
            return await self._patch(target, fields, version)
        counts = {name: value for name, value in fields.items() if name != "state"}
        if counts:
            # First, so that a queue is not shown as closed with the PodGroups that it had.
            answer = await self._patch(target, counts, version)
            version = version and _version(answer)
        return await write_state(self._kube, key, fields["state"], version)

    async def _patch(self, target: str, fields: Object, version: str) -> bytes:
        """Merge fields into a status; with a `version` only if that is the object's."""
        holds = {"metadata": {"resourceVersion": version}} if version else {}
        body = msgspec.json.encode({**holds, "status": fields})
        try:
            return await self._kube.persist("PATCH", target, body, MERGE_PATCH)
        except ApiError as error:
            if error.status != 409 or version:
                raise
            return await self._kube.persist("PATCH", target, body, MERGE_PATCH)

    async def _subresource(self, kind: str) -> bool:
        if kind not in self._has_subresource:
            found = _DISCOVERED.decode(await self._kube.request("GET", f"/apis/{SCHEDULING}"))
            names = {resource.name for resource in found.resources}
            self._has_subresource[kind] = f"{KINDS[kind].plural}/status" in names
        return self._has_subresource[kind]

    def _changed(self, kind: str, type: str, obj: PodGroup | Queue | str) -> None:
        if isinstance(obj, str) or type == "DELETED":
            key = obj if isinstance(obj, str) else object_key(obj)
            self._written.pop((kind, key), None)
            return
        written = self._written.get((kind, obj.key))
        if written is not None and written[1] != obj.metadata.resource_version:
            del self._written[kind, obj.key]


def _version(answer: bytes) -> str:
    """The resource version of an object that the API server answered with."""
    return _ANSWER.decode(answer).metadata.resource_version or ""


def _result(error: Exception, wanted: _Wanted) -> str:
    """Classify a failed write, for metrics."""
    status = error.status if isinstance(error, ApiError) else 0
    if status == 404:
        return "gone"
    return "outdated" if status == 409 and wanted.version else "failed"


def object_path(kind: str, key: str) -> str:
    """The API path of an object of the scheduling group."""
    namespace, _, name = key.rpartition("/")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{SCHEDULING}{within}/{KINDS[kind].plural}/{name}"


def pod_group_fields(status: PodGroupStatus, pod_group: PodGroup | None) -> Object:
    """The status to write, with its observed generation and the transition times of conditions."""
    fields = dumped(status)
    if "conditions" in fields:
        fields["conditions"] = condition_fields(status.conditions, pod_group)
    return fields


def condition_fields(conditions: Iterable[Condition], of: PodGroup | Queue | None) -> list[Object]:
    """The conditions to write, with their observed generation and transition times."""
    known: Sequence[Condition] = of.status.conditions if of else ()
    before = {condition.type: condition for condition in known}
    out = []
    for fields in map(dumped, conditions):
        if of and of.metadata.generation:
            fields["observedGeneration"] = of.metadata.generation
        if not fields.get("lastTransitionTime"):
            old = before.get(fields["type"])
            unchanged = old is not None and old.status == fields.get("status")
            fields["lastTransitionTime"] = timestamp(
                old.last_transition_time if old is not None and unchanged else None
            )
        out.append(fields)
    return out


def comparable(status: Mapping[str, Any]) -> Object:
    """A status without the fields that change although the situation does not."""
    conditions = [
        {k: v for k, v in condition.items() if k not in _VOLATILE} for condition in status.get("conditions", ())
    ]
    return {**status, "conditions": conditions}
