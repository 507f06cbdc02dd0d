"""Attach limits: a node takes only so many volumes of a CSI driver. A volume that several pods share counts once."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin import Filters, Passing
from stromboli.kube.mounted import MountedVolumes, mounted_volumes
from stromboli.kube.placed import PlacedPods
from stromboli.kube.storage import Storage
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot


class VolumeLimits:
    """The rule in one session."""

    def __init__(self, snapshot: Snapshot, storage: Storage, placed: PlacedPods) -> None:
        self._snapshot = snapshot
        self._storage = storage
        self._placed = placed
        self._opened: _Attached | None = None

    def filters(self, pod: PodRecord) -> Filters:
        """Nodes that still take the pod's volumes."""
        pod_class = pod.pod_class
        for name in pod_class.claims:
            if self._storage.claim(pod_class.namespace, name) is None:
                nowhere = np.zeros(len(self._snapshot.nodes.facts), np.bool_)
                yield f'persistentvolumeclaim "{name}" not found', nowhere
                return
        if self.concerns(pod):
            yield Passing("node(s) exceed max volume count"), self._attached().room_for(pod)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether a limit applies to the pod's volumes."""
        return bool(pod.pod_class.claims) and bool(self._attached().of(pod))

    def _attached(self) -> _Attached:
        if self._opened is None:
            mounted = mounted_volumes(self._snapshot, self._storage)
            self._opened = _Attached(mounted, self._placed, len(self._snapshot.nodes.facts))
        return self._opened


class _Attached:
    """Which volumes are attached to which nodes in a session, by numbers of volumes."""

    def __init__(self, mounted: MountedVolumes, placed: PlacedPods, nodes: int) -> None:
        self._mounted = mounted
        self._of_class = mounted.by_class()
        self._limits = mounted.limits
        self._placed = placed
        self._nodes = nodes
        classes, rows, self._seen = placed.counted()
        #: pairs of volume and node of the pods that were placed, one for each pod
        self._volume, self._node = mounted.pairs(classes, rows)
        #: how many volumes of each driver are attached to each node, shape (nodes,)
        self._used: dict[str, Vector] = self._count_all()
        #: how many pods on each node mount a volume, of those that the session asked about
        self._users: dict[int, Counter[int]] = {}

    def of(self, pod: PodRecord) -> tuple[int, ...]:
        """The limited volumes that a pod mounts."""
        return self._of_class[pod.pod_class.id]

    def room_for(self, pod: PodRecord) -> Mask:
        """The nodes whose limits leave room for a pod's volumes, shape (nodes,)."""
        self._catch_up()
        out = np.ones(self._nodes, np.bool_)
        volumes = self.of(pod)
        for driver in {self._mounted.driver(volume) for volume in volumes}:
            wanted = [volume for volume in volumes if self._mounted.driver(volume) == driver]
            new = np.full(self._nodes, len(wanted), np.float64)
            for volume in wanted:
                new[[node for node, users in self._users_of(volume).items() if users > 0]] -= 1
            out &= (new == 0) | (self._used[driver] + new <= self._limits[driver])
        return out

    def _count_all(self) -> dict[str, Vector]:
        volume, node = _distinct(self._volume, self._node, self._nodes)
        driver = self._mounted.drivers_of(volume)
        return {
            name: np.bincount(node[driver == number], minlength=self._nodes).astype(np.float64)
            for number, name in enumerate(self._limits)
        }

    def _catch_up(self) -> None:
        """Count what the session placed since the last call."""
        moves = self._placed.moves(self._seen)
        self._seen += len(moves)
        for operation, sign in moves:
            for pod, node in zip(operation.pods, operation.nodes, strict=True):
                for volume in self.of(pod):
                    users = self._users_of(volume)
                    before = users[node] > 0
                    users[node] += sign
                    self._used[self._mounted.driver(volume)][node] += int(users[node] > 0) - int(before)

    def _users_of(self, volume: int) -> Counter[int]:
        if volume not in self._users:
            self._users[volume] = Counter(self._node[self._volume == volume].tolist())
        return self._users[volume]


def _distinct(volume: Rows, node: Rows, nodes: int) -> tuple[Rows, Rows]:
    """Pairs, each once."""
    shared = (np.bincount(volume) > 1)[volume] if len(volume) else np.zeros(0, np.bool_)
    pairs = np.unique(volume[shared] * nodes + node[shared])
    return np.concatenate([volume[~shared], pairs // nodes]), np.concatenate([node[~shared], pairs % nodes])
