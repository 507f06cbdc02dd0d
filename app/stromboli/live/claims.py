"""Reserves resource claims for pods before they are bound, and releases those whose pods are not bound after all.

A claim is written as kube-scheduler writes it: first the finalizer, then the allocation together with the reservation,
each on the version that was read; where somebody else was faster, it is read anew and looked at again. While that goes
on sessions see the claim as it will be, and what the watch tells late does not take that back.

A claim that is reserved for a pod of ours which has no node and is getting none holds devices for nobody. So it is
released: at once when we gave up the binding, and after a while when a former leader left it, whose requests may still
be on their way. Until then a session may use it as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from stromboli.api import keys
from stromboli.api.decisions import Bind, ClaimUse
from stromboli.api.errors import StromboliError
from stromboli.kube.dra import reservation
from stromboli.kube.dra.reservation import StaleClaimError
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Kube, timestamp
from stromboli.live.json import Decoder
from stromboli.live.limits import TokenBucket
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.versions import is_older, version_of
from stromboli.state.cluster import object_key

log = Logger(__name__)

Claim = dict[str, Any]
#: what can become of a write, other than that it is done
_FAILURES = (StaleClaimError, ApiError, *CONNECTION_ERRORS)

KIND = "ResourceClaim"
#: how long what another replica reserved may wait for its pod
LATE = 5.0
#: how often a claim is read anew that others change at the same time
_ATTEMPTS = 10
#: seconds until a release that failed is tried again
_AGAIN = 1.0


class NotReservedError(StromboliError):
    """A claim of a pod was not reserved; `cause` says why."""

    def __init__(self, bind: Bind, cause: Exception) -> None:
        super().__init__(str(cause) or repr(cause))
        self.bind = bind
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Release:
    """A reservation that is to be taken back."""

    claim: str
    pod: str
    uid: str


class Claims:
    """Writes claims over the binder's connections, at a bounded rate."""

    def __init__(self, kube: Kube, mirror: Mirror, place: Callable[[], str], *, workers: int, rate: float) -> None:
        """`place` says where claims are, such as `/apis/resource.k8s.io/v1/resourceclaims`."""
        self._kube = kube
        self._place = place
        self._mirror = mirror
        self._state = mirror.state
        self._limit = asyncio.Semaphore(workers)
        self._bucket = TokenBucket(rate)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: uses that are being written, by key of the claim and uid of the pod
        self._promised: dict[str, dict[str, tuple[Bind, ClaimUse]]] = {}
        #: claims as the API server has them, where sessions see something else or the watch may be behind
        self._real: dict[str, Claim] = {}
        #: those that we wrote and the watch has not shown
        self._ahead: set[str] = set()
        #: when to take back what
        self._due: dict[_Release, float] = {}
        #: what is being taken back, by key of the pod
        self._leaving: defaultdict[str, set[_Release]] = defaultdict(set)
        self._changed = asyncio.Event()
        self._running = False
        self._claims: Decoder[Claim] = Decoder(Claim)
        mirror.listen(KIND, self._claim_changed)

    # -- reserving ---------------------------------------------------------------------------------------------------

    def promise(self, bind: Bind) -> None:
        """From now on the claims of a pod count as what was decided about them."""
        for use in bind.claims:
            known = self._state.objects[KIND].get(use.key)
            if known is not None:
                self._real.setdefault(use.key, known)
            self._promised.setdefault(use.key, {})[bind.uid] = (bind, use)
            self._show(use.key)

    async def reserve(self, binds: Sequence[tuple[Bind, Callable[[], bool]]]) -> None:
        """Reserve the claims of pods that belong together, each while it is still wanted. Raises NotReservedError.

        What was reserved when the first of them failed is left as it is, to be released.
        """
        failures: list[NotReservedError] = []

        async def one(bind: Bind, wanted: Callable[[], bool]) -> None:
            async with self._limit:
                try:
                    for use in bind.claims:
                        await self._reserve(bind, use, lambda: not failures and wanted())
                except _FAILURES as error:
                    failures.append(NotReservedError(bind, error))

        await asyncio.gather(*(one(bind, wanted) for bind, wanted in binds))
        for bind, _ in binds:
            self._forget(bind)
        if failures:
            raise failures[0]

    async def _reserve(self, bind: Bind, use: ClaimUse, wanted: Callable[[], bool]) -> None:
        async with self._lock(use.key):
            claim = self._real.get(use.key) or await self._read(use.key)
            await self._change(use.key, claim, partial(self._enter, bind, use, wanted))

    async def _enter(self, bind: Bind, use: ClaimUse, wanted: Callable[[], bool], claim: Claim) -> None:
        reservation.check(claim, use, bind.uid, ours=self._is_ours(use))
        if reservation.is_allocated(claim) and reservation.is_reserved(claim, bind.uid):
            return
        claim = await self._protect(use.key, claim, wanted)
        reserved = _stamped(reservation.reserved(claim, use, bind.name, bind.uid))
        await self._write(use.key, reserved, "/status", wanted)

    async def _protect(self, key: str, claim: Claim, wanted: Callable[[], bool]) -> Claim:
        """Add the finalizer of a claim that gets devices."""
        finalizers = reservation.finalizers(claim, protected=True)
        if reservation.is_allocated(claim) or finalizers is None:
            return claim
        return await self._write(key, _with_finalizers(claim, finalizers), "", wanted)

    def _is_ours(self, use: ClaimUse) -> bool:
        """Whether the devices of a use are promised to it, and not only seen by it."""
        devices = reservation.devices(use.allocation)
        promised = (other for _, other in self._promised.get(use.key, {}).values() if other.new)
        return any(reservation.devices(other.allocation) == devices for other in promised)

    def _forget(self, bind: Bind) -> None:
        """The claims of a pod count as they are."""
        for use in bind.claims:
            promised = self._promised.get(use.key, {})
            promised.pop(bind.uid, None)
            if not promised:
                self._promised.pop(use.key, None)
            self._show(use.key)

    # -- releasing ---------------------------------------------------------------------------------------------------

    def release(self, bind: Bind, after: float = 0.0) -> None:
        """A pod is not bound: what was reserved for it is taken back, after some seconds if it is not by then."""
        self._forget(bind)
        for use in bind.claims:
            item = _Release(use.key, bind.key, bind.uid)
            self._schedule(item, after)
            if not after:
                self._leaving[bind.key].add(item)

    def is_leaving(self, key: str) -> bool:
        """Whether what was reserved for a pod is being taken back, so that it has to be decided anew."""
        return key in self._leaving

    async def run(self) -> None:
        """Release claims until cancelled. Pods and claims have to be known."""
        self._running = True
        for key, claim in self._state.objects[KIND].items():
            self._look(key, claim)
            if reservation.finalizers(claim, protected=False) is not None and not _is_used(claim):
                # Whoever was to allocate it came no further than that.
                self._schedule(_Release(key, "", ""), LATE)
        while True:
            now = time.monotonic()
            due = [item for item, when in self._due.items() if when <= now]
            for item in due:
                del self._due[item]
            await asyncio.gather(*map(self._try_to_release, due))
            self._changed.clear()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _pause(self) -> float | None:
        """Seconds until something is due, None while nothing is."""
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def _schedule(self, item: _Release, after: float) -> None:
        self._due[item] = min(self._due.get(item, float("inf")), time.monotonic() + after)
        self._changed.set()

    async def _try_to_release(self, item: _Release) -> None:
        async with self._limit:
            try:
                await self._release(item)
            except _FAILURES as error:
                log.recurring("claim not released", str(error) or repr(error), claim=item.claim, pod=item.pod)
                self._schedule(item, _AGAIN)
        leaving = self._leaving[item.pod]
        leaving.discard(item)
        if not leaving:
            # Until now what was decided for it did not count.
            del self._leaving[item.pod]
            self._mirror.changed()

    async def _release(self, item: _Release) -> None:
        key = item.claim
        async with self._lock(key):
            claim = self._real.get(key) or self._state.objects[KIND].get(key)
            if claim is None:
                return
            try:
                await self._change(key, claim, partial(self._strike, item))
            except ApiError as error:
                if error.status != 404:
                    raise

    async def _strike(self, item: _Release, claim: Claim) -> None:
        if self._is_coming(item.pod, item.uid):
            return
        if reservation.is_reserved(claim, item.uid):
            claim = await self._write(item.claim, reservation.released(claim, item.uid), "/status")
            log.info("claim released", claim=item.claim, pod=item.pod)
        await self._unprotect(item.claim, claim)

    async def _unprotect(self, key: str, claim: Claim) -> None:
        """Take away the finalizer of a claim that nobody gives devices."""
        finalizers = reservation.finalizers(claim, protected=False)
        if finalizers is not None and not _is_used(claim) and key not in self._promised:
            await self._write(key, _with_finalizers(claim, finalizers), "")

    def _is_coming(self, key: str, uid: str) -> bool:
        """Whether a pod has a node or is getting one."""
        record = self._state.record(key)
        return record is not None and record.uid == uid and bool(record.node_name or key in self._state.assumed)

    def _look(self, key: str, claim: Mapping[str, Any]) -> None:
        """Mark what a claim holds for pods of ours that are getting no node."""
        for consumer in (claim.get("status") or {}).get("reservedFor") or ():
            pod = keys.key(key.partition("/")[0], consumer.get("name") or "")
            record = self._state.record(pod)
            if record is None or record.uid != consumer.get("uid"):
                continue
            if record.scheduler_name in self._state.scheduler_names and not self._is_coming(pod, record.uid):
                self._schedule(_Release(key, pod, record.uid), LATE)

    # -- what the API server has -------------------------------------------------------------------------------------

    def _claim_changed(self, type: str, claim: Claim | str) -> None:
        key = claim if isinstance(claim, str) else object_key(claim)
        if isinstance(claim, str) or type == "DELETED":
            self._real.pop(key, None)
            self._ahead.discard(key)
            return
        known = self._real.get(key)
        if known is not None and not _is_older(claim, known):
            self._real[key] = claim
            self._ahead.discard(key)
        if known is not None:
            self._show(key)
        if self._running:
            self._look(key, claim)

    def _show(self, key: str) -> None:
        """Have sessions see a claim as the API server has it, and as what is promised of it will have changed it."""
        real, promised = self._real.get(key), self._promised.get(key, {})
        if real is None:
            return
        shown = real
        for bind, use in promised.values():
            if use.uid == real["metadata"].get("uid"):
                shown = reservation.reserved(shown, use, bind.name, bind.uid)
        if self._state.objects[KIND].get(key) != shown:
            self._state.upsert(KIND, shown)
        if not promised and key not in self._ahead:
            del self._real[key]

    async def _change(self, key: str, claim: Claim, change: Callable[[Claim], Awaitable[None]]) -> None:
        """Make a change of a claim; where somebody else was faster, it is read anew and the change made of that."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                await change(claim)
                return
            except ApiError as error:
                if error.status != 409 or not left:
                    raise
            claim = await self._read(key)

    async def _read(self, key: str) -> Claim:
        try:
            return self._answered(key, await self._kube.persist("GET", self._path(key)))
        except ApiError as error:
            if error.status == 404:
                raise StaleClaimError(f"resourceclaim {key} not found") from None
            raise

    async def _write(
        self, key: str, claim: Claim, subresource: str, wanted: Callable[[], bool] = lambda: True
    ) -> Claim:
        await self._bucket.wait()
        path = self._path(key)
        # What is listed does not say what it is.
        _, _, group, version, *_ = path.split("/")
        body = msgspec.json.encode({**claim, "apiVersion": f"{group}/{version}", "kind": KIND})
        content = await self._kube.persist("PUT", path + subresource, body, wanted=wanted)
        return self._answered(key, content)

    def _answered(self, key: str, content: bytes) -> Claim:
        claim = self._claims.decode(content)
        if not (isinstance(claim.get("metadata"), dict) and isinstance(claim.get("status"), dict | None)):
            raise msgspec.ValidationError(f"what came as resourceclaim {key} is none")
        known = self._state.objects[KIND].get(key)
        if known is not None and not _is_older(claim, self._real.get(key, known)):
            self._real[key] = claim
            self._ahead.add(key)
            self._show(key)
        return claim

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _path(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        api, _, plural = self._place().rpartition("/")
        return f"{api}/namespaces/{namespace}/{plural}/{name}"


def _with_finalizers(claim: Claim, finalizers: list[str]) -> Claim:
    return {**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}}


def _stamped(claim: Claim) -> Claim:
    """The claim with the time of its allocation, as far as it has none."""
    status = claim["status"]
    allocation = {"allocationTimestamp": timestamp(), **status["allocation"]}
    return {**claim, "status": {**status, "allocation": allocation}}


def _is_used(claim: Claim) -> bool:
    """Whether a claim has devices, or is reserved for somebody."""
    return reservation.is_allocated(claim) or bool((claim.get("status") or {}).get("reservedFor"))


def _is_older(claim: Claim, known: Claim) -> bool:
    """Whether one version of a claim comes before another."""
    same = claim["metadata"].get("uid") == known["metadata"].get("uid")
    return same and is_older(version_of(claim), version_of(known))
