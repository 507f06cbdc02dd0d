"""Which limited volumes the pods of each class mount, as numbers, kept from session to session.

A limited volume is one of a CSI driver that any node takes only so many of. What a class mounts follows from its
claims, their volumes and their storage classes; it is looked up again when one of these is another object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from stromboli.api import keys
from stromboli.api.resources import Rows, Vector
from stromboli.kube.storage import PersistentVolumeClaim, Storage, changed_keys
from stromboli.state.classes import PodClass
from stromboli.state.nodes import NodeFacts
from stromboli.state.snapshot import Snapshot

#: driver and handle; a claim without volume stands for itself
AttachedVolume = tuple[str, str]

_CLAIMS, _VOLUMES, _CLASSES, _CSI_NODES = "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode"
_NOTHING: tuple[int, ...] = ()
#: entries for claims and volumes that nobody uses any more, until all is looked up anew
_SLACK = 1_000


def mounted_volumes(snapshot: Snapshot, storage: Storage) -> MountedVolumes:
    """What the classes of a snapshot mount."""
    known = snapshot.derived.get(MountedVolumes)
    assert known is None or isinstance(known, MountedVolumes)
    facts = snapshot.nodes.facts
    if known is None or not known.may_go_on(facts, storage):
        known = snapshot.derived[MountedVolumes] = MountedVolumes(facts, storage)
    known.update(snapshot.classes, storage)
    return known


class MountedVolumes:
    """See the module's docstring."""

    def __init__(self, facts: NodeFacts, storage: Storage) -> None:
        self._facts = facts
        #: how many volumes of each driver each node takes, infinite where nothing is set, shape (nodes,)
        self.limits: dict[str, Vector] = _limits(facts, storage)
        self._of = {kind: storage.plain(kind) for kind in (_CLASSES, _CSI_NODES)}
        self._seen: dict[str, Mapping[str, Any]] = {_CLAIMS: {}, _VOLUMES: {}}
        self._number: dict[AttachedVolume, int] = {}
        self._driver: list[int] = []
        self._drivers = list(self.limits)
        self._classes: list[PodClass] = []
        self._of_class: list[tuple[int, ...]] = []
        #: ids of classes by a claim that they mount, keys of claims by the volume that they name
        self._mounting: defaultdict[str, set[int]] = defaultdict(set)
        self._naming: defaultdict[str, set[str]] = defaultdict(set)

    def may_go_on(self, facts: NodeFacts, storage: Storage) -> bool:
        """Whether only nodes, claims and volumes differ, and little of what it holds is out of use."""
        if self._facts is not facts or self._of[_CSI_NODES] != storage.plain(_CSI_NODES):
            self._facts, self.limits = facts, _limits(facts, storage)
            self._of[_CSI_NODES] = storage.plain(_CSI_NODES)
        in_use = sum(map(bool, self._of_class))
        return (
            list(self.limits) == self._drivers
            and self._of[_CLASSES] == storage.plain(_CLASSES)
            and max(len(self._number), len(self._mounting)) <= 4 * (in_use + _SLACK)
        )

    def by_class(self) -> list[tuple[int, ...]]:
        """The volumes that pods of each class mount, by class id, for one session: later ones change entries."""
        return self._of_class.copy()

    def driver(self, volume: int) -> str:
        """The driver of a volume."""
        return self._drivers[self._driver[volume]]

    def drivers_of(self, volumes: Rows) -> Rows:
        """The drivers of volumes, as indices into `limits`."""
        out: Rows = np.array(self._driver, np.intp)[volumes] if len(volumes) else volumes
        return out

    def pairs(self, classes: npt.NDArray[np.int32], nodes: npt.NDArray[np.int32]) -> tuple[Rows, Rows]:
        """Volumes and nodes of pods, given their classes and nodes; a pod has as many as it mounts volumes."""
        sizes = np.fromiter(map(len, self._of_class), np.intp, len(self._of_class))
        volumes = np.fromiter(chain.from_iterable(self._of_class), np.intp, int(sizes.sum()))
        starts = np.cumsum(sizes) - sizes
        of_pod = sizes[classes]
        first = np.repeat(starts[classes] - (np.cumsum(of_pod) - of_pod), of_pod)
        return volumes[first + np.arange(len(first))], np.repeat(nodes, of_pod).astype(np.intp)

    def update(self, classes: Sequence[PodClass], storage: Storage) -> None:
        """Look up what is new or changed."""
        stale: set[int] = set()
        for key in self._changed(_CLAIMS, storage):
            stale |= self._mounting.get(key, set())
        for name in self._changed(_VOLUMES, storage):
            for key in self._naming.get(name, ()):
                stale |= self._mounting.get(key, set())
        del self._classes[len(classes) :], self._of_class[len(classes) :]
        stale.update(i for i, known in enumerate(self._classes) if known is not classes[i])
        stale.update(range(len(self._classes), len(classes)))
        self._classes += classes[len(self._classes) :]
        self._of_class += [_NOTHING] * (len(classes) - len(self._of_class))
        for i in stale:
            if i < len(classes):
                self._classes[i] = classes[i]
                self._of_class[i] = self._look_up(classes[i], storage) if classes[i].claims else _NOTHING

    def _changed(self, kind: str, storage: Storage) -> Sequence[str]:
        before, now = self._seen[kind], storage.plain(kind)
        self._seen[kind] = now
        # At first everything is looked up.
        return changed_keys(before, now) if self._classes else ()

    def _look_up(self, pod_class: PodClass, storage: Storage) -> tuple[int, ...]:
        found: dict[AttachedVolume, None] = {}
        for name in pod_class.claims:
            key = keys.key(pod_class.namespace, name)
            self._mounting[key].add(pod_class.id)
            claim = storage.claim(pod_class.namespace, name)
            if claim is not None:
                if claim.spec.volume_name:
                    self._naming[claim.spec.volume_name].add(key)
                volume = _volume(claim, storage)
                if volume is not None and volume[0] in self.limits:
                    found[volume] = None
        return tuple(map(self._numbered, found))

    def _numbered(self, volume: AttachedVolume) -> int:
        number = self._number.setdefault(volume, len(self._number))
        if number == len(self._driver):
            self._driver.append(self._drivers.index(volume[0]))
        return number


def _volume(claim: PersistentVolumeClaim, storage: Storage) -> AttachedVolume | None:
    """What a claim attaches; None when no driver is involved or known."""
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        csi = volume.spec.csi
        return (csi.driver, csi.volume_handle) if csi is not None and csi.volume_handle else None
    storage_class = storage.storage_class(claim.storage_class)
    return (storage_class.provisioner, f"claim {claim.key}") if storage_class is not None else None


def _limits(facts: NodeFacts, storage: Storage) -> dict[str, Vector]:
    out: dict[str, Vector] = {}
    for csi_node in storage.csi_nodes():
        row = facts.index.get(csi_node.metadata.name)
        for driver in csi_node.spec.drivers or () if row is not None else ():
            if driver.allocatable is not None and driver.allocatable.count is not None:
                limit = out.setdefault(driver.name, np.full(len(facts), np.inf))
                limit[row] = driver.allocatable.count
    return out
