"""Reserves resource claims for pods before they are bound, and releases those whose pods are not bound after all.

A claim is written as kube-scheduler writes it: first the finalizer, then the allocation together with the reservation,
each on the version that was read; where somebody else was faster, it is read anew and looked at again. While that goes
on sessions see the claim as it will be, and what the watch tells late does not take that back.

A claim that is reserved for a pod of ours which has no node and is getting none holds devices for nobody. So it is
released: at once when we gave up the binding, and after a while when a former leader left it, whose requests may still
be on their way. Until then a session may use it as it is.

A claim for the extended resources of a pod is created first, and deleted where others are released; the pod's status
says which containers have which of its devices. Where devices have to be made ready after they were allocated, pods are
bound when all of their conditions hold. Where one fails, or that takes too long, the devices are given back.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from stromboli.api import keys
from stromboli.api.decisions import Bind, ClaimUse
from stromboli.api.objects import Pod
from stromboli.api.pod_state import PodState
from stromboli.kube.dra import readiness, reservation
from stromboli.kube.dra.holdings import claim_keys
from stromboli.kube.dra.objects import ResourceClaim
from stromboli.kube.dra.reservation import StaleClaimError
from stromboli.live.client import MERGE_PATCH, ApiError, Kube, timestamp
from stromboli.live.logs import Logger
from stromboli.live.mirror import Mirror
from stromboli.live.reserving import (
    FAILURES,
    LATE,
    NotReservedError,
    Object,
    Release,
    Releases,
    Wanted,
    WrittenObjects,
)

log = Logger(__name__)

KIND = "ResourceClaim"
#: seconds between two looks at devices that are made ready, whatever is told meanwhile
_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class _Release(Release):
    """A reservation that is to be taken back."""

    uid: str


class Claims:
    """Writes claims over the binder's connections, at a bounded rate."""

    what = "resource claims"

    def __init__(self, kube: Kube, mirror: Mirror, place: Callable[[], str], *, workers: int, rate: float) -> None:
        """`place` says where claims are, such as `/apis/resource.k8s.io/v1/resourceclaims`."""
        self._kube = kube
        self._state = mirror.state
        self._limit = asyncio.Semaphore(workers)
        self._claims = WrittenObjects(kube, mirror, KIND, place, self._shown, self._claim_changed, rate=rate)
        #: uses that are being written, by key of the claim and uid of the pod
        self._promised: dict[str, dict[str, tuple[Bind, ClaimUse]]] = {}
        self._releases = Releases("claim", self._release, mirror, workers)
        self._running = False
        #: set when a claim, a pod or a node changes, for each job that waits for devices to be made ready
        self._news: set[asyncio.Event] = set()
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("Node", lambda *_: self._tell_of_news())

    # -- reserving ---------------------------------------------------------------------------------------------------

    def promise(self, bind: Bind) -> None:
        """From now on the claims of a pod count as what was decided about them."""
        for use in bind.claims:
            if use.manifest is not None:
                self._claims.plan(use.key, dict(use.manifest))
            self._claims.hold(use.key)
            self._promised.setdefault(use.key, {})[bind.uid] = (bind, use)
            self._claims.show(use.key)

    async def reserve(self, binds: Wanted) -> None:
        """Reserve the claims of pods that belong together, each while it is still wanted. Raises NotReservedError.

        What was reserved when the first of them failed is left as it is, to be released.
        """
        failures: list[NotReservedError] = []

        async def one(bind: Bind, wanted: Callable[[], bool]) -> None:
            async with self._limit:
                try:
                    for use in bind.claims:
                        await self._reserve(bind, use, lambda: not failures and wanted())
                except FAILURES as error:
                    failures.append(NotReservedError(bind, error))

        await asyncio.gather(*(one(bind, wanted) for bind, wanted in binds))
        for bind, _ in binds:
            self._forget(bind)
        if failures:
            raise failures[0]
        await self._are_ready(binds)

    async def _reserve(self, bind: Bind, use: ClaimUse, wanted: Callable[[], bool]) -> None:
        if use.manifest is not None and self._claims.current(use.key) is None:
            await self._claims.create(use.key, self._body(use.manifest), wanted)
        try:
            await self._claims.change(use.key, partial(self._enter, bind, use, wanted))
        except ApiError as error:
            if error.status != 404:
                raise
            raise StaleClaimError(f"resourceclaim {use.key} not found") from None
        if use.manifest is not None:
            made = {"resourceClaimName": use.name, "requestMappings": list(use.mappings)}
            patch = {"metadata": {"uid": bind.uid}, "status": {"extendedResourceClaimStatus": made}}
            path = f"/api/v1/namespaces/{bind.namespace}/pods/{bind.name}/status"
            await self._kube.persist("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH, wanted=wanted)

    async def _enter(self, bind: Bind, use: ClaimUse, wanted: Callable[[], bool], claim: Object) -> None:
        reservation.check(claim, use, bind.uid, ours=self._is_ours(use))
        if reservation.is_allocated(claim) and reservation.is_reserved(claim, bind.uid):
            return
        claim = await self._protect(use.key, claim, wanted)
        reserved = _stamped(reservation.reserved(claim, use, bind.name, bind.uid))
        await self._write(use.key, reserved, "/status", wanted)

    async def _protect(self, key: str, claim: Object, wanted: Callable[[], bool]) -> Object:
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
            self._claims.show(use.key)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _are_ready(self, binds: Wanted) -> None:
        """Return when the devices of all claims are ready. Raises NotReservedError."""
        left = [(bind, wanted, use) for bind, wanted in binds for use in bind.claims if _has_conditions(use.allocation)]
        if not left:
            return
        deadline, news = time.time() + readiness.TIMEOUT, asyncio.Event()
        self._news.add(news)
        try:
            while left:
                news.clear()
                left = [(bind, wanted, use) for bind, wanted, use in left if not self._is_ready(bind, use, wanted)]
                if not left:
                    return
                if time.time() >= deadline:
                    bind, _, use = left[0]
                    late = f"resourceclaim {use.key}: its devices did not get ready in time"
                    raise NotReservedError(bind, StaleClaimError(late))
                try:
                    async with asyncio.timeout(min(_LOOK, deadline - time.time())):
                        await news.wait()
                except TimeoutError:
                    pass
        finally:
            self._news.discard(news)

    def _is_ready(self, bind: Bind, use: ClaimUse, wanted: Callable[[], bool]) -> bool:
        """Whether all devices of a claim are ready. Raises NotReservedError when they will not be."""
        plain, problem = self._claims.current(use.key), None
        if not wanted():
            problem = "the pod or its node is not what it was"
        elif plain is None or not reservation.is_reserved(plain, bind.uid):
            problem = f"resourceclaim {use.key} lost its devices in the meantime"
        else:
            claim = msgspec.convert(plain, ResourceClaim, strict=False)
            found = readiness.unusable(claim, time.time())
            if found is None:
                return readiness.is_ready(claim)
            problem = f"resourceclaim {use.key}: {found}"
        raise NotReservedError(bind, StaleClaimError(problem))

    def _tell_of_news(self) -> None:
        for news in self._news:
            news.set()

    # -- releasing ---------------------------------------------------------------------------------------------------

    def release(self, bind: Bind, after: float = 0.0) -> None:
        """A pod is not bound: what was reserved for it is taken back, after some seconds if it is not by then."""
        self._forget(bind)
        for use in bind.claims:
            self._releases.schedule(_Release(use.key, bind.key, bind.uid), after, leaving=not after)

    def is_leaving(self, key: str) -> bool:
        """Whether what was reserved for a pod is being taken back, so that it has to be decided anew."""
        return self._releases.is_leaving(key)

    async def run(self) -> None:
        """Release claims until cancelled. Pods and claims have to be known."""
        self._running = True
        for key, claim in self._state.objects[KIND].items():
            self._look(key, claim)
            if reservation.finalizers(claim, protected=False) is not None and not _is_used(claim):
                # Whoever was to allocate it came no further than that.
                self._releases.schedule(_Release(key, "", ""), LATE)
        await self._releases.run()

    async def _release(self, item: _Release) -> None:
        if self._claims.current(item.object) is not None:
            try:
                await self._claims.change(item.object, partial(self._strike, item))
            except ApiError as error:
                if error.status != 404:
                    raise

    async def _strike(self, item: _Release, claim: Object) -> None:
        if self._is_coming(item.pod, item.uid):
            return
        if reservation.is_special_of(claim, item.uid):
            await self._delete(item, claim)
            return
        if not item.pod and self._is_to_be_deallocated(item.object, claim):
            claim = await self._write(item.object, reservation.deallocated(claim), "/status")
            log.info("claim deallocated, since its devices do not get ready", claim=item.object)
        if reservation.is_reserved(claim, item.uid):
            claim = await self._write(item.object, reservation.released(claim, item.uid), "/status")
            log.info("claim released", claim=item.object, pod=item.pod)
        await self._unprotect(item.object, claim)

    async def _delete(self, item: _Release, claim: Object) -> None:
        """Delete the claim for the extended resources of a pod."""
        finalizers = reservation.finalizers(claim, protected=False)
        if finalizers is not None:
            claim = await self._write(item.object, _with_finalizers(claim, finalizers), "")
        if not claim["metadata"].get("deletionTimestamp"):
            preconditions = {"preconditions": {"uid": claim["metadata"].get("uid")}}
            await self._claims.delete(item.object, msgspec.json.encode(preconditions))
        log.info("claim deleted", claim=item.object, pod=item.pod)

    def _is_to_be_deallocated(self, key: str, claim: Object) -> bool:
        """Whether pods of ours wait for a claim that nobody uses, and of which the devices do not get ready."""
        if self._useless_from(claim) > time.time():
            return False
        pods = self._state.pods
        rows = np.flatnonzero(pods.state[: pods.size] == PodState.Pending).tolist()
        records = (record for row in rows if (record := pods.records[row]) is not None)
        return any(
            key in claim_keys(record) for record in records if record.scheduler_name in self._state.scheduler_names
        )

    def _useless_from(self, claim: Object) -> float:
        """When a claim that nobody uses is of use to nobody, in seconds since the epoch; infinite for most."""
        status = claim.get("status") or {}
        if status.get("reservedFor") or not _has_conditions(status.get("allocation") or {}):
            return math.inf
        read = msgspec.convert(claim, ResourceClaim, strict=False)
        if readiness.failure(read) is not None:
            return 0.0
        expires = readiness.expires(read)
        return math.inf if expires is None or readiness.is_ready(read) else expires

    async def _unprotect(self, key: str, claim: Object) -> None:
        """Take away the finalizer of a claim that nobody gives devices."""
        finalizers = reservation.finalizers(claim, protected=False)
        if finalizers is not None and not _is_used(claim) and key not in self._promised:
            await self._write(key, _with_finalizers(claim, finalizers), "")

    def _is_coming(self, key: str, uid: str) -> bool:
        """Whether a pod has a node or is getting one."""
        record = self._state.record(key)
        return record is not None and record.uid == uid and bool(record.node_name or key in self._state.assumed)

    def _look(self, key: str, claim: Object) -> None:
        """Mark what a claim holds for pods of ours that are getting no node."""
        for consumer in (claim.get("status") or {}).get("reservedFor") or ():
            pod = keys.key(key.partition("/")[0], consumer.get("name") or "")
            record = self._state.record(pod)
            if record is None or record.uid != consumer.get("uid"):
                continue
            if record.scheduler_name in self._state.scheduler_names and not self._is_coming(pod, record.uid):
                self._releases.schedule(_Release(key, pod, record.uid), LATE)
        self._look_at_owner(key, claim)
        useless = self._useless_from(claim)
        if useless < math.inf:
            self._releases.schedule(_Release(key, "", ""), max(0.0, useless - time.time()))

    def _look_at_owner(self, key: str, claim: Object) -> None:
        """Mark a claim for the extended resources of a pod of ours that is getting no node."""
        for owner in claim["metadata"].get("ownerReferences") or ():
            pod = keys.key(key.partition("/")[0], owner.get("name") or "")
            record = self._state.record(pod) if reservation.is_special_of(claim, owner.get("uid") or "") else None
            if record is None or record.uid != owner.get("uid"):
                continue
            if record.scheduler_name in self._state.scheduler_names and not self._is_coming(pod, record.uid):
                self._releases.schedule(_Release(key, pod, record.uid), LATE)

    # -- what the API server has -------------------------------------------------------------------------------------

    def _claim_changed(self, key: str, claim: Object | None) -> None:
        self._tell_of_news()
        if claim is not None and self._running:
            self._look(key, claim)

    def _pod_changed(self, type: str, pod: Pod | str) -> None:
        self._tell_of_news()
        if not self._running or isinstance(pod, str) or not pod.spec.resource_claims or pod.spec.node_name:
            return
        record = self._state.record(pod.metadata.key)
        for key in claim_keys(record) if record is not None and type != "DELETED" else ():
            claim = self._claims.current(key)
            if claim is not None:
                self._look(key, claim)

    def _shown(self, key: str, claim: Object) -> Object:
        """A claim as what is promised of it will have changed it."""
        for bind, use in self._promised.get(key, {}).values():
            if not use.uid or use.uid == claim["metadata"].get("uid"):
                claim = reservation.reserved(claim, use, bind.name, bind.uid)
        return claim

    async def _write(
        self, key: str, claim: Object, subresource: str, wanted: Callable[[], bool] = lambda: True
    ) -> Object:
        return await self._claims.write("PUT", key, self._body(claim), subresource, wanted)

    def _body(self, claim: Mapping[str, Any]) -> bytes:
        # What is listed does not say what it is.
        return msgspec.json.encode({**claim, "apiVersion": self._claims.api_version, "kind": KIND})


def _with_finalizers(claim: Object, finalizers: list[str]) -> Object:
    return {**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}}


def _stamped(claim: Object) -> Object:
    """The claim with the time of its allocation, as far as it has none."""
    status = claim["status"]
    allocation = {"allocationTimestamp": timestamp(), **status["allocation"]}
    return {**claim, "status": {**status, "allocation": allocation}}


def _has_conditions(allocation: Mapping[str, Any]) -> bool:
    """Whether any device of an allocation has to be made ready."""
    return any(result.get("bindingConditions") for result in (allocation.get("devices") or {}).get("results") or ())


def _is_used(claim: Object) -> bool:
    """Whether a claim has devices, or is reserved for somebody."""
    return reservation.is_allocated(claim) or bool((claim.get("status") or {}).get("reservedFor"))
