"""Objects in memory and the log of their changes.

One increasing resourceVersion counts the writes to all resources. An object is immutable and carries its
JSON, encoded once: gets, lists and watches only join those bytes. Each resource has one event log that all
its watchers read, each from a position of its own, so a watcher costs nothing while nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec

from .errors import expired
from .resources import Object, Resource

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Key: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is ""."""

encode = msgspec.json.encode


@dataclass(slots=True, eq=False)
class Stored:
    """One version of one object."""

    key: Key
    version: int
    body: Object
    raw: bytes


@dataclass(slots=True, eq=False)
class Event:
    """One change: `stored` is the new version, of a deletion the last one with the deletion's version."""

    version: int
    type: EventType
    stored: Stored
    previous: Stored | None

    def line(self) -> bytes:
        return watch_line(self.type, self.stored.raw)


def watch_line(kind: str, raw: bytes) -> bytes:
    """One line of a watch: the event type and the encoded object."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), raw)


class EventLog:
    """The latest changes of one resource; positions count events since the server began."""

    def __init__(self, limit: int, floor: int) -> None:
        self._limit = limit
        self._events: list[Event] = []
        #: position of `_events[0]`
        self._first = 0
        #: the newest version that is not, or no longer, in the log
        self._floor = floor
        self._changed = asyncio.Event()
        self.closed = False

    @property
    def end(self) -> int:
        return self._first + len(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)
        # Trimming in halves keeps the cost of an append constant.
        if len(self._events) > 2 * self._limit:
            surplus = len(self._events) - self._limit
            self._floor = self._events[surplus - 1].version
            self._first += surplus
            del self._events[:surplus]
        self._changed.set()

    def close(self) -> None:
        """Ends all waiting: `wait` returns at once from now on."""
        self.closed = True
        self._changed.set()

    def after_version(self, version: int) -> int:
        """Position of the first event newer than `version`; Expired (410) when that is no longer known."""
        if version < self._floor:
            raise expired(f"too old resource version: {version} ({self._floor + 1})")
        return self._first + bisect_right(self._events, version, key=attrgetter("version"))

    def since(self, position: int) -> list[Event]:
        """All events from `position` on; Expired (410) when the reader was too slow."""
        if position < self._first:
            raise expired("too old resource version: the watcher is slower than the changes")
        return self._events[position - self._first :]

    async def wait(self, position: int) -> None:
        """Returns when there is an event at `position`, or the log has been closed."""
        while self.end <= position and not self.closed:
            self._changed.clear()
            await self._changed.wait()


class Collection:
    """All objects of one resource."""

    def __init__(self, resource: Resource, log: EventLog) -> None:
        self.resource = resource
        self.log = log
        self._objects: dict[Key, Stored] = {}
        #: number of objects in each namespace
        self._counts: Counter[str] = Counter()
        #: keys for lists, until a change makes them anew
        self._keys: list[Key] | None = None
        self._ordered: list[Stored] | None = None
        self._joined: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def count(self, namespace: str) -> int:
        """Number of objects in the namespace."""
        return self._counts[namespace]

    def get(self, key: Key) -> Stored | None:
        return self._objects.get(key)

    def oldest(self) -> Stored:
        """The object that was created first."""
        return next(iter(self._objects.values()))

    def put(self, stored: Stored, previous: Stored | None) -> None:
        self._objects[stored.key] = stored
        if previous is None:
            self._counts[stored.key[0]] += 1
            self._keys = None
        self._record(Event(stored.version, "MODIFIED" if previous else "ADDED", stored, previous))

    def remove(self, last: Stored, previous: Stored) -> None:
        del self._objects[last.key]
        self._counts[last.key[0]] -= 1
        self._keys = None
        self._record(Event(last.version, "DELETED", last, previous))

    def ordered(self, namespace: str = "") -> Sequence[Stored]:
        """The objects by (namespace, name), all of them or those of one namespace."""
        if self._keys is None:
            self._keys = sorted(self._objects)
        if self._ordered is None:
            self._ordered = [self._objects[key] for key in self._keys]
        if not namespace:
            return self._ordered
        low = bisect_left(self._ordered, (namespace, ""), key=attrgetter("key"))
        high = bisect_left(self._ordered, (namespace + "\0", ""), key=attrgetter("key"))
        return self._ordered[low:high]

    def joined(self, namespace: str = "") -> bytes:
        """The JSON of all objects, separated by commas; kept until the next change."""
        found = self._joined.get(namespace)
        if found is None:
            found = self._joined[namespace] = b",".join([stored.raw for stored in self.ordered(namespace)])
        return found

    def _record(self, event: Event) -> None:
        self._ordered = None
        self._joined.clear()
        self.log.append(event)


class Store:
    """The collections of all resources, under one resourceVersion."""

    #: the version of the empty store; what a client saw of lower ones was another server's
    FIRST = 100

    def __init__(self, log_limit: int = 10_000, snapshot_seconds: float = 300.0) -> None:
        self.version = self.FIRST
        self.snapshots = Snapshots(snapshot_seconds)
        self._log_limit = log_limit
        self._collections: dict[tuple[str, str], Collection] = {}

    def collection(self, resource: Resource) -> Collection:
        found = self._collections.get(resource.storage_key)
        if found is None:
            found = self._collections[resource.storage_key] = Collection(
                resource, EventLog(self._log_limit, self.FIRST)
            )
        return found

    def collections(self) -> list[Collection]:
        return list(self._collections.values())

    def drop(self, resource: Resource) -> None:
        """Forgets a resource and ends its watches; its objects must have been deleted before."""
        collection = self._collections.pop(resource.key, None)
        if collection is not None:
            collection.log.close()

    def write(self, resource: Resource, key: Key, body: Object) -> Stored:
        """Stores `body` as the object's new version; `body` belongs to the store afterwards."""
        collection = self.collection(resource)
        previous = collection.get(key)
        stored = self._next(key, body)
        collection.put(stored, previous)
        return stored

    def delete(self, resource: Resource, previous: Stored) -> Stored:
        """Removes the object and returns its last state, at the version of the deletion."""
        body = {**previous.body, "metadata": dict(previous.body["metadata"])}
        last = self._next(previous.key, body)
        self.collection(resource).remove(last, previous)
        return last

    def close(self) -> None:
        for collection in self._collections.values():
            collection.log.close()

    def _next(self, key: Key, body: Object) -> Stored:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        return Stored(key, self.version, body, encode(body))


class Snapshots:
    """Lists kept for clients that read them page by page, by (resource, namespace, version)."""

    LIMIT = 64

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[tuple[str, str, str, int], tuple[float, Sequence[Stored]]] = OrderedDict()

    def keep(self, resource: Resource, namespace: str, version: int, objects: Sequence[Stored]) -> None:
        self._kept[(*resource.key, namespace, version)] = time.monotonic(), objects
        while len(self._kept) > self.LIMIT:
            self._kept.popitem(last=False)

    def get(self, resource: Resource, namespace: str, version: int) -> Sequence[Stored]:
        """The list as it was at `version`; Expired (410) when it is no longer kept."""
        kept_at, objects = self._kept.get((*resource.key, namespace, version), (float("-inf"), ()))
        if time.monotonic() - kept_at > self._seconds:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return objects
