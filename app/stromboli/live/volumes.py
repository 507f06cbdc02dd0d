"""Has the claims of pods' volumes bound before the pods are, and gives back what was written for pods that are not.

As kube-scheduler does it: a volume that exists is given the claim's reference, for one that does not the claim gets the
node of its pod; then the controller of volumes and the provisioners are waited for. Where no volume is made for a node,
or none in time, sessions are told to leave that node alone for the claim for a while.

What a claim that is not bound holds is given back when its pods are ours and are getting no node: at once when we gave
up the binding, and after a while when a former leader left it. Until then a session may use it as it is. What is bound
stays bound: Kubernetes knows no way back from there.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from stromboli.live.client import MERGE_PATCH, ApiError, Kube
from stromboli.live.limits import Backoff
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
from stromboli.state.pods import PodRecord

log = Logger(__name__)

_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"
#: for how long a node is left alone for which a claim got no volume, in seconds: at first and at most
_REFUSED = (5.0, 300.0)


@dataclass(frozen=True, slots=True)
class _Release(Release):
    """What is to be given back of a claim."""

    #: of the claim
    uid: str
    #: the volume that names it, if that is what is given back
    volume: str = ""
    #: the node that it names otherwise
    node: str = ""


@dataclass(frozen=True, slots=True)
class _Promise:
    """What is being written and waited for."""

    bind: Bind
    use: VolumeUse
    #: seconds since the epoch
    since: float


@dataclass(frozen=True, slots=True)
class _Step:
    """A claim that is bound for a pod."""

    bind: Bind
    use: VolumeUse
    wanted: Callable[[], bool]


class Volumes:
    """Writes claims and volumes over the binder's connections, at a bounded rate."""

    what = "volumes"

    def __init__(self, kube: Kube, mirror: Mirror, *, workers: int, rate: float) -> None:
        self._state = mirror.state
        self._mirror = mirror
        self._limit = asyncio.Semaphore(workers)
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
        #: by key of the claim and uid of the pod
        self._promised: dict[str, dict[str, _Promise]] = {}
        #: the claim that a volume is promised to, by their keys
        self._taken: dict[str, str] = {}
        #: by key of the claim: the nodes that are left alone, and how long the next refusal makes it
        self._refused: defaultdict[str, dict[str, Backoff]] = defaultdict(dict)
        self._avoided: defaultdict[str, set[str]] = defaultdict(set)
        #: who waits for news of an object, by its kind and key
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)
        self._releases = Releases("volume", self._release, mirror, workers)
        #: pods by the claims that they mount, until one of them changes
        self._users: dict[str, list[PodRecord]] | None = None
        self._running = False
        mirror.listen("Pod", self._pod_changed)
        mirror.listen("Node", self._node_changed)

    # -- reserving ---------------------------------------------------------------------------------------------------

    def promise(self, bind: Bind) -> None:
        """From now on the claims of a pod count as what was decided about them."""
        for use in bind.volumes:
            self._claims.hold(use.key)
            self._promised.setdefault(use.key, {})[bind.uid] = _Promise(bind, use, time.time())
            if use.volume:
                self._volumes.hold(use.volume)
                self._taken[use.volume] = use.key
            self._show(use)

    async def reserve(self, binds: Wanted) -> None:
        """Have the claims of pods that belong together bound, each while it is still wanted. Raises NotReservedError.

        What was written when the first of them failed is left as it is, to be released.
        """
        steps = [_Step(bind, use, wanted) for bind, wanted in binds for use in bind.volumes]
        if not steps:
            return
        failures: list[NotReservedError] = []

        async def one(step: _Step) -> None:
            async with self._limit:
                try:
                    if not failures:
                        await self._write(step, lambda: not failures and step.wanted())
                except FAILURES as error:
                    failures.append(NotReservedError(step.bind, error))

        try:
            began = time.monotonic()
            await asyncio.gather(*map(one, steps))
            if failures:
                raise failures[0]
            await self._bound(steps, began + min(step.use.within for step in steps))
        finally:
            for bind, _ in binds:
                self._forget(bind)

    async def _write(self, step: _Step, wanted: Callable[[], bool]) -> None:
        """Have others bind a claim."""
        key = step.use.key
        try:
            await self._claims.change(key, partial(self._select, step, wanted))
            if step.use.volume:
                await self._volumes.change(step.use.volume, partial(self._give, step, wanted))
        except ApiError as error:
            if error.status != 404:
                raise
            raise StaleVolumeError(f"persistentvolumeclaim {key} or its volume is gone") from None

    async def _select(self, step: _Step, wanted: Callable[[], bool], claim: Object) -> None:
        """Have a claim name the node of its pod, if its volume is to be made for it."""
        key, node = step.use.key, step.bind.node
        reservation.check_claim(claim, key, step.use.uid)
        if step.use.volume or reservation.volume_name(claim):
            return
        selected = reservation.selected_node(claim)
        if selected and selected != node:
            raise StaleVolumeError(f"persistentvolumeclaim {key} gets its volume on node {selected} by now")
        if not selected:
            await self._patch(self._claims, key, claim, reservation.selecting(node), wanted)

    async def _give(self, step: _Step, wanted: Callable[[], bool], volume: Object) -> None:
        """Have a volume name a claim."""
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

    def _forget(self, bind: Bind) -> None:
        """The claims of a pod count as they are."""
        for use in bind.volumes:
            promised = self._promised.get(use.key, {})
            promised.pop(bind.uid, None)
            if not promised:
                self._promised.pop(use.key, None)
                if self._taken.get(use.volume) == use.key:
                    del self._taken[use.volume]
            self._show(use)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _bound(self, steps: Sequence[_Step], deadline: float) -> None:
        """Return when all claims are bound; `deadline` is on the monotonic clock. Raises NotReservedError."""
        news, left = asyncio.Event(), list(steps)
        subjects = set(_subjects(steps))
        for subject in subjects:
            self._waiting[subject].add(news)
        try:
            while left:
                news.clear()
                left = self._unbound(left)
                if left:
                    async with asyncio.timeout(deadline - time.monotonic()):
                        await news.wait()
        except TimeoutError:
            for step in left:
                self._refuse(step)
            step = left[0]
            late = f"persistentvolumeclaim {step.use.key} was not bound within {step.use.within:.0f} s"
            raise NotReservedError(step.bind, VolumeRefusedError(late)) from None
        finally:
            for subject in subjects:
                self._waiting[subject].discard(news)
                if not self._waiting[subject]:
                    del self._waiting[subject]
        for step in steps:
            self._refused.pop(step.use.key, None)
            if not step.wanted():
                raise NotReservedError(step.bind, StaleVolumeError("the pod or its node is not what it was"))

    def _unbound(self, steps: Sequence[_Step]) -> list[_Step]:
        """Those of which the claim is not bound yet. Raises NotReservedError for the first that will not be."""
        left, failure = [], None
        for step in steps:
            try:
                if not self._is_bound(step):
                    left.append(step)
            except (StaleVolumeError, VolumeRefusedError) as error:
                if isinstance(error, VolumeRefusedError):
                    self._refuse(step)
                failure = failure or NotReservedError(step.bind, error)
        if failure is not None:
            raise failure
        return left

    def _is_bound(self, step: _Step) -> bool:
        """Whether a claim has its volume for good, and its pod can use it. Raises what speaks against it."""
        key, node, use = step.use.key, step.bind.node, step.use
        if not step.wanted():
            raise StaleVolumeError("the pod or its node is not what it was")
        claim = reservation.check_claim(self._claims.current(key), key, use.uid)
        if reservation.is_bound(claim):
            name = reservation.volume_name(claim)
            return self._reaches(name, node) if name != use.volume else True
        if use.volume:
            volume = reservation.check_volume(self._volumes.current(use.volume), use.volume, claim)
            if not reservation.names(volume, claim):
                raise StaleVolumeError(f"persistentvolume {use.volume} was taken from persistentvolumeclaim {key}")
        elif reservation.selected_node(claim) != node:
            raise VolumeRefusedError(f"no volume is made for persistentvolumeclaim {key} on node {node}")
        return False

    def _reaches(self, name: str, node: str) -> bool:
        """Whether a volume is known, which a node reaches. Raises StaleVolumeError when it does not."""
        plain = self._volumes.current(name)
        if plain is None:
            return False
        facts = self._state.nodes.facts()
        rows = reaching(msgspec.convert(plain, PersistentVolume, strict=False), facts)
        if rows is not None and facts.index.get(node, -1) not in rows:
            raise StaleVolumeError(f"persistentvolume {name} cannot be reached from node {node}")
        return True

    def _refuse(self, step: _Step) -> None:
        """Have sessions leave a node alone for a claim, longer each time."""
        key, node = step.use.key, step.bind.node
        if node in self._avoided[key]:
            return
        self._avoided[key].add(node)
        backoff = self._refused[key].setdefault(node, Backoff(*_REFUSED))
        asyncio.get_running_loop().call_later(backoff.delay(), self._try_again, key, node)

    def _try_again(self, key: str, node: str) -> None:
        avoided = self._avoided.get(key, set())
        avoided.discard(node)
        if not avoided:
            self._avoided.pop(key, None)
        self._claims.show(key)
        self._mirror.changed()

    # -- releasing ---------------------------------------------------------------------------------------------------

    def release(self, bind: Bind, after: float = 0.0) -> None:
        """A pod is not bound: what was written for it is given back, after some seconds if it is not by then."""
        self._forget(bind)
        for use in bind.volumes:
            item = _Release(use.key, bind.key, use.uid, use.volume, "" if use.volume else bind.node)
            self._releases.schedule(item, after, leaving=not after)

    def is_leaving(self, key: str) -> bool:
        """Whether what was written for a pod is being given back, so that it has to be decided anew."""
        return self._releases.is_leaving(key)

    async def run(self) -> None:
        """Give back until cancelled. Pods, claims and volumes have to be known."""
        self._running = True
        for written, look in ((self._claims, self._look), (self._volumes, self._look_at_volume)):
            for key, obj in written.all():
                look(key, obj)
        await self._releases.run()

    def _look(self, key: str, claim: Object) -> None:
        """Mark a claim that names a node and has no volume, if that is not our doing."""
        node = reservation.selected_node(claim)
        if node and not reservation.volume_name(claim) and key not in self._promised:
            uid = claim["metadata"].get("uid") or ""
            self._releases.schedule(_Release(key, "", uid, node=node), LATE)

    def _look_at_volume(self, name: str, volume: Object) -> None:
        """Mark a volume that was given to a claim and is not bound, if that is not our doing."""
        key = reservation.claim_of(volume)
        if key and reservation.is_returnable(volume) and key not in self._promised:
            uid = volume["spec"]["claimRef"].get("uid") or ""
            self._releases.schedule(_Release(key, "", uid, volume=name), LATE)

    async def _release(self, item: _Release) -> None:
        if self._is_wanted(item):
            return
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
        if ours and not bound and reservation.is_returnable(volume) and not self._is_wanted(item):
            await self._patch(self._volumes, item.volume, volume, reservation.RETURNED)
            log.info("volume released", volume=item.volume, claim=item.object, pod=item.pod)

    async def _deselect(self, item: _Release, claim: Object) -> None:
        ours = claim["metadata"].get("uid") == item.uid and reservation.selected_node(claim) == item.node
        if ours and not reservation.volume_name(claim) and not self._is_wanted(item):
            await self._patch(self._claims, item.object, claim, reservation.selecting(None))
            log.info("claim released", claim=item.object, node=item.node, pod=item.pod)

    def _is_wanted(self, item: _Release) -> bool:
        """Whether a pod that uses a claim has a node or is getting one, or is none of ours.

        What nobody knows to be ours is somebody else's while no pod of ours uses it, or its class binds at once.
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
        """Whether a claim waits for its first pod."""
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

    # -- what the API server has -------------------------------------------------------------------------------------

    def _show(self, use: VolumeUse) -> None:
        self._claims.show(use.key)
        if use.volume:
            self._volumes.show(use.volume)

    def _shown_claim(self, key: str, claim: Object) -> Object:
        """A claim as what is promised of it will have changed it, with what sessions have to know of it."""
        more: dict[str, str] = {}
        promise = next(iter(self._promised.get(key, {}).values()), None)
        if promise is not None and promise.use.uid == claim["metadata"].get("uid") and not reservation.is_bound(claim):
            more[WAITING_SINCE] = f"{promise.since:.3f}"
            if not promise.use.volume:
                more[SELECTED_NODE] = promise.bind.node
        avoided = self._avoided.get(key)
        if avoided and not reservation.volume_name(claim):
            more[REFUSED_ON] = ",".join(sorted(avoided))
        return reservation.annotated(claim, more) if more else claim

    def _shown_volume(self, name: str, volume: Object) -> Object:
        """A volume as what is promised of it will have changed it."""
        key = self._taken.get(name)
        claim = self._claims.current(key) if key is not None else None
        if claim is None or reservation.claim_of(volume):
            return volume
        return reservation.shown_bound(volume, claim)

    def _claim_changed(self, key: str, claim: Object | None) -> None:
        self._tell(_CLAIM, key)
        if claim is None:
            self._refused.pop(key, None)
        elif self._running:
            self._look(key, claim)

    def _volume_changed(self, name: str, volume: Object | None) -> None:
        for key in {self._taken.get(name), reservation.claim_of(volume) if volume is not None else None}:
            if key:
                self._tell(_CLAIM, key)
        if volume is not None and self._running:
            self._look_at_volume(name, volume)

    def _pod_changed(self, type: str, pod: objects.Pod | str) -> None:
        self._users = None
        self._tell("Pod", pod if isinstance(pod, str) else pod.metadata.key)

    def _node_changed(self, type: str, node: objects.Node | str) -> None:
        self._tell("Node", node if isinstance(node, str) else node.metadata.name)

    def _tell(self, kind: str, key: str) -> None:
        """Have those look again who wait for an object."""
        for news in self._waiting.get((kind, key), ()):
            news.set()


def _subjects(steps: Sequence[_Step]) -> Iterator[tuple[str, str]]:
    """What the outcome of some steps hangs on, beside the volumes."""
    for step in steps:
        yield _CLAIM, step.use.key
        yield "Pod", step.bind.key
        yield "Node", step.bind.node
