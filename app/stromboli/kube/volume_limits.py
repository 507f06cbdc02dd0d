"""Volume limits: a node attaches a limited number of volumes of a CSI driver; a shared volume counts once.

VolumeAttachments count as well, and in-tree volumes count for the drivers that their plugins migrated to. As in
kube-scheduler, a volume that is attached to a node but mounted by no pod there counts once more for a new pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin.causes import Administrative, Filters, Passing
from stromboli.framework.plugin.relations import Limited, Narrowing, Relation
from stromboli.kube.attached import volume_attachments
from stromboli.kube.csi_migration import Volume, driver_of, migrated, unmigrated
from stromboli.kube.csi_nodes import csi_nodes
from stromboli.kube.mounted import MountedVolumes, Named, mounted_volumes
from stromboli.kube.placed import PlacedPods
from stromboli.kube.pod_claims import missing_claim
from stromboli.kube.storage import PersistentVolumeClaim, Storage
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

_NO_HANDLE = "node(s) whose CSI driver cannot handle an inline volume of the pod"
_UNCOUNTED = "node(s) whose volumes cannot be counted for an inline volume that no CSI driver handles"
_UNOWNED = "node(s) whose volumes cannot be counted for an ephemeral volume whose claim is not its pod's"
#: stands for the volumes of pods whose ephemeral volumes have the claims of others; kube-scheduler then fails to count
_OF_OTHERS: Volume = ("", "of others")


class VolumeLimits:
    """The filter in one session."""

    def __init__(self, snapshot: Snapshot, storage: Storage, placed: PlacedPods) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._placed = placed
        self._opened: _Attached | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes whose limits admit the pod's volumes."""
        missing = missing_claim(pod, self._storage)
        if missing is not None:
            yield missing, np.zeros(len(self._snapshot.nodes.facts), np.bool_)
            return
        if unmigrated_disks(pod.pod_class):
            yield _NO_HANDLE, ~csi_nodes(self._snapshot).present(self._snapshot.nodes.facts)
        for driver, installed in self._attached().required(pod):
            yield Administrative(f"node(s) did not have the CSI driver {driver}"), installed
        if self.concerns(pod):
            yield Passing("node(s) exceed max volume count"), self._attached().below_limits(pod)
            yield from self._attached().countable()

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Relation]:
        """The relations that the limits create between some pods; volumes that pods share or nodes hold are ignored."""
        if any(self.concerns(pod) for pod in pods):
            yield from self._attached().relations(pods)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a limit applies to the pod's volumes."""
        pod_class = pod.pod_class
        return bool(pod_class.claims or pod_class.disks) and self._attached().concerns(pod)

    def _attached(self) -> _Attached:
        if self._opened is None:
            self._opened = _Attached(self._snapshot, self._storage, self._placed)
        return self._opened


class _Attached:
    """The volumes attached to nodes in a session, by numbers of volumes and drivers."""

    def __init__(self, snapshot: Snapshot, storage: Storage, placed: PlacedPods) -> None:
        self._mounted: MountedVolumes = mounted_volumes(snapshot, storage, attached_volumes)
        self._nodes = len(snapshot.nodes.facts)
        self._placed = placed
        listed = csi_nodes(snapshot).limits(snapshot.nodes.facts)
        nowhere = np.zeros(self._nodes, np.bool_)
        #: number of volumes of each driver that each node takes, shape (nodes,), for drivers with a limit anywhere
        self._limits: dict[int, Vector] = {
            self._mounted.driver(name): np.where(np.isnan(most), np.inf, most)
            for name, most in listed.items()
            if np.isfinite(most).any()
        }
        #: the nodes without any limit, shape (nodes,)
        self._unlimited: Mask = np.logical_and.reduce([~nowhere, *(~np.isfinite(most) for most in listed.values())])
        self._of_others = self._mounted.driver(_OF_OTHERS[0])
        if self._limits and self._of_others >= 0:
            self._limits[self._of_others] = np.full(self._nodes, np.inf)
        #: by number, the drivers that a node must have for their volumes, and the nodes that have them, shape (nodes,)
        self._required: dict[int, tuple[str, Mask]] = {
            self._mounted.driver(name): (name, ~np.isnan(listed[name]) if name in listed else nowhere)
            for name in _required_drivers(storage)
        }
        rows, nodes, self._seen = placed.counted()
        volumes, drivers, pods = self._mounted.of_all(rows)
        #: pairs of volume and node, of placed pods, one per pod, and of VolumeAttachments
        self._volume, self._node = volumes, nodes[pods].astype(np.intp)
        attachments = volume_attachments(snapshot, storage, self._mounted.numbering)
        self._held_volume, self._held_node, held_drivers = attachments.pairs(snapshot.nodes.facts)
        #: number of volumes of each driver attached to each node, shape (nodes,)
        self._used: dict[int, Vector] = self._count_all(drivers, held_drivers)
        #: number of pods on each node that mount a volume, and the nodes that it is attached to, for volumes that were
        #: asked about
        self._users: dict[int, Counter[int]] = {}
        self._held: dict[int, frozenset[int]] = {}

    def of(self, pod: PodRecord) -> list[tuple[int, int]]:
        """The limited volumes that a pod mounts, with their drivers."""
        if not self._limits:
            return []
        volumes, drivers = self._mounted.of(pod.row)
        pairs = zip(volumes.tolist(), drivers.tolist(), strict=True)
        return [(volume, driver) for volume, driver in pairs if driver in self._limits]

    def required(self, pod: PodRecord) -> Iterator[tuple[str, Mask]]:
        """The drivers that nodes must have for a pod's volumes, each with the nodes that have it, shape (nodes,)."""
        if self._required:
            for number in sorted(self._required.keys() & self._mounted.of(pod.row)[1].tolist()):
                yield self._required[number]

    def below_limits(self, pod: PodRecord) -> Mask:
        """The nodes whose limits admit a pod's volumes, shape (nodes,)."""
        self._catch_up()
        out = np.ones(self._nodes, np.bool_)
        volumes = self.of(pod)
        for driver in {driver for _, driver in volumes}:
            wanted = [volume for volume, of in volumes if of == driver]
            new = np.full(self._nodes, len(wanted), np.float64)
            for volume in wanted:
                new[[node for node, users in self._users_of(volume).items() if users > 0]] -= 1
            out &= (new == 0) | (self._used[driver] + new <= self._limits[driver])
        return out

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a pod's volumes are limited, or other pods may keep the volumes of their nodes from being counted."""
        if not self._limits or not len(self._mounted.of(pod.row)[0]):
            return False
        return self._unmigrated() is not None or self._of_others in self._used or bool(self.of(pod))

    def countable(self) -> Filters:
        """The nodes without limits, or whose pods do not keep their volumes from being counted."""
        unknown = self._unmigrated()
        if unknown is not None:
            weights = np.array([unknown]), np.ones(1)
            users = self._placed.with_traits(unmigrated_disks, True, lambda: weights)
            if users is not None:
                yield Passing(_UNCOUNTED), (users == 0) | self._unlimited
        if self._of_others in self._used:
            self._catch_up()
            yield Passing(_UNOWNED), (self._used[self._of_others] == 0) | self._unlimited

    def _unmigrated(self) -> int | None:
        return self._placed.traits(unmigrated_disks).by_value.get(True)

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Relation]:
        """The numbers of each driver that some pods take, of volumes that no other pod has."""
        self._catch_up()
        mounted = [self.of(pod) for pod in pods]
        times = Counter(volume for volumes in mounted for volume, _ in set(volumes))
        own = {v for v, n in times.items() if n == 1 and not any(self._users_of(v).values()) and not self._held_of(v)}
        for driver, most in self._limits.items():
            takes = np.array([sum(v in own and d == driver for v, d in volumes) for volumes in mounted], np.float64)
            if takes.any():
                yield Limited("limits of attached volumes", takes, most - self._used[driver], most)
        shared = np.array([any(v not in own for v, _ in volumes) for volumes in mounted], np.bool_)
        if shared.any():
            yield Narrowing("volumes that pods share", shared, (frozenset(),) * len(pods))

    def _count_all(self, drivers: Rows, held_drivers: Rows) -> dict[int, Vector]:
        # Most attached volumes are mounted by a single pod.
        node_of = np.full(max(self._volume.max(initial=0), self._held_volume.max(initial=0)) + 1, -1)
        node_of[self._volume] = self._node
        more = np.flatnonzero(node_of[self._held_volume] != self._held_node)
        volume = np.concatenate([self._volume, self._held_volume[more]])
        node = np.concatenate([self._node, self._held_node[more]])
        once = _distinct(volume, node, self._nodes)
        node, driver = node[once], np.concatenate([drivers, held_drivers[more]])[once]
        return {
            number: np.bincount(node[driver == number], minlength=self._nodes).astype(np.float64)
            for number in self._limits
        }

    def _catch_up(self) -> None:
        """Count the session's placements since the last call."""
        moves = self._placed.moves(self._seen)
        self._seen += len(moves)
        for operation, sign in moves:
            for pod, node in zip(operation.pods, operation.nodes, strict=True):
                for volume, driver in self.of(pod):
                    users, held = self._users_of(volume), node in self._held_of(volume)
                    before = held or users[node] > 0
                    users[node] += sign
                    self._used[driver][node] += int(held or users[node] > 0) - int(before)

    def _users_of(self, volume: int) -> Counter[int]:
        if volume not in self._users:
            self._users[volume] = Counter(self._node[self._volume == volume].tolist())
        return self._users[volume]

    def _held_of(self, volume: int) -> frozenset[int]:
        if volume not in self._held:
            self._held[volume] = frozenset(self._held_node[self._held_volume == volume].tolist())
        return self._held[volume]


def unmigrated_disks(pod_class: PodClass) -> bool | None:
    """Whether pods of a class have disks that the driver of their plugin cannot handle; None if not."""
    return any(map(unmigrated, pod_class.disks)) or None


def _distinct(volume: Rows, node: Rows, nodes: int) -> Rows:
    """The first occurrence of pairs of a volume and a node."""
    shared = np.flatnonzero((np.bincount(volume) > 1)[volume]) if len(volume) else np.zeros(0, np.intp)
    first = np.unique(volume[shared] * nodes + node[shared], return_index=True)[1]
    once = np.ones(len(volume), np.bool_)
    once[shared] = False
    once[shared[first]] = True
    return np.flatnonzero(once)


def _required_drivers(storage: Storage) -> list[str]:
    """The drivers that ask for pods with their volumes to be placed on nodes that have the driver."""
    named = ((name, storage.driver(name)) for name in storage.plain("CSIDriver"))
    return [name for name, driver in named if driver is not None and driver.spec.prevent_pod_scheduling_if_missing]


def attached_volumes(named: Named, claims: Sequence[PersistentVolumeClaim], storage: Storage) -> Iterator[Volume]:
    """The volumes that disks and claims attach to a node, each once, and what stands for those of others."""
    found = (_attached_volume(claim, storage) for claim in claims)
    yield from dict.fromkeys((*named.disks, *(volume for volume in found if volume is not None)))
    if not all(_is_owned(each, named.owner) for each in claims if each.metadata.name in named.ephemeral):
        yield _OF_OTHERS


def _is_owned(claim: PersistentVolumeClaim, pod: str) -> bool:
    return any(owner.controller and owner.name == pod for owner in claim.metadata.owner_references or ())


def _attached_volume(claim: PersistentVolumeClaim, storage: Storage) -> Volume | None:
    """The driver and volume of a claim; None without a known driver. An unprovisioned claim counts as a volume of
    its own."""
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        csi = volume.spec.csi
        if csi is None:
            return migrated(volume.spec, volume.metadata.labels)
        return (csi.driver, csi.volume_handle) if csi.volume_handle else None
    storage_class = storage.storage_class(claim.storage_class)
    return (driver_of(storage_class.provisioner), f"claim {claim.key}") if storage_class is not None else None
