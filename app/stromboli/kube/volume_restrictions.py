"""Volume restrictions: ReadWriteOncePod claims, and disks that cannot be mounted twice on one node unless read-only.

As in kube-scheduler, this applies to claims that pods name, not to those of ephemeral volumes, and to inline disks of
Google, Amazon, iSCSI and Ceph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from stromboli.api import keys
from stromboli.api.objects import Disks
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin.causes import Filters, Passing
from stromboli.framework.plugin.relations import Apart, same_node
from stromboli.kube.numbered import Numbered
from stromboli.kube.placed import PlacedPods, Scope
from stromboli.kube.pod_claims import claims_of
from stromboli.kube.storage import Storage
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

_EXCLUSIVE = "ReadWriteOncePod"
_CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

#: identity of a disk, and whether it is mounted read-only
Disk = tuple[tuple[str, ...], bool]


class VolumeRestrictions:
    """The filter in one session."""

    def __init__(self, storage: Storage, placed: PlacedPods, nodes: int) -> None:
        """There are so many nodes."""
        self._storage = storage
        self._placed = placed
        self._nodes = nodes

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes without conflicting use of the pod's claims and disks."""
        disks = exclusive_disks(pod.pod_class)
        if disks:
            yield Passing("node(s) had no available disk"), self._free(disks)
        claims = self._exclusive_claims(pod)
        if claims and self._in_use(claims):
            yield Passing(_CLAIM_IN_USE), np.zeros(self._nodes, np.bool_)

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Apart]:
        """The relations that claims and disks create between some pods; an exclusive claim has one pod anywhere."""
        claims = [self._exclusive_claims(pod) for pod in pods]
        if any(claims):
            conflicts = np.array([[bool(mine & others) for others in claims] for mine in claims], np.bool_)
            yield Apart("ReadWriteOncePod claims", conflicts, np.zeros(self._nodes, np.intp))
        disks = [exclusive_disks(pod.pod_class) or frozenset() for pod in pods]
        if any(disks):
            conflicts = np.array([[_clash(mine, others) for others in disks] for mine in disks], np.bool_)
            yield Apart("disks that are mounted once", conflicts, same_node(self._nodes))

    def scope(self, pod: PodRecord) -> Scope:
        """The pods that the filter's answer about a node depends on."""
        if self._exclusive_claims(pod):
            return Scope.Anywhere
        return Scope.OnNode if exclusive_disks(pod.pod_class) else Scope.Nowhere

    def _exclusive_claims(self, pod: PodRecord) -> frozenset[str]:
        """The keys of a pod's ReadWriteOncePod claims."""
        return frozenset(
            [
                claim.key
                for claim in claims_of(pod, self._storage)
                if _EXCLUSIVE in (claim.spec.access_modes or ())
                and claim.metadata.name not in pod.pod_class.ephemeral_claims
            ]
        )

    def _in_use(self, claims: frozenset[str]) -> bool:
        users = partial(self._placed.traits(named_claims).index(ClaimIndex).users, claims)
        return self._placed.with_traits(named_claims, claims, users) is not None

    def _free(self, disks: frozenset[Disk]) -> Mask:
        conflicting = partial(self._placed.traits(exclusive_disks).index(DiskIndex).conflicting, disks)
        counts = self._placed.with_traits(exclusive_disks, disks, conflicting)
        return np.ones(self._nodes, np.bool_) if counts is None else counts == 0


def named_claims(pod_class: PodClass) -> frozenset[str] | None:
    """The keys of the claims that pods of a class name; None without any."""
    named = frozenset(pod_class.claims).difference(pod_class.ephemeral_claims)
    return frozenset(keys.key(pod_class.namespace, name) for name in named) or None


def exclusive_disks(pod_class: PodClass) -> frozenset[Disk] | None:
    """The inline disks of a class that cannot be shared freely; None without any."""
    if not pod_class.disks:
        return None
    return frozenset(disk for volume in pod_class.disks for disk in _disks(volume)) or None


def _clash(mine: frozenset[Disk], others: frozenset[Disk]) -> bool:
    """Whether a node cannot mount some disks twice: all mounts of a disk that both name have to be read-only."""
    return any(disk == other and not (only and only_there) for disk, only in mine for other, only_there in others)


def _disks(volume: Disks) -> Iterator[Disk]:
    """The identities of a volume's disk; an image of Ceph has one per monitor."""
    if (gce := volume.gce_persistent_disk) is not None:
        yield ("gce", gce.pd_name), bool(gce.read_only)
    if (aws := volume.aws_elastic_block_store) is not None:
        yield ("aws", aws.volume_id), False
    if (iscsi := volume.iscsi) is not None:
        yield ("iscsi", iscsi.iqn), bool(iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in rbd.monitors or ():
            yield ("rbd", monitor, rbd.pool or "rbd", rbd.image), bool(rbd.read_only)


class ClaimIndex:
    """Sets of claims, indexed by claim."""

    def __init__(self) -> None:
        self._size = 0
        self._users: Numbered[str] = Numbered()

    def extend(self, values: Sequence[frozenset[str]]) -> None:
        first, self._size = self._size, self._size + len(values)
        for number, claims in enumerate(values, first):
            for claim in claims:
                self._users.add(claim, number)

    def users(self, claims: frozenset[str]) -> tuple[Rows, Vector]:
        """Weight 1 for each set that contains any of some claims."""
        found = np.unique(self._users.of(claims, self._size))
        return found, np.ones(len(found))


class DiskIndex:
    """Sets of disks, indexed by disk."""

    def __init__(self) -> None:
        self._size = 0
        self._all: Numbered[tuple[str, ...]] = Numbered()
        self._written: Numbered[tuple[str, ...]] = Numbered()

    def extend(self, values: Sequence[frozenset[Disk]]) -> None:
        first, self._size = self._size, self._size + len(values)
        for number, disks in enumerate(values, first):
            for disk, read_only in disks:
                self._all.add(disk, number)
                if not read_only:
                    self._written.add(disk, number)

    def conflicting(self, wanted: frozenset[Disk]) -> tuple[Rows, Vector]:
        """Weight 1 for each set that conflicts with some disks; a disk is shared only among read-only mounts."""
        read = (disk for disk, read_only in wanted if read_only)
        written = (disk for disk, read_only in wanted if not read_only)
        found = np.concatenate((self._written.of(read, self._size), self._all.of(written, self._size)))
        found = np.unique(found)
        return found, np.ones(len(found))
