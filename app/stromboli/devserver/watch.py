"""Watches: a chunked answer that follows a resource's event log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator

from aiohttp import web

from .errors import ApiError
from .options import ListOptions
from .representation import Full, Representation
from .selectors import Matcher
from .store import Collection, Event, EventType, Store, Stored, encode, watch_line

DEFAULT_TIMEOUT = 1800.0
_LAST_BOOKMARK_SECONDS = 2.0
#: bytes of initial events that are sent in one piece
_CHUNK = 1 << 20


class Watch:
    """One client's view of a collection: the objects of a namespace, or all, that `matches` lets through."""

    def __init__(
        self,
        store: Store,
        collection: Collection,
        namespace: str,
        options: ListOptions,
        matches: Matcher | None,
        representation: Representation,
        bookmark_seconds: float,
    ) -> None:
        self._store = store
        self._collection = collection
        self._namespace = namespace
        self._options = options
        self._matches = matches
        self._representation = representation
        self._bookmark_seconds = bookmark_seconds
        # Without a selector or another representation, objects go out as they were encoded once for all.
        self._verbatim = matches is None and not namespace and isinstance(representation, Full)

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers with events until the client goes, its timeout is over, or its position is lost (410)."""
        self._options.check_reached(self._store.version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            await self._follow(response, await self._begin(response))
        except ApiError as error:
            await response.write(watch_line("ERROR", encode(error.status())))
        except ConnectionResetError:
            return response  # the client has gone
        await response.write_eof()
        return response

    async def _begin(self, response: web.StreamResponse) -> int:
        """Sends the objects that there are, if the client wants them; returns where in the log to go on."""
        log, options = self._collection.log, self._options
        if options.version and not options.initial_events:
            return log.after_version(options.version)
        position, version = log.end, self._store.version
        if options.initial_events is False:
            return position
        objects = list(self._collection.ordered(self._namespace))
        for chunk in _chunks(self._initial_lines(objects)):
            await response.write(chunk)
        if options.initial_events and options.bookmarks:
            await response.write(self._bookmark(version, initial_events_end=True))
        return position

    async def _follow(self, response: web.StreamResponse, position: int) -> None:
        """Sends events as they happen, and bookmarks: now and then, and shortly before the end."""
        log, bookmarks = self._collection.log, self._options.bookmarks
        began = time.monotonic()
        deadline = began + (self._options.timeout_seconds or DEFAULT_TIMEOUT)
        bookmark_due = min(began + self._bookmark_seconds, deadline - _LAST_BOOKMARK_SECONDS)
        while not log.closed and (now := time.monotonic()) < deadline:
            if events := log.since(position):
                position += len(events)
                if chunk := self._lines(events):
                    await response.write(chunk)
            elif bookmarks and now >= bookmark_due:
                bookmark_due = now + self._bookmark_seconds
                await response.write(self._bookmark(self._store.version))
            else:
                wake = min(bookmark_due, deadline) if bookmarks else deadline
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wake - now):
                        await log.wait(position)

    def _initial_lines(self, objects: Iterable[Stored]) -> Iterator[bytes]:
        for stored in objects:
            if self._selects(stored):
                yield watch_line("ADDED", self._representation.object(stored))

    def _lines(self, events: Iterable[Event]) -> bytes:
        if self._verbatim:
            return b"".join([event.line() for event in events])
        return b"".join([line for event in events if (line := self._line(event))])

    def _line(self, event: Event) -> bytes:
        """The event as this watcher sees it: what enters or leaves its selection is added or deleted."""
        before = event.previous is not None and self._selects(event.previous)
        now = event.type != "DELETED" and self._selects(event.stored)
        if not before and not now:
            return b""
        kind: EventType = "MODIFIED" if before and now else "ADDED" if now else "DELETED"
        stored = event.stored
        if kind == "DELETED" and event.type != "DELETED" and event.previous is not None:
            stored = _at_version(event.previous, event.version)
        return watch_line(kind, self._representation.object(stored))

    def _selects(self, stored: Stored) -> bool:
        if self._namespace and stored.key[0] != self._namespace:
            return False
        return self._matches is None or self._matches(stored.body)

    def _bookmark(self, version: int, *, initial_events_end: bool = False) -> bytes:
        bookmark = self._representation.bookmark(version, initial_events_end=initial_events_end)
        return watch_line("BOOKMARK", bookmark)


def _at_version(stored: Stored, version: int) -> Stored:
    metadata = {**stored.body["metadata"], "resourceVersion": str(version)}
    body = {**stored.body, "metadata": metadata}
    return Stored(stored.key, version, body, encode(body))


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    pending: list[bytes] = []
    size = 0
    for line in lines:
        pending.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
