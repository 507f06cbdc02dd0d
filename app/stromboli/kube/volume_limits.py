"""Attach limits: a node takes only so many volumes of a CSI driver. A volume that several pods share counts once."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.framework.plugin import Filters, Passing
from stromboli.kube.placed import PlacedPods
from stromboli.kube.storage import PersistentVolumeClaim, Storage
from stromboli.state.classes import PodClass
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import PodRecord

#: driver and handle; a claim without volume stands for itself
AttachedVolume = tuple[str, str]
#: namespace and the names of the claims
Claims = tuple[str, tuple[str, ...]]


def mounted_claims(pod_class: PodClass) -> Claims | None:
    """The claims that pods of a class mount; None without any."""
    return (pod_class.namespace, pod_class.claims) if pod_class.claims else None


class VolumeLimits:
    """The rule in one session."""

    def __init__(self, facts: NodeFacts, storage: Storage, placed: PlacedPods) -> None:
        self._facts = facts
        self._storage = storage
        self._placed = placed
        self._limits: dict[str, Vector] | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes that still take the pod's volumes."""
        claims = mounted_claims(pod.pod_class)
        if claims is None:
            return
        for name in claims[1]:
            if self._storage.claim(claims[0], name) is None:
                yield f'persistentvolumeclaim "{name}" not found', np.zeros(len(self._facts), np.bool_)
                return
        wanted = self._limited(claims)
        if wanted:
            yield Passing("node(s) exceed max volume count"), self._within_limits(wanted)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a limit applies to the pod's volumes."""
        claims = mounted_claims(pod.pod_class)
        return claims is not None and bool(self._limited(claims))

    def _within_limits(self, wanted: set[AttachedVolume]) -> Mask:
        limits = self._limits_by_driver()
        attached: dict[AttachedVolume, Mask] = {}
        placed = self._placed.by_trait(mounted_claims)
        drivers = {driver for driver, _ in wanted}
        for claims, index in self._placed.traits(mounted_claims).values.items():
            for volume in self._volumes(claims) if index in placed else ():
                if volume[0] in drivers:
                    attached[volume] = attached.get(volume, False) | (placed[index] > 0)
        out = np.ones(len(self._facts), np.bool_)
        for driver, count in Counter(driver for driver, _ in wanted).items():
            used = sum((mask.astype(np.float64) for (of, _), mask in attached.items() if of == driver), _ZERO)
            shared = sum((attached[v].astype(np.float64) for v in wanted if v[0] == driver and v in attached), _ZERO)
            out &= (shared == count) | (used + count - shared <= limits[driver])
        return out

    def _limited(self, claims: Claims) -> set[AttachedVolume]:
        """The volumes of some claims whose driver has a limit on any node."""
        limits = self._limits_by_driver()
        return {volume for volume in self._volumes(claims) if volume[0] in limits} if limits else set()

    def _volumes(self, claims: Claims) -> set[AttachedVolume]:
        namespace, names = claims
        found = (self._storage.claim(namespace, name) for name in names)
        return {volume for claim in found if claim is not None and (volume := self._volume(claim)) is not None}

    def _volume(self, claim: PersistentVolumeClaim) -> AttachedVolume | None:
        """What a claim attaches; None when no driver is involved or known."""
        volume = self._storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi is not None and csi.volume_handle else None
        storage_class = self._storage.storage_class(claim.storage_class)
        return (storage_class.provisioner, f"claim {claim.key}") if storage_class is not None else None

    def _limits_by_driver(self) -> dict[str, Vector]:
        """The number of volumes of each driver that each node takes, infinite where none is set."""
        if self._limits is None:
            self._limits = {}
            for csi_node in self._storage.csi_nodes():
                row = self._facts.index.get(csi_node.metadata.name)
                for driver in csi_node.spec.drivers or () if row is not None else ():
                    if driver.allocatable is not None and driver.allocatable.count is not None:
                        limit = self._limits.setdefault(driver.name, np.full(len(self._facts), np.inf))
                        limit[row] = driver.allocatable.count
        return self._limits


_ZERO = np.float64(0)
