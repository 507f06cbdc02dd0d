"""List and watch: keeps the mirror in step with one kind of object.

A list is read in pages and then watched from its version. A watch that ends is taken up where it broke off; when the
server no longer knows that version, or says what nobody can read, the list is read anew, and what is missing in it is
forgotten. Nothing that a server says or leaves out ends a reflector: it tries again, each time after a longer pause,
and tells how long it has been out of step.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from msgspec import Raw, Struct

from stromboli.api import objects
from stromboli.api.crds import SCHEDULING, TOPOLOGY
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Kube, refusal, status_error
from stromboli.live.json import Decoder
from stromboli.live.limits import Backoff
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer
from stromboli.live.versions import is_older, version_of

log = Logger(__name__)

T = TypeVar("T")

#: seconds between attempts to list a kind that the API server does not have
_ABSENT_PERIOD = 20.0
_FORBIDDEN_PERIOD = 10.0
#: a watch that is open for so many seconds works; one that then needs a new list has been worth the last
_LASTING = 1.0
_STEADY = 5.0
#: after so many seconds a watch has told what happened before it was opened
_CAUGHT_UP = 0.25
#: where watches soon fail, lists are repeated after two seconds, or so that they take a twentieth of the time
_LIST_SHARE = 0.05
_SOON = 2.0
#: a watch is renewed after this many seconds, and given up after the other many of silence
_WATCH_SECONDS = (300, 600)
_SILENCE = 150.0
#: when for so many seconds all lists are older than what was seen, the server was restored from a backup
_RESTORED = 30.0
#: of a refused watch: ask again for the same version
_RESUMED = frozenset((429, 500, 502, 503, 504))
#: the types of events that tell of an object
_CHANGES = ("ADDED", "MODIFIED", "DELETED")


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
    #: where else it may be: other versions, to be tried in turn
    others: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it may be."""
        return (self.path, *self.others)


def _devices(kind: str, plural: str) -> Source:
    """A kind of which older clusters have other versions; what is read of them tells the versions apart."""
    path, *others = (f"/apis/resource.k8s.io/{version}/{plural}" for version in ("v1", "v1beta2", "v1beta1"))
    return Source(kind, path, others=tuple(others))


SOURCES = (
    Source("Pod", "/api/v1/pods", objects.Pod, required=True),
    Source("Node", "/api/v1/nodes", objects.Node, required=True),
    Source("Queue", f"/apis/{SCHEDULING}/queues", required=True),
    Source("PodGroup", f"/apis/{SCHEDULING}/podgroups", required=True),
    Source("HyperNode", f"/apis/{TOPOLOGY}/hypernodes"),
    Source("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", objects.PriorityClass),
    Source("PersistentVolume", "/api/v1/persistentvolumes"),
    Source("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Source("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    Source("CSINode", "/apis/storage.k8s.io/v1/csinodes"),
    Source("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers"),
    Source("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities"),
    Source("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments"),
    Source("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Source("ResourceQuota", "/api/v1/resourcequotas"),
    _devices("ResourceClaim", "resourceclaims"),
    _devices("ResourceSlice", "resourceslices"),
    _devices("DeviceClass", "deviceclasses"),
    Source("DeviceTaintRule", "/apis/resource.k8s.io/v1/devicetaintrules"),
    Source("Numatopology", "/apis/nodeinfo.volcano.sh/v1alpha1/numatopologies"),
    Source("NodeShard", "/apis/shard.volcano.sh/v1alpha1/nodeshards"),
)
#: what people ask of the service; no session looks at it
COMMANDS = Source("Command", "/apis/bus.volcano.sh/v1alpha1/commands")


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Identity(Struct):
    metadata: objects.Metadata


_STRANGE, _IDENTITY = Decoder(_Event[Raw]), Decoder(_Identity)


class _WatchError(Exception):
    """A watch that told of an error, or what cannot be read: only a new list can help."""

    def __init__(self, why: str, error: object) -> None:
        super().__init__(str(error))
        self.why = why


class _OldListError(Exception):
    """A list that is older than what was seen before; pods that were bound meanwhile would be free again."""


class Reflector:
    """Keeps one kind in step; `synced` is set when its first list has been applied."""

    def __init__(
        self,
        kube: Kube,
        source: Source,
        mirror: Mirror,
        observer: Observer,
        *,
        page_size: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        #: where it may be, first where it was last
        self._places = deque(source.paths)
        #: in how many places it was not, in a row
        self._misses = 0
        self.synced = asyncio.Event()
        self._kube = kube
        self._mirror = mirror
        self._observer = observer
        self._page_size = page_size
        self._clock = clock
        self._objects = Decoder(source.type)
        event: Any = _Event
        self._events = Decoder(event[source.type])
        self._resuming, self._listing = Backoff(0.1, 10.0), Backoff(0.1, 10.0)
        #: when everything up to then was last known to be applied
        self._in_step = clock()
        #: when the last list that was applied was asked for
        self._listed = -math.inf
        #: since when the watch is open, None while there is none
        self._opened: float | None = None
        #: up to where everything was applied, and since when all lists are older
        self._version = ""
        self._older_since: float | None = None
        #: what hindered last
        self._problem = ""

    @property
    def path(self) -> str:
        """Where it is, as far as that is known."""
        return self._places[0]

    async def run(self) -> None:
        """List and watch, until cancelled."""
        why = "start"
        while True:
            least, longest = None, math.inf
            try:
                took = await self.list(why)
                await self._follow()
            except _WatchError as error:
                why = self._failed("watch failed", error.why, error)
                longest = max(_SOON, took / _LIST_SHARE)
            except _OldListError as error:
                why = self._failed("list not used", "old", error)
            except ApiError as error:
                why, least = self._refused(error)
            except CONNECTION_ERRORS as error:
                why = self._failed("list failed", "disconnected", error)
            except Exception as error:
                # A mistake of ours, about one answer: that is no reason to give up the kind.
                log.recurring("reflector failed", error, traced=True, kind=self.source.kind)
                why, self._problem = "failed", repr(error)
            await asyncio.sleep(min(self._listing.delay(least), longest))

    def has_seen(self, moment: float) -> bool:
        """Whether what happened up to some moment of the clock is applied, as far as can be told."""
        return self._listed >= moment or self._follows(_CAUGHT_UP)

    def _follows(self, least: float) -> bool:
        """Whether the watch is open for so many seconds."""
        return self._opened is not None and self._clock() - self._opened >= least

    def trouble(self, patience: float) -> str:
        """Why this kind cannot be relied on, empty when it can: it was never listed, or not in step for `patience`."""
        if self._follows(_LASTING):
            return ""
        behind = self._clock() - self._in_step
        if self.synced.is_set() and behind < patience:
            return ""
        what = "out of step" if self.synced.is_set() else "not listed"
        return f"{self.source.kind}: {what} for {behind:.0f} s: {self._problem or 'no answer yet'}"

    async def list(self, why: str) -> float:
        """Apply the whole list; returns the seconds it took. Raises ApiError, and _OldListError before any change."""
        self._observer.relist(self.source.kind, why)
        began = self._clock()
        listing = self._mirror.listing(self.source.kind)
        version, count = "", 0
        async for page in self._kube.pages(self.path, self.source.params, self._page_size):
            if not version:
                version = page.version
                self._require_newer(version)
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
        self._listed, self._in_step = began, self._clock()
        self._misses = 0
        self._version = version
        self.synced.set()
        return self._in_step - began

    def _require_newer(self, version: str) -> None:
        """Raises _OldListError for the version of a list from before what was seen."""
        if not is_older(version, self._version):
            self._older_since = None
            return
        now = self._clock()
        if self._older_since is None:
            self._older_since = now
        if now - self._older_since < _RESTORED:
            raise _OldListError(f"version {version} is older than {self._version}")

    def _refused(self, error: ApiError) -> tuple[str, float]:
        """Why to list again, and the seconds to wait at least."""
        source = self.source
        if error.status == 404:
            self._places.rotate(-1)
            self._misses += 1
            if self._misses % len(self._places):
                return "version", 0.0
        if error.status == 404 and not source.required:
            # The API server does not have this kind, so there is nothing of it.
            self._mirror.listing(source.kind).complete()
            self.synced.set()
            return "absent", _ABSENT_PERIOD
        why = "absent" if error.status == 404 else "refused"
        self._failed("list refused", why, f"{error}{_remedy(source, error.status)}")
        if error.status == 403 and not source.required:
            # Better to schedule without what we may not see than not at all.
            self.synced.set()
            return why, _FORBIDDEN_PERIOD
        return why, error.retry_after or 0.0

    def _failed(self, event: str, why: str, error: object) -> str:
        self._problem = str(error) or repr(error)
        log.recurring(event, self._problem, kind=self.source.kind)
        return why

    async def _follow(self) -> None:
        """Watch from where that ended before; ends with _WatchError, or with an ApiError that calls for a new list."""
        while True:
            least, problem, before = None, "the watch ended at once", self._version
            try:
                async with aclosing(self._stream(self._version)) as stream:
                    async for some in stream:
                        read = time.perf_counter()
                        for line in some:
                            self._version = self._event(line) or self._version
                            self._observer.event_applied(self.source.kind, time.perf_counter() - read)
                        self._in_step = self._clock()
            except ApiError as error:
                if error.status == 410:
                    raise _WatchError("expired", error) from error
                if error.status not in _RESUMED:
                    raise
                least, problem = error.retry_after, str(error)
            except CONNECTION_ERRORS as error:
                problem = str(error) or repr(error)
            finally:
                lasted = self._closed()
            # Watches end after minutes by themselves; those that end at once would otherwise be repeated at once. One
            # that told of something has to be taken up soon: what it did not come to is ever more.
            if self._version != before:
                self._resuming.reset()
            if not lasted:
                self._problem = problem
                log.recurring("watch broke off", problem, kind=self.source.kind)
            await asyncio.sleep(self._resuming.delay(least))

    def _closed(self) -> bool:
        """The watch has ended; returns whether it was one. Then everything up to now was applied."""
        now, opened = self._clock(), self._opened
        self._opened = None
        if opened is None or now - opened < _LASTING:
            return False
        self._in_step = now
        self._resuming.reset()
        if now - opened >= _STEADY:
            self._listing.reset()
        return True

    async def _stream(self, version: str) -> AsyncGenerator[Sequence[bytes], None]:
        params = {
            **self.source.params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
        }
        async with self._kube.watch(self.path, params, _SILENCE) as answer:
            if answer.status >= 400:
                if answer.status == 401:
                    await self._kube.credentials.log_in_again()
                raise refusal(answer.status, answer.headers, await answer.read())
            self._opened = self._clock()
            async for some in lines(answer.content):
                yield some

    def _event(self, line: bytes) -> str:
        """Apply one event; returns the version that was reached, empty when it is not known. Raises _WatchError."""
        try:
            event = self._events.decode(line)
        except msgspec.MsgspecError:
            return self._strange(line)
        if event.type == "ERROR" or not _is_named(event.object):
            return self._strange(line)
        if event.type in _CHANGES:
            self._mirror.event(self.source.kind, event.type, event.object)
        return version_of(event.object)

    def _strange(self, line: bytes) -> str:
        """An event that does not hold an object of our kind, or not one that can be read."""
        try:
            event = _STRANGE.decode(line)
            if event.type == "ERROR":
                error = status_error(msgspec.json.decode(event.object))
                raise _WatchError("expired" if error.status == 410 else "error", error)
            version = _IDENTITY.decode(event.object).metadata.resource_version
        except msgspec.DecodeError as error:
            raise _WatchError("unreadable", error) from error
        if event.type in _CHANGES and self._decoded(event.object) is None and event.type == "DELETED":
            self._mirror.delete(self.source.kind, _key(event.object), _key(event.object))
        return version or ""

    def _decoded(self, item: Raw) -> Any:
        """The object, or None after saying what is wrong with it."""
        try:
            obj = self._objects.decode(item)
        except msgspec.DecodeError as error:
            problem = str(error)
        else:
            if _is_named(obj):
                return obj
            problem = "metadata: has no name"
        self._mirror.set_aside(self.source.kind, _key(item), problem)
        return None


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """The lines of a stream, of any length, as many at a time as have come; what follows the last newline is incomplete
    and left out."""
    unfinished: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        unfinished.append(first)
        if others:
            ended = [b"".join(unfinished), *others]
            unfinished = [ended.pop()]
            yield [line for line in ended if line]


def _remedy(source: Source, status: int) -> str:
    """What whoever runs the cluster can do about a refusal."""
    resource = source.path.rpartition("/")[2]
    if status == 404:
        return f"; {resource} are defined by: kubectl apply -f charts/stromboli/files/crds"
    if status == 403:
        return f"; the right to list and watch {resource} comes with: helm upgrade --install stromboli charts/stromboli"
    return ""


def _is_named(obj: Any) -> bool:
    """Whether an object that was decoded without a schema can be told from others."""
    if not isinstance(obj, dict):
        return True
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _key(item: Raw) -> str:
    """The key of an object of which only the metadata can be read."""
    try:
        return _IDENTITY.decode(item).metadata.key
    except msgspec.DecodeError:
        return "?"
