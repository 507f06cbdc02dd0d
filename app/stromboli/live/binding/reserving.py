"""Objects that are written before a pod is bound, and released if it is not bound.

An object is written on the version that was read; after a conflict it is read and checked again. Meanwhile sessions see
the object as it will be, whatever the watch reports late.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from stromboli.api.decisions import Bind
from stromboli.api.errors import StromboliError, in_words
from stromboli.kube.dra.reservation import StaleClaimError
from stromboli.kube.volume_reservation import StaleVolumeError, VolumeRefusedError
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, already_exists
from stromboli.live.api_server.json import Decoder
from stromboli.live.api_server.versions import is_older, version_of
from stromboli.live.process.limits import TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.live.watch.mirror import Mirror
from stromboli.state.cluster import object_key

log = Logger(__name__)

Object = dict[str, Any]
#: the bindings of one job, each with a function that tells whether it is still wanted
Wanted: TypeAlias = Sequence[tuple[Bind, Callable[[], bool]]]

#: errors of a write
FAILURES = (StaleClaimError, StaleVolumeError, VolumeRefusedError, ApiError, *CONNECTION_ERRORS)
#: delay in seconds before a reservation that another replica left is released
LATE = 5.0
#: attempts to write an object that others write at the same time
_ATTEMPTS = 10
#: seconds until a failed release is retried
_AGAIN = 1.0


class StaleBindingError(StromboliError):
    """A pod or its node has changed since a session decided its binding."""


class NotReservedError(StromboliError):
    """A reservation for a pod failed because of `cause`."""

    def __init__(self, bind: Bind, cause: Exception) -> None:
        super().__init__(str(cause) or repr(cause))
        self.bind = bind
        self.cause = cause


def check_wanted(binds: Wanted) -> None:
    """Raise NotReservedError for the first binding of a job that is no longer wanted: the job starts whole."""
    for bind, wanted in binds:
        if not wanted():
            raise NotReservedError(bind, StaleBindingError("the pod or its node has changed"))


class Reservations(Protocol):
    """Reserves objects before the pods of a job are bound, and releases them if the pods are not bound."""

    #: names the reserved objects in log and Events, in the plural
    what: str

    def promise(self, bind: Bind) -> None:
        """Show sessions the objects of a pod as they were decided, from now on."""

    async def reserve(self, binds: Wanted) -> None:
        """Reserve the objects of the pods of a job, and return when all are usable. Raises NotReservedError."""

    def check(self, binds: Wanted) -> None:
        """Raise NotReservedError if an object that was reserved for a job is no longer usable."""

    def release(self, bind: Bind, after: float = 0.0) -> None:
        """A pod is not bound: release its reservations, at the latest `after` seconds from now."""

    def is_leaving(self, key: str) -> bool:
        """Whether reservations of a pod are being released, so that a session has to decide about it again."""


class WrittenObjects:
    """The objects of a kind, both as the API server has them and as sessions see them."""

    def __init__(
        self,
        kube: Kube,
        mirror: Mirror,
        kind: str,
        place: Callable[[], str],
        shown: Callable[[str, Object], Object],
        changed: Callable[[str, Object | None], None],
        *,
        rate: float,
    ) -> None:
        """`place` returns their API path, such as `/apis/resource.k8s.io/v1/resourceclaims`.

        `shown` takes the key and an object, and returns the version for sessions, or the object itself. `changed` is
        called with watched objects, and with None for deleted ones.
        """
        self.kind = kind
        self._kube = kube
        self._state = mirror.state
        self._place = place
        self._shown = shown
        self._changed = changed
        self._bucket = TokenBucket(rate)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: objects as the API server has them, where sessions see another version or the watch may be late
        self._real: dict[str, Object] = {}
        #: objects to be created, as the API server will get them
        self._planned: dict[str, Object] = {}
        #: keys of objects that we wrote and the watch has not shown yet
        self._ahead: set[str] = set()
        self._objects: Decoder[Object] = Decoder(Object)
        mirror.listen(kind, self._told)

    def all(self) -> Iterator[tuple[str, Object]]:
        """All known objects with their keys."""
        for key in list(self._state.objects[self.kind]):
            obj = self.current(key)
            if obj is not None:
                yield key, obj

    def current(self, key: str) -> Object | None:
        """The latest known version of an object on the API server."""
        if key in self._planned:
            return None
        return self._real.get(key) or self._state.objects[self.kind].get(key)

    def hold(self, key: str) -> None:
        """Keep the API server's version of an object, before sessions see another one."""
        known = self._state.objects[self.kind].get(key)
        if known is not None:
            self._real.setdefault(key, known)

    def plan(self, key: str, obj: Object) -> None:
        """Have sessions see an object that is to be created, while `shown` changes it."""
        if self.current(key) is None:
            self._planned[key] = obj

    def show(self, key: str) -> None:
        """Update the version of an object that sessions see."""
        if key in self._planned:
            self._show_planned(key, self._planned[key])
            return
        real = self._real.get(key)
        if real is None:
            return
        shown = self._shown(key, real)
        if self._state.objects[self.kind].get(key) != shown:
            self._state.upsert(self.kind, shown)
        if shown is real and key not in self._ahead:
            del self._real[key]

    def _show_planned(self, key: str, planned: Object) -> None:
        shown = self._shown(key, planned)
        if shown is not planned:
            self._state.upsert(self.kind, shown)
        else:
            del self._planned[key]
            self._state.delete(self.kind, key)

    async def create(self, key: str, body: bytes, wanted: Callable[[], bool]) -> None:
        """Create a planned object, unless one of that key exists already."""
        await self._bucket.wait()
        collection = self._path(key).rpartition("/")[0]
        try:
            self._answered(key, await self._kube.persist("POST", collection, body, wanted=wanted))
        except ApiError as error:
            if not already_exists(error):
                raise

    async def change(self, key: str, change: Callable[[Object], Awaitable[None]]) -> None:
        """Change an object, one change at a time; after a conflict it is read again and the change repeated.

        Raises what `change` raises, and ApiError with status 404 if the object was deleted.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            obj = self.current(key) or await self._read(key)
            for left in reversed(range(_ATTEMPTS)):
                try:
                    await change(obj)
                    return
                except ApiError as error:
                    if error.status != 409 or not left:
                        raise
                obj = await self._read(key)

    async def write(
        self,
        method: str,
        key: str,
        body: bytes,
        subresource: str = "",
        wanted: Callable[[], bool] = lambda: True,
        content_type: str = "application/json",
    ) -> Object:
        """Send a change of an object; returns its new version."""
        await self._bucket.wait()
        path = self._path(key) + subresource
        return self._answered(key, await self._kube.persist(method, path, body, content_type, wanted=wanted))

    async def delete(self, key: str, options: bytes) -> None:
        """Delete an object. Raises ApiError with status 404 if it was deleted before."""
        await self._bucket.wait()
        await self._kube.persist("DELETE", self._path(key), options)

    @property
    def api_version(self) -> str:
        """Group and version of the objects."""
        *_, group, version, _ = self._place().split("/")
        return f"{group}/{version}"

    async def _read(self, key: str) -> Object:
        return self._answered(key, await self._kube.persist("GET", self._path(key)))

    def _answered(self, key: str, content: bytes) -> Object:
        obj = self._objects.decode(content)
        parts = isinstance(obj.get("metadata"), dict), isinstance(obj.get("status"), dict | None)
        if not all(parts) or object_key(obj) != key:
            raise msgspec.ValidationError(f"the answer to a request for {self.kind} {key} is not that object")
        known = self._state.objects[self.kind].get(key)
        if known is not None and not _is_older(obj, self._real.get(key, known)):
            self._planned.pop(key, None)
            self._real[key] = obj
            self._ahead.add(key)
            self.show(key)
        return obj

    def _told(self, type: str, obj: Object | str) -> None:
        key = obj if isinstance(obj, str) else object_key(obj)
        if isinstance(obj, str) or type == "DELETED":
            self._real.pop(key, None)
            self._ahead.discard(key)
            self.show(key)
            self._changed(key, None)
            return
        if self._planned.pop(key, None) is not None:
            self._real[key] = obj
        known = self._real.get(key)
        if known is not None:
            if not _is_older(obj, known):
                self._real[key] = obj
                self._ahead.discard(key)
            self.show(key)
        self._changed(key, obj)

    def _path(self, key: str) -> str:
        namespace, _, name = key.rpartition("/")
        api, _, plural = self._place().rpartition("/")
        return f"{api}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{api}/{plural}/{name}"


@dataclass(frozen=True, slots=True)
class Release:
    """An object to release, and the key of the pod that it was reserved for, empty if unknown."""

    object: str
    pod: str


R = TypeVar("R", bound=Release)


class Releases(Generic[R]):
    """The objects to release, and when."""

    def __init__(self, what: str, give_back: Callable[[R], Awaitable[None]], mirror: Mirror, workers: int) -> None:
        self._what = what
        self._give_back = give_back
        self._mirror = mirror
        self._limit = asyncio.Semaphore(workers)
        #: when to release each object
        self._due: dict[R, float] = {}
        #: objects that are being released, by key of the pod
        self._leaving: defaultdict[str, set[R]] = defaultdict(set)
        self._changed = asyncio.Event()

    def schedule(self, item: R, after: float, *, leaving: bool = False) -> None:
        """Release an object after some seconds; with `leaving` its pod is not bound until that is done."""
        self._due[item] = min(self._due.get(item, float("inf")), time.monotonic() + after)
        if leaving:
            self._leaving[item.pod].add(item)
        self._changed.set()

    def is_leaving(self, pod: str) -> bool:
        """Whether an object of a pod is being released."""
        return pod in self._leaving

    async def run(self) -> None:
        """Release due reservations, until cancelled."""
        while True:
            now = time.monotonic()
            due = [item for item, when in self._due.items() if when <= now]
            for item in due:
                del self._due[item]
            await asyncio.gather(*map(self._try, due))
            self._changed.clear()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _pause(self) -> float | None:
        """Seconds until the next release, None if there is none."""
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    async def _try(self, item: R) -> None:
        async with self._limit:
            try:
                await self._give_back(item)
            except FAILURES as error:
                log.recurring(f"{self._what} not released", in_words(error), claim=item.object, pod=item.pod)
                self.schedule(item, _AGAIN)
        leaving = self._leaving[item.pod]
        leaving.discard(item)
        if not leaving:
            # Sessions may decide about the pod again.
            del self._leaving[item.pod]
            self._mirror.changed()


def _is_older(obj: Object, known: Object) -> bool:
    """Whether one version of an object precedes another, which may be one of the same name that was created since."""
    return is_older(version_of(obj), version_of(known))
