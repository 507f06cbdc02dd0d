"""List and watch: keeps the mirror in step with one kind of object.

A list is read in pages and then watched from its version. When the server no longer knows that version the list is
read anew, and what is missing in it is forgotten. Everything else is retried from where the watch broke off.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from msgspec import Raw, Struct

from stromboli.api import objects
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Kube, refusal, status_error
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer

log = Logger(__name__)

T = TypeVar("T")

#: seconds between attempts to list a kind that the API server does not have
_ABSENT_PERIOD = 60.0
_FORBIDDEN_PERIOD = 10.0
#: a watch is renewed after this many seconds, and given up after the other many of silence
_WATCH_SECONDS = (300, 600)
_SILENCE = 150.0
#: of a refused watch: ask again for the same version
_RESUMED = frozenset((429, 500, 502, 503))


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of object and where it is listed."""

    kind: str
    path: str
    #: what the JSON is decoded as
    type: Any = dict[str, Any]
    #: without it no session begins
    required: bool = False
    params: Mapping[str, str] = field(default_factory=dict)


CLUSTER_SOURCES = (
    Source("Pod", "/api/v1/pods", objects.Pod, required=True),
    Source("Node", "/api/v1/nodes", objects.Node, required=True),
    Source("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", objects.PriorityClass),
    Source("PersistentVolume", "/api/v1/persistentvolumes"),
    Source("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Source("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    Source("CSINode", "/apis/storage.k8s.io/v1/csinodes"),
    Source("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Source("ResourceQuota", "/api/v1/resourcequotas"),
    Source("ResourceClaim", "/apis/resource.k8s.io/v1/resourceclaims"),
    Source("ResourceSlice", "/apis/resource.k8s.io/v1/resourceslices"),
    Source("DeviceClass", "/apis/resource.k8s.io/v1/deviceclasses"),
    Source("Numatopology", "/apis/nodeinfo.volcano.sh/v1alpha1/numatopologies"),
    Source("NodeShard", "/apis/shard.volcano.sh/v1alpha1/nodeshards"),
)


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Identity(Struct):
    metadata: objects.Metadata


class _ExpiredError(Exception):
    """The version that was watched from is too old, or not known."""


class Reflector:
    """Keeps one kind in step; `synced` is set when its first list has been applied."""

    def __init__(self, kube: Kube, source: Source, mirror: Mirror, observer: Observer, *, page_size: int = 500) -> None:
        self.source = source
        self.synced = asyncio.Event()
        self._kube = kube
        self._mirror = mirror
        self._observer = observer
        self._page_size = page_size
        self._objects = msgspec.json.Decoder(source.type)
        event: Any = _Event
        self._events = msgspec.json.Decoder(event[source.type])
        self._backoff = Backoff(0.1, 10.0)

    async def run(self) -> None:
        """List and watch, until cancelled."""
        why = "start"
        while True:
            try:
                version = await self.list(why)
                await self._follow(version)
            except _ExpiredError:
                why = "expired"
            except ApiError as error:
                why, delay = self._refused(error)
                await asyncio.sleep(delay)
            except CONNECTION_ERRORS as error:
                why, delay = "disconnected", self._backoff.delay()
                log.warning("list failed", kind=self.source.kind, error=repr(error), retry=f"{delay:.1f}s")
                await asyncio.sleep(delay)

    async def list(self, why: str) -> str:
        """Apply the whole list; returns its version. Raises ApiError."""
        self._observer.relist(self.source.kind, why)
        listing = self._mirror.listing(self.source.kind)
        version, count = "", 0
        async for page in self._kube.pages(self.source.path, self.source.params, self._page_size):
            version = version or page.version
            for item in page.items or ():
                count += 1
                obj = self._decoded(item)
                if obj is None:
                    listing.keep(_key(item))
                else:
                    listing.add(obj)
            await asyncio.sleep(0)
        dropped = listing.complete()
        log.info("listed", kind=self.source.kind, why=why, objects=count, dropped=len(dropped))
        self._backoff.reset()
        self.synced.set()
        return version

    def _refused(self, error: ApiError) -> tuple[str, float]:
        """Why and when to list again."""
        kind, delay = self.source.kind, self._backoff.delay(error.retry_after)
        if error.status == 404 and not self.source.required:
            self.absent()
            return "absent", _ABSENT_PERIOD
        if error.status == 403 and not self.source.required:
            # Better to schedule without what we may not see than not at all.
            self.synced.set()
            delay = max(delay, _FORBIDDEN_PERIOD)
        log.warning("list refused", kind=kind, error=error, retry=f"{delay:.1f}s")
        return "refused", delay

    def absent(self) -> None:
        """The API server does not have this kind, so there is nothing of it."""
        self._mirror.listing(self.source.kind).complete()
        self.synced.set()

    async def _follow(self, version: str) -> None:
        """Watch from a version; ends with _ExpiredError, or with an ApiError that calls for a new list."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                async with aclosing(self._stream(version)) as stream:
                    async for line in stream:
                        read = time.perf_counter()
                        version = self._event(line) or version
                        self._observer.event_applied(self.source.kind, time.perf_counter() - read)
            except ApiError as error:
                if error.status == 410:
                    raise _ExpiredError from error
                if error.status not in _RESUMED:
                    raise
                log.info("watch refused", kind=self.source.kind, error=error)
                await asyncio.sleep(self._backoff.delay(error.retry_after))
                continue
            except CONNECTION_ERRORS as error:
                log.debug("watch broke off", kind=self.source.kind, error=repr(error))
            # Watches end after minutes by themselves; one that ends at once would otherwise be repeated at once.
            if loop.time() - started < 1.0:
                await asyncio.sleep(self._backoff.delay())
            else:
                self._backoff.reset()

    async def _stream(self, version: str) -> AsyncGenerator[bytes, None]:
        params = {
            **self.source.params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
        }
        async with self._kube.watch(self.source.path, params, _SILENCE) as answer:
            if answer.status >= 400:
                if answer.status == 401:
                    await self._kube.credentials.log_in_again()
                raise refusal(answer.status, answer.headers, await answer.read())
            async for line in lines(answer.content):
                yield line

    def _event(self, line: bytes) -> str:
        """Apply one event; returns the version that was reached, empty when it is not known."""
        try:
            event = self._events.decode(line)
        except msgspec.MsgspecError:
            return self._strange(line)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            self._mirror.event(self.source.kind, event.type, event.object)
        elif event.type == "ERROR":
            return self._strange(line)
        return _version(event.object)

    def _strange(self, line: bytes) -> str:
        """An event that does not hold an object of our kind, or not one that can be read."""
        event = msgspec.json.decode(line, type=_Event[Raw])
        if event.type == "ERROR":
            raise status_error(msgspec.json.decode(event.object))
        if self._decoded(event.object) is None and event.type == "DELETED":
            self._mirror.delete(self.source.kind, _key(event.object), _key(event.object))
        return msgspec.json.decode(event.object, type=_Identity).metadata.resource_version or ""

    def _decoded(self, item: Raw) -> Any:
        """The object, or None after saying what is wrong with it."""
        try:
            return self._objects.decode(item)
        except msgspec.ValidationError as error:
            self._mirror.set_aside(self.source.kind, _key(item), str(error))
            return None


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length; what follows the last newline is incomplete and left out."""
    unfinished: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        unfinished.append(first)
        for part in others:
            line = b"".join(unfinished)
            unfinished = [part]
            if line:
                yield line


def _version(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj.get("metadata", {}).get("resourceVersion") or "")
    return obj.metadata.resource_version or ""


def _key(item: Raw) -> str:
    """The key of an object of which only the metadata can be read."""
    try:
        meta = msgspec.json.decode(item, type=_Identity).metadata
    except msgspec.ValidationError:
        return "?"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
