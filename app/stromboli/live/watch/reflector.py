"""List and watch: keeps the mirror in sync with one kind of object.

A list is read in pages and then watched from its version. A watch that ends is resumed where it stopped; when the
server has forgotten that version, or sends an unreadable event, the list is read again, and missing objects are
removed. No answer of a server terminates a reflector: it retries with growing delays and reports how long it has been
out of sync.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from msgspec import Raw, Struct

from stromboli.api import objects
from stromboli.api.errors import in_words
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, refusal, status_error
from stromboli.live.api_server.json import Decoder
from stromboli.live.api_server.versions import is_older, version_of
from stromboli.live.observer import Observer
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.watch.mirror import Applied
from stromboli.live.watch.sources import Source

log = Logger(__name__)

T = TypeVar("T")

#: seconds between attempts to list a kind that the API server does not serve
_ABSENT_PERIOD = 20.0
_FORBIDDEN_PERIOD = 10.0
#: after this many seconds an open watch counts as working, and after the second number a new list has paid off
_LASTING = 1.0
_STEADY = 5.0
#: after this many seconds a watch has delivered all events from before it was opened
_CAUGHT_UP = 0.25
#: where watches keep failing, a list is repeated after two seconds, or so rarely that lists take a twentieth of the
#: time
_LIST_SHARE = 0.05
_SOON = 2.0
#: range of a watch's duration in seconds, and of the silence after which it is abandoned
_WATCH_SECONDS = (300, 600)
_SILENCE = 150.0
#: if all lists are older than the known version for this many seconds, the server was restored from a backup
_RESTORED = 30.0
#: refusals of a watch after which the same version is requested again
_RESUMED = frozenset((429, 500, 502, 503, 504))
#: events that are applied in one pass of the event loop
_IN_A_PASS = 8
#: types of events that carry an object
_CHANGES = ("ADDED", "MODIFIED", "DELETED")


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Identity(Struct):
    metadata: objects.Metadata


_STRANGE, _IDENTITY = Decoder(_Event[Raw]), Decoder(_Identity)


class _WatchError(Exception):
    """The watch sent an error or something unreadable, so that a new list is needed."""

    def __init__(self, why: str, error: object) -> None:
        super().__init__(str(error))
        self.why = why


class _OldListError(Exception):
    """The list is older than the known version; applying it would show bound pods as unbound."""


class Reflector:
    """Keeps one kind in sync; `synced` is set after its first list was applied."""

    def __init__(
        self,
        kube: Kube,
        source: Source,
        mirror: Applied,
        observer: Observer,
        *,
        page_size: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        #: the paths to try, the last successful one first
        self._places = deque(source.paths)
        #: number of consecutive paths that were not found
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
        #: time up to which all changes were last known to be applied
        self._in_step = clock()
        #: start of the last list that was applied
        self._listed = -math.inf
        #: when the watch was opened, None while there is none
        self._opened: float | None = None
        #: version up to which everything was applied, and since when all lists are older
        self._version = ""
        self._older_since: float | None = None
        #: the latest problem
        self._problem = ""

    @property
    def path(self) -> str:
        """The path in use, as far as known."""
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
                why = self._failed("list ignored", "old", error)
            except ApiError as error:
                why, least = self._refused(error)
            except CONNECTION_ERRORS as error:
                why = self._failed("list failed", "disconnected", error)
            except Exception as error:
                # A bug of ours in handling one answer must not end the watch of this kind.
                log.recurring("reflector failed", error, traced=True, kind=self.source.kind)
                why, self._problem = "failed", repr(error)
            await asyncio.sleep(min(self._listing.delay(least), longest))

    def has_seen(self, moment: float) -> bool:
        """Whether all changes up to a moment of the clock seem to be applied."""
        return self._listed >= moment or self._follows(_CAUGHT_UP)

    def _follows(self, least: float) -> bool:
        """Whether the watch has been open for at least this many seconds."""
        return self._opened is not None and self._clock() - self._opened >= least

    def trouble(self, patience: float) -> str:
        """Why this kind is out of date, empty if it is not: it was never listed, or is out of sync for `patience`
        seconds."""
        if self._follows(_LASTING):
            return ""
        behind = self._clock() - self._in_step
        if self.synced.is_set() and behind < patience:
            return ""
        what = "out of sync" if self.synced.is_set() else "not listed"
        return f"{self.source.kind}: {what} for {behind:.0f} s: {self._problem or 'no answer yet'}"

    async def list(self, why: str) -> float:
        """Apply a complete list; returns its duration in seconds. Raises ApiError, and _OldListError before any
        change."""
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
        dropped = listing.complete(version)
        log.info("listed", kind=self.source.kind, why=why, objects=count, dropped=len(dropped))
        self._listed, self._in_step = began, self._clock()
        self._misses = 0
        self._version = version
        self.synced.set()
        return self._in_step - began

    def _require_newer(self, version: str) -> None:
        """Raises _OldListError if a list is older than the known version."""
        if not is_older(version, self._version):
            self._older_since = None
            return
        now = self._clock()
        if self._older_since is None:
            self._older_since = now
        if now - self._older_since < _RESTORED:
            raise _OldListError(f"version {version} is older than {self._version}")

    def _refused(self, error: ApiError) -> tuple[str, float]:
        """The cause of the next list, and the minimum delay in seconds."""
        source = self.source
        if error.status == 404:
            self._places.rotate(-1)
            self._misses += 1
            if self._misses % len(self._places):
                return "version", 0.0
        if error.status == 404 and not source.required:
            # The API server does not serve this kind, so there are no objects.
            self._mirror.listing(source.kind).complete()
            self.synced.set()
            return "absent", _ABSENT_PERIOD
        why = "absent" if error.status == 404 else "refused"
        self._failed("list refused", why, f"{error}{_remedy(source, error.status)}")
        if error.status == 403 and not source.required:
            # Scheduling without this kind is better than not scheduling.
            self.synced.set()
            return why, _FORBIDDEN_PERIOD
        return why, error.retry_after or 0.0

    def _failed(self, event: str, why: str, error: object) -> str:
        self._problem = in_words(error)
        log.recurring(event, self._problem, kind=self.source.kind)
        return why

    async def _follow(self) -> None:
        """Watch from the known version. Raises _WatchError or ApiError when a new list is needed."""
        while True:
            least, problem, before = None, "the watch ended at once", self._version
            try:
                async with aclosing(self._stream(self._version)) as stream:
                    async for some in stream:
                        await self._apply(some)
                        self._in_step = self._clock()
            except ApiError as error:
                if error.status == 410:
                    raise _WatchError("expired", error) from error
                if error.status not in _RESUMED:
                    raise
                least, problem = error.retry_after, str(error)
            except CONNECTION_ERRORS as error:
                problem = in_words(error)
            finally:
                lasted = self._closed()
            # A watch ends on its own after minutes; one that ends at once is resumed with a delay. After events the
            # delay is short, since a slow client falls further behind.
            if self._version != before:
                self._resuming.reset()
            if not lasted:
                self._problem = problem
                log.recurring("watch interrupted", problem, kind=self.source.kind)
            await asyncio.sleep(self._resuming.delay(least))

    async def _apply(self, some: Sequence[bytes]) -> None:
        """Apply events that came together, letting other tasks run in between. Raises _WatchError."""
        read = time.perf_counter()
        for number, line in enumerate(some, 1):
            self._version = self._event(line) or self._version
            self._observer.event_applied(self.source.kind, time.perf_counter() - read)
            if number % _IN_A_PASS == 0:
                await asyncio.sleep(0)

    def _closed(self) -> bool:
        """The watch has ended; returns whether it had worked, in which case all changes up to now are applied."""
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
        """Apply one event; returns the version reached, empty if unknown. Raises _WatchError."""
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
        """Handle an error event, or an event whose object cannot be read."""
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
        """The decoded object, or None after reporting its problem."""
        try:
            obj = self._objects.decode(item)
        except msgspec.DecodeError as error:
            problem = str(error)
        else:
            if _is_named(obj):
                return obj
            problem = "metadata.name: is missing"
        self._mirror.set_aside(self.source.kind, _key(item), problem)
        return None


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """The complete lines of a stream, as many at a time as have arrived; an incomplete last line is dropped."""
    unfinished: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        unfinished.append(first)
        if others:
            ended = [b"".join(unfinished), *others]
            unfinished = [ended.pop()]
            yield [line for line in ended if line]


def _remedy(source: Source, status: int) -> str:
    """Advice to the administrator about a refusal."""
    resource = source.path.rpartition("/")[2]
    if status == 404:
        return f"; install the CRD of {resource} with: kubectl apply -f charts/stromboli/files/crds"
    if status == 403:
        return f"; grant the right to list and watch {resource} with: helm upgrade --install stromboli charts/stromboli"
    return ""


def _is_named(obj: Any) -> bool:
    """Whether an object that was decoded without a schema has a name."""
    if not isinstance(obj, dict):
        return True
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def _key(item: Raw) -> str:
    """The key of an object whose metadata alone can be read."""
    try:
        return _IDENTITY.decode(item).metadata.key
    except msgspec.DecodeError:
        return "?"
