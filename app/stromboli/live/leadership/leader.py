"""Leader election by a Lease, so that only one of several replicas schedules.

A candidate measures how long *it* has seen a foreign lease unchanged, so clocks of machines need not agree. A leader
counts from the start of its last renewal request and writes nothing after the deadline. If it then finds the lease
still in its own name, no other replica led in between, and it continues.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Self

from stromboli.api.errors import in_words
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, Object
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.live.settings import LONGEST_LEASE, Settings
from stromboli.state.pods import seconds

log = Logger(__name__)

#: the API server's upper limit on the number of transitions
_MOST = 2**31 - 1

#: runs while the process is paused and, on Linux, while the machine is suspended
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: seconds after the end of a foreign lease before trying to take it
_AFTER = 0.01
#: first pause in seconds after failing to take a free lease; pauses grow
_FREE = 0.1
#: annotation of the Lease: since when no leader came to the end of its repairs
_UNSETTLED = "stromboli.io/unsettled-since"
#: annotations of the Lease: who of another shard holds it in the stead of its own replicas, and who of these wants it
STANDS_IN, ASKED_FOR = "stromboli.io/stands-in", "stromboli.io/asked-for-by"
#: seconds for which a leader repairs after those before it
_LONGEST_UNSETTLED = 300.0


class LeadershipLostError(Exception):
    """Another replica leads now, or led for a while."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of a lease, in seconds."""

    #: time that an unrenewed lease keeps other replicas from leading
    duration: float
    #: time for which a leader continues without renewing
    renew_deadline: float
    #: time between two attempts to acquire or renew
    retry_period: float


class LeaderLease:
    """One replica's view of the Lease."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        *,
        says: Mapping[str, str] = MappingProxyType({}),
        clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
    ) -> None:
        """`says` are annotations that the Lease has while this replica holds it."""
        self.identity = identity
        self.name = name
        self._kube = kube
        self._says = says
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._namespace = namespace
        #: in whole seconds, as in the Lease
        self._duration = max(1, math.ceil(times.duration))
        self._renew_deadline = times.renew_deadline
        self._retry_period = times.retry_period
        self._clock = clock
        #: start of the last successful renewal request, None while another replica leads
        self._renewed: float | None = None
        #: holder and renew time of a foreign lease as last seen, and when it expires
        self._seen: tuple[object, object] = (None, None)
        self._ends = -math.inf
        #: since when no leader came to the end of its repairs, in seconds since the epoch; None once this one did
        self.unsettled_since: float | None = None

    @classmethod
    def of(cls, settings: Settings, kube: Kube, says: Mapping[str, str] = MappingProxyType({})) -> Self:
        """The lease that a replica with some settings has to hold."""
        identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"
        times = LeaseTimes(settings.lease_duration, settings.renew_deadline, settings.retry_period)
        return cls(kube, settings.own_namespace, settings.lease_name, identity, times, says=says)

    def remaining(self) -> float:
        """Seconds for which no other replica can lead; 0 or less if another one may."""
        return -math.inf if self._renewed is None else self._renewed + self._renew_deadline - self._clock()

    @property
    def leads(self) -> bool:
        """Whether this replica may act now."""
        return self.remaining() > 0

    async def acquire(self) -> None:
        """Return when this replica leads."""
        free = Backoff(_FREE, self._retry_period)
        while not (await self._try(self._may_take) and self.leads):
            left = self._ends - self._clock() + _AFTER
            if left > 0:
                free.reset()
            await asyncio.sleep(min(left, self._retry_period) if left > 0 else free.delay())
        log.info("leading", lease=self.name, identity=self.identity)

    async def hold(self) -> None:
        """Renew until another replica has the lease, then raise LeadershipLostError."""
        while True:
            await asyncio.sleep(self._retry_period)
            if not await self._try(self._may_keep):
                log.warning("lease not renewed", lease=self.name, remaining=f"{self.remaining():.1f}s")

    def settled(self) -> None:
        """This leader has finished the repairs after former ones; the next renewal says so."""
        self.unsettled_since = None

    async def release(self) -> None:
        """Release the lease, so that another replica can lead at once."""
        if not self.leads:
            return
        self._renewed = None
        try:
            lease = await self._kube.get(self._path)
            if _spec(lease).get("holderIdentity") == self.identity:
                spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(self._path, {**lease, "spec": spec})
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.info("lease not released", lease=self.name, error=in_words(error))

    async def _try(self, may: Callable[[Object | None], bool]) -> bool:
        """Acquire or renew the lease if possible; returns whether that succeeded."""
        started = self._clock()
        try:
            async with asyncio.timeout(self._renew_deadline / 2):
                written = await self._write(may)
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.recurring("lease not written", error, lease=self.name)
            return False
        if written:
            self._renewed = started
        return written

    async def _write(self, may: Callable[[Object | None], bool]) -> bool:
        lease = await self._read()
        if not may(lease):
            await self._ask_for(lease)
            return False
        if lease is None:
            meta = self._metadata({"name": self.name, "namespace": self._namespace}, ours=False)
            manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
            await self._kube.create(self._collection, {**manifest, "spec": self._spec({})})
        else:
            spec = _spec(lease)
            meta = self._metadata(lease.get("metadata") or {}, ours=spec.get("holderIdentity") == self.identity)
            # The resourceVersion makes this write fail if another replica wrote the lease first.
            await self._kube.replace(self._path, {**lease, "metadata": meta, "spec": self._spec(spec)})
        return True

    async def _ask_for(self, lease: Object | None) -> None:
        """Ask a replica of another shard that stands in for ours to release the lease."""
        annotations = annotations_of(lease)
        if lease is not None and STANDS_IN in annotations and ASKED_FOR not in annotations:
            meta = {**lease["metadata"], "annotations": {**annotations, ASKED_FOR: self.identity}}
            await self._kube.replace(self._path, {**lease, "metadata": meta})

    def _metadata(self, old: Object, *, ours: bool) -> Object:
        """The metadata of the lease, which hands on since when no leader came to the end of its repairs."""
        annotations: Object = {**annotations_of({"metadata": old}), **self._says}
        for theirs in (STANDS_IN, ASKED_FOR):
            annotations.pop(theirs, None)
        told = annotations.pop(_UNSETTLED, None)
        if not ours:
            now = time.time()
            since = seconds(told) if isinstance(told, str) else 0.0
            self.unsettled_since = max(now - _LONGEST_UNSETTLED, min(since or now, now))
        if self.unsettled_since is not None:
            annotations[_UNSETTLED] = datetime.fromtimestamp(self.unsettled_since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**old, "annotations": annotations}

    async def _read(self) -> Object | None:
        try:
            return await self._kube.get(self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def _may_keep(self, lease: Object | None) -> bool:
        """Whether certainly no other replica has led since the last renewal. Raises LeadershipLostError otherwise."""
        ours = self.leads if lease is None else _spec(lease).get("holderIdentity") == self.identity
        if not ours:
            self._renewed = None
            raise LeadershipLostError(f"lease {self._namespace}/{self.name}")
        return True

    def _may_take(self, lease: Object | None) -> bool:
        """Whether the lease is free. A deleted or empty lease may still have a holder that has not noticed yet."""
        spec = _spec(lease)
        if spec:
            holder = spec.get("holderIdentity")
            if holder in (None, "", self.identity):
                return True
            seen = (holder, spec.get("renewTime"))
            if seen != self._seen:
                if holder != self._seen[0]:
                    log.info("another replica leads", lease=self.name, holder=holder)
                self._seen = seen
                self._ends = self._clock() + self._length(spec)
        return self._clock() > self._ends

    def _length(self, spec: Object) -> float:
        """Seconds that a foreign lease lasts without renewal; an invalid duration is logged and counts as our own."""
        told = spec.get("leaseDurationSeconds")
        if told is None:
            return self._duration
        valid = told if type(told) in (int, float) and told > 0 else self._duration
        length: float = min(valid, LONGEST_LEASE)
        if length == told:
            return length
        strange = f"spec.leaseDurationSeconds: {told!r:.99}"
        log.recurring("invalid lease", strange, lease=self.name, counts_as=f"{length}s")
        return length

    def _spec(self, old: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours, before = old.get("holderIdentity") == self.identity, old.get("leaseTransitions")
        transitions = before if isinstance(before, int) and 0 <= before < _MOST else 0
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._duration,
            "renewTime": now,
            "acquireTime": old.get("acquireTime", now) if ours else now,
            "leaseTransitions": transitions + (0 if ours or not old else 1),
        }


def annotations_of(lease: Object | None) -> Mapping[str, object]:
    """The annotations of a lease; empty if it does not exist or cannot be read."""
    meta = (lease or {}).get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _spec(lease: Object | None) -> Object:
    """The spec of a lease; empty if it does not exist or cannot be read."""
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}
