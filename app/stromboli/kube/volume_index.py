"""The volumes available to a claim: those that refer to it, and the unbound volumes of its class, in columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import cast

import msgspec
import numpy as np

from stromboli.api import keys
from stromboli.api.objects import LabelSelector
from stromboli.api.resources import Mask, Rows
from stromboli.kube.node_affinity import selected_nodes
from stromboli.kube.storage import PersistentVolume, PersistentVolumeClaim, Storage, VolumeAffinity
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.selectors import label_selector
from stromboli.state.snapshot import Snapshot

_KIND = "PersistentVolume"
#: limits on cached answers: by the labels that claims ask for, and by volume
_MOST_SELECTORS, _MOST_VOLUMES = 100, 200_000


def volume_index(snapshot: Snapshot, storage: Storage) -> VolumeIndex:
    """The volumes of a snapshot."""
    before = snapshot.derived.get(VolumeIndex)
    assert before is None or isinstance(before, VolumeIndex)
    if before is not None and not storage.plain(_KIND).changed_since(before.plain):
        return before
    index = snapshot.derived[VolumeIndex] = VolumeIndex(storage, before)
    return index


class VolumeIndex:
    """All volumes of a session. Immutable: updated copies replace it."""

    def __init__(self, storage: Storage, before: VolumeIndex | None = None) -> None:
        self.plain = storage.plain(_KIND)
        was = Storage({_KIND: NO_OBJECTS if before is None else before.plain})
        #: names of volumes by the claim that they refer to, and of the others by class
        self._reserved: dict[str, tuple[str, ...]] = {} if before is None else before._reserved.copy()
        self._unclaimed: dict[str, tuple[str, ...]] = {} if before is None else before._unclaimed.copy()
        self._free: dict[str, FreeVolumes] = {} if before is None else before._free.copy()
        changed = self.plain.changed_since(was.plain(_KIND))
        self._file(changed, was, present=False)
        self._file(changed, storage, present=True)

    def reserved(self, claim: PersistentVolumeClaim, storage: Storage) -> list[PersistentVolume]:
        """The volumes of a claim's class that refer to it."""
        named = self._records(self._reserved.get(claim.key, ()), storage)
        return [each for each in named if each.storage_class == claim.storage_class and each.reserved_for(claim)]

    def free(self, storage_class: str, storage: Storage) -> FreeVolumes:
        """The volumes of a class that refer to no claim."""
        found = self._free.get(storage_class)
        if found is None:
            volumes = self._records(self._unclaimed.get(storage_class, ()), storage)
            found = self._free[storage_class] = FreeVolumes(volumes)
        return found

    def _records(self, names: Sequence[str], storage: Storage) -> list[PersistentVolume]:
        """Some volumes in canonical order."""
        in_order = names if len(names) < 2 else filter(frozenset(names).__contains__, self.plain)
        return [volume for name in in_order if (volume := storage.volume(name)) is not None]

    def _file(self, names: Sequence[str], storage: Storage, *, present: bool) -> None:
        """Add volumes to the index, or remove them."""
        claimed: dict[str, dict[str, None]] = {}
        free: dict[str, dict[str, None]] = {}
        for name in names:
            volume = storage.volume(name)
            if volume is not None:
                ref = volume.spec.claim_ref
                table, key = (
                    (free, volume.storage_class) if ref is None else (claimed, keys.key(ref.namespace, ref.name))
                )
                table.setdefault(key, {})[name] = None
        for filed, table in ((self._reserved, claimed), (self._unclaimed, free)):
            for key, some in table.items():
                others = tuple(each for each in filed.pop(key, ()) if each not in some)
                now = (*others, *some) if present else others
                if now:
                    filed[key] = now
        for storage_class in free:
            self._free.pop(storage_class, None)


class FreeVolumes:
    """Volumes that refer to no claim, smallest first, in columns of shape (volumes,)."""

    def __init__(self, volumes: list[PersistentVolume]) -> None:
        self.volumes = sorted(volumes, key=lambda volume: volume.capacity)
        #: index by name
        self.index = {volume.metadata.name: i for i, volume in enumerate(self.volumes)}
        self._capacity = [volume.capacity for volume in self.volumes]
        #: the distinct kinds of volumes apart from size and labels, and the kind of each
        self._kinds: dict[bytes, int] = {}
        kinds = [self._kinds.setdefault(_kind(volume), len(self._kinds)) for volume in self.volumes]
        self._kind: Rows = np.array(kinds, np.intp)
        self._examples = [self.volumes[kinds.index(kind)] for kind in self._kinds.values()]
        self._labelled: dict[bytes, Mask] = {}

    def __len__(self) -> int:
        return len(self.volumes)

    def suiting(self, claim: PersistentVolumeClaim) -> Mask:
        """The volumes that satisfy a claim, shape (volumes,)."""
        answers = np.array([suits(claim, volume) for volume in self._examples], np.bool_)
        out: Mask = answers[self._kind] if len(self) else np.zeros(0, np.bool_)
        out[: bisect_left(self._capacity, claim.requested)] = False
        return out if claim.spec.selector is None else out & self._selected(claim.spec.selector)

    def _selected(self, selector: LabelSelector) -> Mask:
        key = msgspec.msgpack.encode(selector)
        found = self._labelled.get(key)
        if found is None:
            if len(self._labelled) >= _MOST_SELECTORS:
                self._labelled.clear()
            matches = label_selector(selector).matches
            found = np.array([matches(volume.metadata.labels or {}) for volume in self.volumes], np.bool_)
            self._labelled[key] = found
        return found


def fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether a volume that is large enough can be bound to the claim, reserved for it or not."""
    return (
        (claim.spec.volume_mode or "Filesystem") == (volume.spec.volume_mode or "Filesystem")
        and (claim.spec.volume_attributes_class_name or "") == (volume.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether an unbound volume satisfies a claim, apart from size and labels."""
    return (
        fits(claim, volume)
        and volume.status.phase == "Available"
        and set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ())
    )


def _kind(volume: PersistentVolume) -> bytes:
    """The properties that `suits` compares."""
    spec = volume.spec
    deleted = volume.metadata.deletion_timestamp is not None
    modes = sorted(set(spec.access_modes or ()))
    return msgspec.msgpack.encode(
        (spec.volume_mode, spec.volume_attributes_class_name, modes, deleted, volume.status.phase)
    )


# -- where volumes are -----------------------------------------------------------------------------------------------


class Reach:
    """The nodes that can access the unbound volumes of a class."""

    def __init__(self, free: FreeVolumes, facts: NodeFacts) -> None:
        self.free = free
        self.nodes = len(facts)
        rows = [reaching(volume, facts) for volume in free.volumes]
        #: volumes that all nodes can access
        self.everywhere = np.array([i for i, each in enumerate(rows) if each is None], np.intp)
        #: pairs of a node and a volume that it can access, of the other volumes
        some = [(i, each) for i, each in enumerate(rows) if each is not None]
        self.node = np.concatenate([np.zeros(0, np.intp), *(each for _, each in some)])
        self.volume = np.repeat(
            np.array([i for i, _ in some], np.intp), np.array([len(each) for _, each in some], np.intp)
        )


class Choices:
    """The unbound volumes of a class that the claims of one pod get on each node, one claim after the other.

    A claim costs one pass over the pairs of nodes and volumes, however many claims came before it.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        #: which pairs are left, shape (pairs,)
        self._left = np.ones(len(reach.volume), np.bool_)
        #: where volumes that all nodes can access were taken, by index, and which of them are left on some node
        self._taken: dict[int, Mask] = {}
        self._somewhere = np.ones(len(reach.free), np.bool_)

    def take(self, wanted: Mask) -> Rows:
        """The first of the wanted volumes that is left on each node, -1 for none, shape (nodes,)."""
        reach, none = self._reach, len(self._reach.free)
        out = np.full(reach.nodes, none, np.intp)
        pairs = np.flatnonzero(self._left & wanted[reach.volume])
        np.minimum.at(out, reach.node[pairs], reach.volume[pairs])
        for volume in reach.everywhere[(wanted & self._somewhere)[reach.everywhere]].tolist():
            waiting = out > volume
            if not waiting.any():
                break
            taken = self._taken.get(volume, np.zeros_like(waiting))
            out[waiting & ~taken] = volume
            self._taken[volume] = taken | waiting
            self._somewhere[volume] = not self._taken[volume].all()
        self._left[pairs] &= reach.volume[pairs] != out[reach.node[pairs]]
        out[out == none] = -1
        return out


def reach(free: FreeVolumes, storage_class: str, facts: NodeFacts) -> Reach:
    """The accessibility of the unbound volumes of a class, kept until they or a node change."""
    key = (Reach, storage_class)
    known = cast("Reach | None", facts.cache.get(key))
    if known is None or known.free is not free:
        known = facts.cache[key] = Reach(free, facts)
    return known


def reaching(volume: PersistentVolume, facts: NodeFacts) -> Rows | None:
    """The indices of the nodes that can access a volume; None for all."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    known = cast("dict[str, tuple[VolumeAffinity, Rows]]", facts.cache.setdefault(reaching, {}))
    found = known.get(volume.metadata.name)
    if found is None or found[0] is not affinity:
        if len(known) >= _MOST_VOLUMES:
            known.clear()
        rows = np.flatnonzero(selected_nodes(affinity.required, facts, labels_only=True))
        found = known[volume.metadata.name] = affinity, rows
    return found[1]
