"""Reads the owners of pods, following controller references as far as the kinds are known and readable.

Answers are cached for seconds, since the pods of a workload arrive together. A kind that may not be read is reported
once, with the RBAC rule to add, and does not count as an owner until it is readable.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stromboli.api import objects
from stromboli.api.errors import StromboliError
from stromboli.api.keys import is_name, key
from stromboli.live.api_server.client import ApiError, Kube, Object
from stromboli.live.api_server.versions import is_older, version_of
from stromboli.live.process.logs import Logger
from stromboli.policy.queue_rules import QueueRule
from stromboli.workloads import Family, Kind, Kinds, family_of, label_of, labelled_family
from stromboli.workloads.gangs import has_ended
from stromboli.workloads.groups import MOST_OWNERS, controller, manager_of
from stromboli.workloads.paths import at
from stromboli.workloads.vanished import attempt_of

log = Logger(__name__)

#: seconds for which an owner is not read again, and the number of owners that are kept
_FRESH = 5.0
_KEPT = 2_048
#: owners of a pod that are read in addition to its manager
_MOST_BESIDE = 4
#: seconds after which a kind that may not be read in a namespace is tried again there
_FORBIDDEN = 60.0
_OTHERWISE = "without get their pods start one by one, without list and watch groups do not follow them"
_VERSION = re.compile(r"[a-z0-9]+")


class _Owner(msgspec.Struct):
    metadata: objects.Metadata


class Owners:
    """The owners of pods; methods raise ApiError and CONNECTION_ERRORS when the API server does not answer."""

    def __init__(self, kube: Kube, kinds: Kinds, clock: Callable[[], float] = time.monotonic) -> None:
        self.kinds = kinds
        self._kube = kube
        self._clock = clock
        #: by uid, with the time at which each was read; those that are not there are None
        self._known: OrderedDict[str, tuple[float, Object | None]] = OrderedDict()
        #: kinds that may not be read, each with the namespace, and until when they are not asked for
        self._forbidden: dict[tuple[str, str], float] = {}
        self._told: set[str] = set()
        #: by which workloads get their queue
        self.rules: Sequence[QueueRule] = ()

    async def family(self, pod: objects.Pod, inside: Object, *, anew: bool = False) -> Family:
        """The workload of a pod inside a namespace; `anew` has what manages the pod read again, and what manages that.

        Raises InvalidObjectError for an owner that cannot be read.
        """
        namespace, manager = pod.metadata.namespace or "default", controller(pod)
        if anew:
            self._outdate(manager)
        label = label_of(pod, self.kinds)
        if label is not None:
            owners = await self._up(namespace, manager)
            if label.reference is None:
                return labelled_family(pod, label, owners, self.kinds, inside, self.rules)
            named = await self._named(namespace, label.reference)
            if named is not None:
                upwards = [named, *await self.above(named)]
                return family_of(pod, upwards, self.kinds, owners, inside, self.rules)
        others = [each for each in pod.metadata.owner_references or () if each is not manager]
        known = [each for each in others if self.kinds.get(each.api_version, each.kind) and is_name(each.name)]
        beside = [owner for each in known[:_MOST_BESIDE] if (owner := await self._read(namespace, each))]
        return family_of(pod, await self._up(namespace, manager), self.kinds, beside, inside, self.rules)

    async def above(self, owner: Object) -> list[Object]:
        """The owner's own controller, and so on upwards."""
        return await self._up(str(owner["metadata"].get("namespace") or "default"), manager_of(owner))

    def seen(self, owner: Object) -> None:
        """Take a version of an owner that was watched, unless a later one was read."""
        uid = owner["metadata"].get("uid")
        known = self.latest(uid) if isinstance(uid, str) else owner
        if known is None or not is_older(version_of(owner), version_of(known)):
            self._keep(str(uid), owner)

    def latest(self, uid: str) -> Object | None:
        """The latest version of an owner, if it was watched or read recently."""
        return self._known.get(uid, (0.0, None))[1]

    def workloads(self, pod: objects.Pod) -> set[str]:
        """The keys of a pod's known owners, and of the object that a label of the pod names."""
        names, label = {each.name for each in pod.metadata.owner_references or ()}, label_of(pod, self.kinds)
        names |= {label.name} if label is not None else set()
        reference = controller(pod)
        for _ in range(MOST_OWNERS):
            owner = self.latest(reference.uid) if reference is not None else None
            reference = manager_of(owner) if owner is not None else None
            names |= {reference.name} if reference is not None else set()
        return {key(pod.metadata.namespace or "default", name) for name in names}

    def forbidden(self, kind: Kind) -> None:
        """A kind may not be read, or not be watched: tell it once, with the rule to add and what happens without."""
        if kind.name not in self._told:
            self._told.add(kind.name)
            rule = f'{{apiGroups: ["{kind.row.group}"], resources: [{kind.row.plural}], verbs: [get, list, watch]}}'
            log.warning("owners may not be read", kind=kind.name, rule=rule, otherwise=_OTHERWISE)

    def _outdate(self, reference: objects.OwnerReference | None) -> None:
        """Have an owner, and its own controllers, read again."""
        for _ in range(MOST_OWNERS):
            owner = self.latest(reference.uid) if reference is not None else None
            if reference is None or owner is None:
                return
            self._known[reference.uid] = self._clock() - _FRESH, owner
            reference = manager_of(owner)

    async def _up(self, namespace: str, reference: objects.OwnerReference | None) -> list[Object]:
        found: list[Object] = []
        while reference is not None and len(found) < MOST_OWNERS:
            owner = await self._read(namespace, reference)
            if owner is None:
                break
            found.append(owner)
            reference = manager_of(owner)
        return found

    async def _named(self, namespace: str, reference: objects.OwnerReference) -> Object | None:
        """The object that a label names; None where its kind is not served or may not be read.

        Raises StromboliError for one that is not there: its pods wait for it.
        """
        kind = self.kinds.get(reference.api_version, reference.kind)
        if kind is None or not is_name(reference.name):
            return None

        def failed(error: ApiError) -> None:
            if error.status == 404 and f'"{reference.name}"' in error.message:
                raise StromboliError(
                    f"there is no {kind.name} {namespace}/{reference.name}, which a label names"
                ) from None

        owner = await self._fetch(kind, namespace, reference, failed)
        if owner is not None:
            self.seen(owner)
        return owner

    async def _read(self, namespace: str, reference: objects.OwnerReference) -> Object | None:
        kind = self.kinds.get(reference.api_version, reference.kind)
        if kind is None or not is_name(reference.name):
            return None
        read, owner = self._known.get(reference.uid, (-_FRESH, None))
        now = self._clock()
        if now - read < _FRESH:
            return owner
        if self._forbidden.get((kind.name, namespace), now) > now:
            return None
        owner = await self._get(kind, namespace, reference)
        self._keep(reference.uid, owner)
        return owner

    async def _get(self, kind: Kind, namespace: str, reference: objects.OwnerReference) -> Object | None:
        def failed(error: ApiError) -> None:
            if error.status != 404:
                log.recurring("owner not read", error, kind=kind.name, name=reference.name)

        owner = await self._fetch(kind, namespace, reference, failed)
        # The owner may have been replaced, or the reference may be invalid.
        if owner is None or msgspec.convert(owner, _Owner).metadata.uid != reference.uid:
            return None
        return owner

    async def _fetch(
        self,
        kind: Kind,
        namespace: str,
        reference: objects.OwnerReference,
        failed: Callable[[ApiError], None],
    ) -> Object | None:
        """The object that a reference names; None where it cannot be read, which `failed` is told unless it may not."""
        version = reference.api_version.rpartition("/")[2]
        if _VERSION.fullmatch(version) is None:
            return None
        root = f"/apis/{kind.row.group}/{version}" if kind.row.group else f"/api/{version}"
        try:
            owner = await self._kube.get(f"{root}/namespaces/{namespace}/{kind.row.plural}/{reference.name}")
        except ApiError as error:
            if error.retriable:
                raise
            if error.status == 403:
                self._forbidden[kind.name, namespace] = self._clock() + _FORBIDDEN
                self.forbidden(kind)
            else:
                failed(error)
            return None
        # What is decoded alone names its kind; items of lists do not.
        named: dict[str, Any] = {"apiVersion": reference.api_version, "kind": reference.kind}
        return {**named, **owner}

    def _keep(self, uid: str, owner: Object | None) -> None:
        self._known[uid] = self._clock(), owner
        self._known.move_to_end(uid)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)


def print_of(owner: Object) -> int:
    """A hash of the parts of an owner that its groups depend on: with equal hashes, groups need no update."""
    meta = owner["metadata"]
    failed = at(owner, "status.failedIndexes")
    status = failed, has_ended(owner), attempt_of(owner)
    relevant = (meta.get("labels"), meta.get("annotations"), owner.get("spec"), *status)
    return hash(msgspec.json.encode(relevant, order="deterministic"))
