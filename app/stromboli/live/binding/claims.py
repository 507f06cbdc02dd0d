"""Reserves the ResourceClaims of pods before the pods are bound, and releases the claims of pods that are not bound.

A claim is written as kube-scheduler writes it: the finalizer first, then allocation and reservation together, each on
the version that was read. After a conflict the claim is read and checked again. Meanwhile sessions see the claim as it
will be, whatever the watch reports late.

A claim reserved for a pod of ours that gets no node holds devices uselessly, so it is released: at once if we gave up
the binding, and after a delay if a former leader left it, whose requests may still arrive. Until then
sessions may use it as it is.

The claim for a pod's extended resources is created first and deleted instead of released; the pod's status says which
containers get which of its devices. Where devices have binding conditions, pods are bound once all conditions are true;
the claim is deallocated when one fails or a time limit passes. So is one that others allocated for nobody, on nodes
that the pods of ours that wait for it cannot have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
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
from stromboli.live.api_server.client import MERGE_PATCH, ApiError, Kube, timestamp
from stromboli.live.binding.reserver import Reserver, Step
from stromboli.live.binding.reserving import (
    LATE,
    NotReservedError,
    Object,
    Release,
    Wanted,
    WrittenObjects,
)
from stromboli.live.process.logs import Logger
from stromboli.live.watch.mirror import Mirror

log = Logger(__name__)

KIND = "ResourceClaim"
#: seconds between two checks of binding conditions while nothing changes
_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class _Release(Release):
    """A reservation to release."""

    #: the uid of the pod
    uid: str


class Claims(Reserver[ClaimUse, _Release]):
    """Writes claims over the binder's connections, at a bounded rate."""

    kind = KIND
    what = "resource claims"
    _again = _LOOK

    def __init__(self, kube: Kube, mirror: Mirror, place: Callable[[], str], *, workers: int, rate: float) -> None:
        """`place` is the API path of claims, such as `/apis/resource.k8s.io/v1/resourceclaims`."""
        super().__init__(mirror, "claim", workers)
        self._kube = kube
        self._claims = WrittenObjects(kube, mirror, KIND, place, self._shown, self._claim_changed, rate=rate)
        mirror.listen("Pod", self._pod_changed)

    # -- reserving ---------------------------------------------------------------------------------------------------

    def _uses(self, bind: Bind) -> Sequence[ClaimUse]:
        return bind.claims

    def _hold(self, use: ClaimUse) -> None:
        if use.manifest is not None:
            self._claims.plan(use.key, dict(use.manifest))
        self._claims.hold(use.key)

    def _show(self, use: ClaimUse) -> None:
        self._claims.show(use.key)

    async def reserve(self, binds: Wanted) -> None:
        """Reserve the claims of the pods of one job, each while it is still wanted. Raises NotReservedError.

        Claims that were reserved before the first failure are left to be released.
        """
        steps = self._steps(binds)
        try:
            await self._write_all(steps)
        finally:
            for bind, _ in binds:
                self._forget(bind)
        await self._are_ready(binds, [step for step in steps if _has_conditions(step.use.allocation)])

    async def _write(self, step: Step[ClaimUse], wanted: Callable[[], bool]) -> None:
        bind, use = step.bind, step.use
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
        await self._put(use.key, reserved, "/status", wanted)

    async def _protect(self, key: str, claim: Object, wanted: Callable[[], bool]) -> Object:
        """Add the finalizer to a claim that is being allocated."""
        finalizers = reservation.finalizers(claim, protected=True)
        if reservation.is_allocated(claim) or finalizers is None:
            return claim
        return await self._put(key, _with_finalizers(claim, finalizers), "", wanted)

    def _is_ours(self, use: ClaimUse) -> bool:
        """Whether this process allocated the devices of a use, rather than found them allocated."""
        devices = reservation.devices(use.allocation)
        promised = (each.use for each in self._promised.get(use.key, {}).values() if each.use.new)
        return any(reservation.devices(other.allocation) == devices for other in promised)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _are_ready(self, binds: Wanted, steps: Sequence[Step[ClaimUse]]) -> None:
        """Return when the binding conditions of all claims are true. Raises NotReservedError."""
        late = await self._wait(binds, steps, readiness.TIMEOUT)
        if late:
            problem = f"resourceclaim {late[0].use.key}: its devices did not become ready in time"
            raise NotReservedError(late[0].bind, StaleClaimError(problem))

    def _unready(self, steps: Sequence[Step[ClaimUse]]) -> list[Step[ClaimUse]]:
        return [step for step in steps if not self._is_ready(step)]

    def _is_ready(self, step: Step[ClaimUse]) -> bool:
        """Whether the binding conditions of a claim are true. Raises NotReservedError when they will not become so."""
        bind, use = step.bind, step.use
        plain, problem = self._claims.current(use.key), None
        if plain is None or not reservation.is_reserved(plain, bind.uid):
            problem = f"resourceclaim {use.key} was deallocated in the meantime"
        else:
            claim = msgspec.convert(plain, ResourceClaim, strict=False)
            found = readiness.unusable(claim, time.time())
            if found is None:
                return readiness.is_ready(claim)
            problem = f"resourceclaim {use.key}: {found}"
        raise NotReservedError(bind, StaleClaimError(problem))

    # -- releasing ---------------------------------------------------------------------------------------------------

    def _release_of(self, bind: Bind, use: ClaimUse) -> _Release:
        return _Release(use.key, bind.key, bind.uid)

    async def run(self) -> None:
        """Release until cancelled. Pods and claims must have been listed."""
        self._running = True
        for key, claim in self._state.objects[KIND].items():
            self._look(key, claim)
            if reservation.finalizers(claim, protected=False) is not None and not _is_used(claim):
                # A former leader added the finalizer and did not get to allocate.
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
            claim = await self._put(item.object, reservation.deallocated(claim), "/status")
            log.info("claim deallocated: it kept pods waiting that cannot use its devices", claim=item.object)
        if reservation.is_reserved(claim, item.uid):
            claim = await self._put(item.object, reservation.released(claim, item.uid), "/status")
            log.info("claim released", claim=item.object, pod=item.pod)
        await self._unprotect(item.object, claim)

    async def _delete(self, item: _Release, claim: Object) -> None:
        """Delete the claim for a pod's extended resources."""
        finalizers = reservation.finalizers(claim, protected=False)
        if finalizers is not None:
            claim = await self._put(item.object, _with_finalizers(claim, finalizers), "")
        if not claim["metadata"].get("deletionTimestamp"):
            preconditions = {"preconditions": {"uid": claim["metadata"].get("uid")}}
            await self._claims.delete(item.object, msgspec.json.encode(preconditions))
        log.info("claim deleted", claim=item.object, pod=item.pod)

    def _is_to_be_deallocated(self, key: str, claim: Object) -> bool:
        """Whether an unreserved claim keeps pods of ours waiting: its devices do not become ready, or are elsewhere."""
        if self._useless_from(claim) > time.time() and (key in self._promised or not _is_idle(claim)):
            return False
        pods = self._state.pods
        rows = np.flatnonzero(pods.state[: pods.size] == PodState.Pending).tolist()
        records = (record for row in rows if (record := pods.records[row]) is not None)
        waiting = (record for record in records if not record.pod_class.gated)
        return any(
            key in claim_keys(record) for record in waiting if record.scheduler_name in self._state.scheduler_names
        )

    def _useless_from(self, claim: Object) -> float:
        """Timeout of an unreserved claim's binding conditions, in seconds since the epoch; infinite without any."""
        status = claim.get("status") or {}
        if status.get("reservedFor") or not _has_conditions(status.get("allocation") or {}):
            return math.inf
        read = msgspec.convert(claim, ResourceClaim, strict=False)
        if readiness.failure(read) is not None:
            return 0.0
        expires = readiness.expires(read)
        return math.inf if expires is None or readiness.is_ready(read) else expires

    async def _unprotect(self, key: str, claim: Object) -> None:
        """Remove the finalizer of a claim that is neither allocated nor about to be."""
        finalizers = reservation.finalizers(claim, protected=False)
        if finalizers is not None and not _is_used(claim) and key not in self._promised:
            await self._put(key, _with_finalizers(claim, finalizers), "")

    def _is_coming(self, key: str, uid: str) -> bool:
        """Whether a pod is bound or is being bound."""
        record = self._state.record(key)
        return record is not None and record.uid == uid and bool(record.node_name or key in self._state.assumed)

    def _look(self, key: str, claim: Object) -> None:
        """Schedule the release of a claim's reservations for pods of ours that are not being bound."""
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
        elif _is_idle(claim):
            # Sessions place pods where it is allocated, if they can.
            self._releases.schedule(_Release(key, "", ""), LATE)

    def _look_at_owner(self, key: str, claim: Object) -> None:
        """Schedule the deletion of the claim for the extended resources of a pod of ours that is not being bound."""
        for owner in claim["metadata"].get("ownerReferences") or ():
            pod = keys.key(key.partition("/")[0], owner.get("name") or "")
            record = self._state.record(pod) if reservation.is_special_of(claim, owner.get("uid") or "") else None
            if record is None or record.uid != owner.get("uid"):
                continue
            if record.scheduler_name in self._state.scheduler_names and not self._is_coming(pod, record.uid):
                self._releases.schedule(_Release(key, pod, record.uid), LATE)

    # -- changes -------------------------------------------------------------------------------------

    def _claim_changed(self, key: str, claim: Object | None) -> None:
        self._news.changed(KIND, key)
        if claim is not None and self._running:
            self._look(key, claim)

    def _pod_changed(self, type: str, pod: Pod | str) -> None:
        if not self._running or isinstance(pod, str) or not pod.spec.resource_claims or pod.spec.node_name:
            return
        record = self._state.record(pod.metadata.key)
        for key in claim_keys(record) if record is not None and type != "DELETED" else ():
            claim = self._claims.current(key)
            if claim is not None:
                self._look(key, claim)

    def _shown(self, key: str, claim: Object) -> Object:
        """A claim with its promises written."""
        for promise in self._promised.get(key, {}).values():
            bind, use = promise.bind, promise.use
            if not use.uid or use.uid == claim["metadata"].get("uid"):
                claim = reservation.reserved(claim, use, bind.name, bind.uid)
        return claim

    async def _put(
        self, key: str, claim: Object, subresource: str, wanted: Callable[[], bool] = lambda: True
    ) -> Object:
        return await self._claims.write("PUT", key, self._body(claim), subresource, wanted)

    def _body(self, claim: Mapping[str, Any]) -> bytes:
        # Items of a list come without apiVersion and kind.
        return msgspec.json.encode({**claim, "apiVersion": self._claims.api_version, "kind": KIND})


def _with_finalizers(claim: Object, finalizers: list[str]) -> Object:
    return {**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}}


def _stamped(claim: Object) -> Object:
    """The claim with the time of its allocation, unless it has one."""
    status = claim["status"]
    allocation = {"allocationTimestamp": timestamp(), **status["allocation"]}
    return {**claim, "status": {**status, "allocation": allocation}}


def _has_conditions(allocation: Mapping[str, Any]) -> bool:
    """Whether any device of an allocation has binding conditions."""
    return any(result.get("bindingConditions") for result in (allocation.get("devices") or {}).get("results") or ())


def _is_idle(claim: Object) -> bool:
    """Whether a claim has devices of certain nodes but no consumer."""
    status = claim.get("status") or {}
    return not status.get("reservedFor") and bool((status.get("allocation") or {}).get("nodeSelector"))


def _is_used(claim: Object) -> bool:
    """Whether a claim is allocated or reserved for a consumer."""
    return reservation.is_allocated(claim) or bool((claim.get("status") or {}).get("reservedFor"))
