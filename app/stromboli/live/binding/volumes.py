"""Binds the PersistentVolumeClaims of pods before the pods, and releases the claims of pods that are not bound.

This follows kube-scheduler's volume binding. An existing volume gets the claim's reference; a claim whose volume is to
be provisioned gets its pod's node. Then the persistent volume controller and the provisioners are waited for. A node
for which no volume is provisioned, or not in time, is avoided for the claim for a while.

A bound claim stays bound; Kubernetes cannot undo that. Existing volumes are bound last, since provisioning may fail: a
pod would be held on a node where it cannot have all its volumes.

A claim that is not bound is released when none of its pods is getting a node and no other scheduler may have written
what is released: at once if we gave up the binding, and after a delay if a former leader left it, or if a provisioner
was asked that has not refused, since its volume may be on its way. Until then sessions may use the claim as it is. What
we wrote and is still wanted, or seems to be while its pods or its class are missing, is looked at again later.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from stromboli.api import keys, objects
from stromboli.api.decisions import Bind, VolumeUse
from stromboli.kube import volume_reservation as reservation
from stromboli.kube.storage import (
    REFUSED_ON,
    SELECTED_NODE,
    WAITING_SINCE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stromboli.kube.volume_index import reaching
from stromboli.kube.volume_reservation import StaleVolumeError, VolumeRefusedError
from stromboli.live.api_server.client import AGENT, MERGE_PATCH, ApiError, Kube
from stromboli.live.binding.avoided_nodes import AvoidedNodes
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
from stromboli.state.pods import PodRecord

log = Logger(__name__)

_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"
#: seconds that a claim is left to a provisioner that has been asked for its volume
_ON_ITS_WAY = 10.0


@dataclass(frozen=True, slots=True)
class _Release(Release):
    """A claim to release: either its volume's reference to it, or the node that it names."""

    #: the claim's uid
    uid: str
    #: the volume whose reference is removed, empty for none
    volume: str = ""
    #: the node whose name is removed from the claim, if `volume` is empty
    node: str = ""


class Volumes(Reserver[VolumeUse, _Release]):
    """Writes claims and volumes over the binder's connections, at a bounded rate."""

    kind = _CLAIM
    what = "volumes"

    def __init__(self, kube: Kube, mirror: Mirror, *, workers: int, rate: float) -> None:
        super().__init__(mirror, "volume", workers)
        self._claims = WrittenObjects(
            kube,
            mirror,
            _CLAIM,
            lambda: "/api/v1/persistentvolumeclaims",
            self._shown_claim,
            self._claim_changed,
            rate=rate,
        )
        self._volumes = WrittenObjects(
            kube,
            mirror,
            _VOLUME,
            lambda: "/api/v1/persistentvolumes",
            self._shown_volume,
            self._volume_changed,
            rate=rate,
        )
        #: the claim that each volume is promised to, by key of the volume
        self._taken: dict[str, str] = {}
        self._avoided = AvoidedNodes(self._node_allowed)
        #: pods by key of each claim that they mount; None after a pod has changed
        self._users: dict[str, list[PodRecord]] | None = None
        mirror.listen("Pod", self._pod_changed)

    # -- reserving ---------------------------------------------------------------------------------------------------

    def _uses(self, bind: Bind) -> Sequence[VolumeUse]:
        return bind.volumes

    def _hold(self, use: VolumeUse) -> None:
        self._claims.hold(use.key)
        if use.volume:
            self._volumes.hold(use.volume)
            self._taken[use.volume] = use.key

    def _let_go(self, use: VolumeUse) -> None:
        if self._taken.get(use.volume) == use.key:
            del self._taken[use.volume]

    async def reserve(self, binds: Wanted) -> None:
        """Have the claims of the pods of one job bound, each while it is still wanted. Raises NotReservedError.

        Claims that were written before the first failure are left to be released.
        """
        steps = self._steps(binds)
        if not steps:
            return
        try:
            deadline = time.monotonic() + min(step.use.within for step in steps)
            for exists in (False, True):
                some = [step for step in steps if bool(step.use.volume) is exists]
                await self._write_all(some)
                await self._bound(binds, some, deadline - time.monotonic())
        finally:
            for bind, _ in binds:
                self._forget(bind)

    async def _write(self, step: Step[VolumeUse], wanted: Callable[[], bool]) -> None:
        """Write the annotations and references by which a claim's volume is bound or provisioned."""
        key = step.use.key
        try:
            await self._claims.change(key, partial(self._select, step, wanted))
            if step.use.volume:
                await self._volumes.change(step.use.volume, partial(self._give, step, wanted))
        except ApiError as error:
            if error.status != 404:
                raise
            raise StaleVolumeError(f"persistentvolumeclaim {key} or its volume was deleted") from None

    async def _select(self, step: Step[VolumeUse], wanted: Callable[[], bool], claim: Object) -> None:
        """Have a claim name its pod's node, if its volume is to be provisioned."""
        key, node = step.use.key, step.bind.node
        reservation.check_claim(claim, key, step.use.uid)
        if step.use.volume or reservation.volume_name(claim):
            return
        selected = reservation.selected_node(claim)
        if selected and selected != node:
            raise StaleVolumeError(f"the volume of persistentvolumeclaim {key} is being provisioned on node {selected}")
        if not selected:
            await self._patch(self._claims, key, claim, reservation.selecting(node), wanted)

    async def _give(self, step: Step[VolumeUse], wanted: Callable[[], bool], volume: Object) -> None:
        """Have a volume refer to a claim."""
        use = step.use
        claim = reservation.check_claim(self._claims.current(use.key), use.key, use.uid)
        reservation.check_volume(volume, use.volume, claim)
        if not reservation.names(volume, claim):
            await self._patch(self._volumes, use.volume, volume, reservation.bound_to(volume, claim), wanted)

    async def _patch(
        self,
        written: WrittenObjects,
        key: str,
        obj: Object,
        patch: Mapping[str, Any],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        body = msgspec.json.encode(reservation.on_version(obj, patch))
        await written.write("PATCH", key, body, wanted=wanted, content_type=MERGE_PATCH)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _bound(self, binds: Wanted, steps: Sequence[Step[VolumeUse]], seconds: float) -> None:
        """Return when all claims are bound. Raises NotReservedError."""
        late = await self._wait(binds, steps, seconds)
        for step in late:
            self._avoided.refuse(step.use.key, step.bind.node)
        if late:
            use = late[0].use
            problem = f"persistentvolumeclaim {use.key} was not bound within {use.within:.0f} s"
            raise NotReservedError(late[0].bind, VolumeRefusedError(problem))
        for step in steps:
            self._avoided.forget(step.use.key)

    def _unready(self, steps: Sequence[Step[VolumeUse]]) -> list[Step[VolumeUse]]:
        left, failure = [], None
        for step in steps:
            try:
                if not self._is_bound(step):
                    left.append(step)
            except (StaleVolumeError, VolumeRefusedError) as error:
                if isinstance(error, VolumeRefusedError):
                    self._avoided.refuse(step.use.key, step.bind.node)
                failure = failure or NotReservedError(step.bind, error)
        if failure is not None:
            raise failure
        return left

    def _is_bound(self, step: Step[VolumeUse]) -> bool:
        """Whether a claim is bound to a volume that its pod can use. Raises StaleVolumeError or VolumeRefusedError."""
        key, node, use = step.use.key, step.bind.node, step.use
        claim = reservation.check_claim(self._claims.current(key), key, use.uid)
        if reservation.is_bound(claim):
            return self._reaches(reservation.volume_name(claim), node)
        if use.volume:
            volume = reservation.check_volume(self._volumes.current(use.volume), use.volume, claim)
            if not reservation.names(volume, claim):
                raise StaleVolumeError(f"persistentvolume {use.volume} no longer refers to persistentvolumeclaim {key}")
        elif reservation.selected_node(claim) != node:
            raise VolumeRefusedError(f"no volume is provisioned for persistentvolumeclaim {key} on node {node}")
        return False

    def _reaches(self, name: str, node: str) -> bool:
        """Whether a volume is known yet. Raises StaleVolumeError when the node cannot access it."""
        plain = self._volumes.current(name)
        if plain is None:
            return False
        facts = self._state.nodes.facts()
        rows = reaching(msgspec.convert(plain, PersistentVolume, strict=False), facts)
        if rows is not None and facts.index.get(node, -1) not in rows:
            raise StaleVolumeError(f"persistentvolume {name} cannot be accessed from node {node}")
        return True

    def _node_allowed(self, key: str) -> None:
        self._claims.show(key)
        self._mirror.changed()

    # -- releasing ---------------------------------------------------------------------------------------------------

    def _release_of(self, bind: Bind, use: VolumeUse) -> _Release:
        return _Release(use.key, bind.key, use.uid, use.volume, "" if use.volume else bind.node)

    def _delay(self, bind: Bind, use: VolumeUse, after: float) -> float:
        record = self._state.record(bind.key)
        gone = record is None or record.uid != bind.uid or self._state.nodes.record(bind.node) is None
        refused = bind.node in self._avoided.of(use.key)
        return after if use.volume or gone or refused else max(after, _ON_ITS_WAY)

    async def run(self) -> None:
        """Release until cancelled. Pods, claims and volumes must have been listed."""
        self._running = True
        for written, look in ((self._claims, self._look), (self._volumes, self._look_at_volume)):
            for key, obj in written.all():
                look(key, obj)
        await self._releases.run()

    def _look(self, key: str, claim: Object) -> None:
        """Schedule the release of a claim that names a node and has no volume, unless it is promised."""
        node = reservation.selected_node(claim)
        if node and not reservation.volume_name(claim) and key not in self._promised:
            uid = claim["metadata"].get("uid") or ""
            delay = LATE if self._state.nodes.record(node) is None else _ON_ITS_WAY
            self._releases.schedule(_Release(key, "", uid, node=node), delay)

    def _look_at_volume(self, name: str, volume: Object) -> None:
        """Schedule the release of an unbound volume that refers to a claim, unless the claim is promised."""
        key = reservation.claim_of(volume)
        if key and reservation.is_returnable(volume) and key not in self._promised:
            uid = volume["spec"]["claimRef"].get("uid") or ""
            self._releases.schedule(_Release(key, "", uid, volume=name), LATE)

    async def _release(self, item: _Release) -> None:
        try:
            if item.volume:
                await self._volumes.change(item.volume, partial(self._return, item))
            else:
                await self._claims.change(item.object, partial(self._deselect, item))
        except ApiError as error:
            if error.status != 404:
                raise

    async def _return(self, item: _Release, volume: Object) -> None:
        claim = self._claims.current(item.object)
        ref = (volume.get("spec") or {}).get("claimRef") or {}
        ours = reservation.claim_of(volume) == item.object and ref.get("uid") == item.uid
        bound = claim is not None and reservation.volume_name(claim) == item.volume
        if ours and not bound and reservation.is_returnable(volume) and self._is_free(item, volume):
            await self._patch(self._volumes, item.volume, volume, reservation.RETURNED)
            log.info("volume released", volume=item.volume, claim=item.object, pod=item.pod)

    async def _deselect(self, item: _Release, claim: Object) -> None:
        ours = claim["metadata"].get("uid") == item.uid and reservation.selected_node(claim) == item.node
        if ours and not reservation.volume_name(claim) and self._is_free(item, claim):
            await self._patch(self._claims, item.object, claim, reservation.selecting(None))
            log.info("claim released", claim=item.object, node=item.node, pod=item.pod)

    def _is_free(self, item: _Release, written: Object) -> bool:
        """Whether a reservation may be released; one of ours that may not is looked at again later."""
        if reservation.is_written_by_another(written, AGENT):
            return False
        wanted = self._is_wanted(item)
        if wanted:
            self._releases.schedule(item, _ON_ITS_WAY)
        return not wanted

    def _is_wanted(self, item: _Release) -> bool:
        """Whether a pod that uses a claim has a node or is getting one, or another scheduler may have reserved it.

        The latter is the case if no pod uses the claim, or its class binds immediately, unless we made the reservation.
        """
        if item.object in self._promised:
            return True
        users = self._users_of(item.object)
        if not item.pod and not (users and self._is_delayed(item.object)):
            return True
        return any(
            user.scheduler_name not in self._state.scheduler_names or user.node_name or user.key in self._state.assumed
            for user in users
        )

    def _is_delayed(self, key: str) -> bool:
        """Whether the class of a claim has the binding mode WaitForFirstConsumer."""
        claim = self._state.objects[_CLAIM].get(key)
        if claim is None:
            return False
        name = msgspec.convert(claim, PersistentVolumeClaim, strict=False).storage_class
        plain = self._state.objects["StorageClass"].get(name)
        return plain is not None and msgspec.convert(plain, StorageClass, strict=False).delayed

    def _users_of(self, key: str) -> Sequence[PodRecord]:
        """The pods that mount a claim."""
        if self._users is None:
            self._users = defaultdict(list)
            for record in self._state.pods.records:
                for name in record.pod_class.claims if record is not None else ():
                    assert record is not None
                    self._users[keys.key(record.namespace, name)].append(record)
        return self._users.get(key, ())

    # -- objects of the API server -----------------------------------------------------------------------------------

    def _show(self, use: VolumeUse) -> None:
        self._claims.show(use.key)
        if use.volume:
            self._volumes.show(use.volume)

    def _shown_claim(self, key: str, claim: Object) -> Object:
        """A claim with its promise written, and with the nodes that sessions avoid for it."""
        more: dict[str, str] = {}
        promise = next(iter(self._promised.get(key, {}).values()), None)
        if promise is not None and promise.use.uid == claim["metadata"].get("uid") and not reservation.is_bound(claim):
            more[WAITING_SINCE] = f"{promise.since:.3f}"
            if not promise.use.volume:
                more[SELECTED_NODE] = promise.bind.node
        avoided = self._avoided.of(key)
        if avoided and not reservation.volume_name(claim):
            more[REFUSED_ON] = ",".join(sorted(avoided))
        return reservation.annotated(claim, more) if more else claim

    def _shown_volume(self, name: str, volume: Object) -> Object:
        """A volume with its promise written."""
        key = self._taken.get(name)
        claim = self._claims.current(key) if key is not None else None
        if claim is None or reservation.claim_of(volume):
            return volume
        return reservation.shown_bound(volume, claim)

    def _claim_changed(self, key: str, claim: Object | None) -> None:
        self._news.changed(_CLAIM, key)
        if claim is None:
            self._avoided.forget(key)
        elif self._running:
            self._look(key, claim)

    def _volume_changed(self, name: str, volume: Object | None) -> None:
        for key in {self._taken.get(name), reservation.claim_of(volume) if volume is not None else None}:
            if key:
                self._news.changed(_CLAIM, key)
        if volume is not None and self._running:
            self._look_at_volume(name, volume)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        self._users = None
        record = None if isinstance(pod, str) or pod.spec.node_name else self._state.record(pod.metadata.key)
        if not self._running or record is None:
            return
        # A claim that no pod used is not released; now one of ours does.
        for name in record.pod_class.claims:
            key = keys.key(record.namespace, name)
            claim = self._claims.current(key)
            if claim is not None:
                self._look(key, claim)
