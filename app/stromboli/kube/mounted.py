"""The volumes behind pods' disks and claims, as numbers that are kept from session to session.

They follow from the disks and claims of a pod, the claims' volumes and their storage classes, and are looked up again
when one of these objects changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np

from stromboli.api import keys
from stromboli.api.resources import Rows
from stromboli.kube.csi_migration import Volume, migrated
from stromboli.kube.storage import PersistentVolumeClaim, Storage
from stromboli.state.columns import Column
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot


class Numbers:
    """Numbers for values. Thread-safe; some numbers may remain unused."""

    def __init__(self) -> None:
        self.known: dict[Hashable, int] = {}
        self._next = count()

    def of(self, value: Hashable) -> int:
        number = self.known.get(value)
        return self.known.setdefault(value, next(self._next)) if number is None else number


class Numbering:
    """The numbers of volumes and of their drivers, which are never reused."""

    def __init__(self) -> None:
        self.volumes = Numbers()
        self.drivers = Numbers()


class Named(NamedTuple):
    """The disks and claims of a pod, by which its volumes are found."""

    namespace: str
    claims: tuple[str, ...]
    #: disks that a CSI driver handles
    disks: tuple[Volume, ...]
    #: the claims of ephemeral volumes, and the name of the pod that must own them
    ephemeral: tuple[str, ...] = ()
    owner: str = ""


#: finds the volumes of a pod's disks and of those of its claims that exist, each once
Reading: TypeAlias = Callable[[Named, Sequence[PersistentVolumeClaim], Storage], Iterable[Volume]]

_CLAIMS, _VOLUMES, _CLASSES = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
#: the table is rebuilt when more entries than this are vacant, beyond the number in use
_SLACK = 1_000
_NONE: Rows = np.zeros(0, np.intp)


def mounted_volumes(snapshot: Snapshot, storage: Storage, read: Reading) -> MountedVolumes:
    """Values computed by a function from the claims of a snapshot's pods."""
    known = snapshot.derived.get(read)
    assert known is None or isinstance(known, MountedVolumes)
    named = snapshot.pod_facts.column("claims", _named)
    if known is None or not known.may_go_on(named, storage):
        known = MountedVolumes(named)
    known = snapshot.derived[read] = known.after(named, storage, read)
    return known


class MountedVolumes:
    """An immutable table of the values of pods; an updated copy replaces it when objects change."""

    def __init__(self, named: Column[Named]) -> None:
        #: the distinct sets of disks and claims, and the number of each pod's set, -1 for none, shape (pods,)
        self._named = named.values
        self._of_pod = named.numbers
        self._plain = dict.fromkeys((_CLAIMS, _VOLUMES, _CLASSES), NO_OBJECTS)
        #: for each set: the offset of its volumes in the columns below, and their number
        self._first = self._size = _NONE
        #: numbers of volumes, and of their drivers
        self._volumes = self._drivers = _NONE
        #: hashes of the objects that were read, and the sets that depend on them; on a hash collision more is read
        #: again than necessary
        self._marks = self._marked = _NONE
        self.numbering = Numbering()

    def may_go_on(self, named: Column[Named], storage: Storage) -> bool:
        """Whether only pods, claims and volumes have changed, and few entries are vacant."""
        return (
            self._named is named.values
            and not storage.plain(_CLASSES).changed_since(self._plain[_CLASSES])
            and len(self._volumes) <= 2 * int(self._size.sum()) + _SLACK
        )

    def after(self, named: Column[Named], storage: Storage, read: Reading) -> MountedVolumes:
        """The table after some objects and pods changed."""
        out, values, known = copy(self), named.values[:], len(self._size)
        out._of_pod, out._plain = named.numbers, {kind: storage.plain(kind) for kind in self._plain}
        changed = list(map(hash, self._changed(storage))) if known else []
        stale = np.unique(self._marked[np.isin(self._marks, changed)]) if changed else _NONE
        new = np.concatenate([stale, np.arange(known, len(values))])
        if len(new):
            out._look_up(new, [values[number] for number in new.tolist()], storage, read)
        return out

    def _changed(self, storage: Storage) -> Iterator[tuple[str, str]]:
        for kind in (_CLAIMS, _VOLUMES):
            yield from ((kind, key) for key in storage.plain(kind).changed_since(self._plain[kind]))

    def _look_up(self, new: Rows, named: Sequence[Named], storage: Storage, read: Reading) -> None:
        """Find the volumes of sets; `new` are their numbers."""
        found: list[Volume] = []
        sizes: list[int] = []
        marks: list[int] = []
        marked: list[int] = []
        for number, each in zip(new.tolist(), named, strict=True):
            claims = [claim for name in each.claims if (claim := storage.claim(each.namespace, name)) is not None]
            volumes = list(read(each, claims, storage))
            found += volumes
            sizes.append(len(volumes))
            marks += [hash((_CLAIMS, keys.key(each.namespace, name))) for name in each.claims]
            marks += [hash((_VOLUMES, claim.spec.volume_name)) for claim in claims if claim.spec.volume_name]
            marked += [number] * (len(marks) - len(marked))
        size = np.array(sizes, np.intp)
        first = len(self._volumes) + np.cumsum(size) - size
        keep = ~np.isin(self._marked, new[new < len(self._size)])
        self._first, self._size = _with(self._first, new, first), _with(self._size, new, size)
        self._volumes = _joined(self._volumes, map(self.numbering.volumes.of, found))
        self._drivers = _joined(self._drivers, (self.numbering.drivers.of(driver) for driver, _ in found))
        self._marks, self._marked = _joined(self._marks[keep], marks), _joined(self._marked[keep], marked)

    # -- asked by sessions -------------------------------------------------------------------------------------------

    def driver(self, name: str) -> int:
        """The number of a driver; -1 if it has no volume."""
        return self.numbering.drivers.known.get(name, -1)

    @property
    def drivers(self) -> Mapping[int, str]:
        """The drivers by number."""
        return {number: str(name) for name, number in self.numbering.drivers.known.items()}

    def of(self, row: int) -> tuple[Rows, Rows]:
        """The volumes of a pod, and their drivers."""
        named = self._of_pod.item(row)
        if named < 0:
            return _NONE, _NONE
        begin = self._first.item(named)
        found = slice(begin, begin + self._size.item(named))
        return self._volumes[found], self._drivers[found]

    def of_all(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """The volumes of some pods with their drivers, and for each the pod's index in `rows`."""
        named = self._of_pod[rows]
        at = np.flatnonzero(named >= 0)
        named = named[at]
        sizes = self._size[named]
        first = np.repeat(self._first[named] - (np.cumsum(sizes) - sizes), sizes)
        found = first + np.arange(len(first))
        return self._volumes[found], self._drivers[found], np.repeat(at, sizes)


def _joined(before: Rows, more: Iterable[int]) -> Rows:
    return np.concatenate([before, np.fromiter(more, np.intp)])


def _with(before: Rows, at: Rows, values: Rows) -> Rows:
    """A copy with other values in some rows; new rows come last."""
    out = np.concatenate([before, np.zeros(np.count_nonzero(at >= len(before)), np.intp)])
    out[at] = values
    return out


def _named(pod: PodRecord) -> Named | None:
    pod_class = pod.pod_class
    if not pod_class.claims and not pod_class.disks:
        return None
    disks = tuple(volume for disk in pod_class.disks if (volume := migrated(disk)) is not None)
    if not pod_class.claims and not disks:
        return None
    ephemeral = pod_class.ephemeral_claims
    return Named(pod_class.namespace, pod_class.claims, disks, ephemeral, pod.name if ephemeral else "")
