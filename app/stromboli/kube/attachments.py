"""Volcano's dimension for attached volumes: each claim counts against its driver like a resource.

A node has `attachable-volumes-csi-DRIVER` when its CSINode lists the driver, a pod requests one thousandth of it for
each claim. So the number is never what stops a pod; a node without the driver is, even for volumes that no CSI driver
attaches. kube-scheduler's limits, which are exact, are a predicate (`kube.volume_limits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES
from stromboli.api.resources import Matrix
from stromboli.kube.storage import PersistentVolumeClaim, Storage, storage_of
from stromboli.state.classes import PodClass
from stromboli.state.snapshot import Snapshot

#: provisioners whose volumes are not counted
_IGNORED = frozenset(("rancher.io/local-path", "hostpath.csi.k8s.io"))
_DRIVER_PARAMETER = "csi.storage.k8s.io/csi-driver-name"
#: a CSINode that lists a driver without a count has room for so many
_NO_LIMIT = 2**31 - 1


def with_attachments(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a dimension for each driver, when any pod mounts a claim; else the snapshot itself."""
    claiming = [pod_class for pod_class in snapshot.classes if pod_class.claims]
    if not claiming:
        return snapshot
    drivers: dict[str, int] = {}
    storage = storage_of(snapshot)
    wanted = [(pod_class.id, driver) for pod_class in claiming for driver in _drivers(pod_class, storage)]
    for _, driver in wanted:
        drivers.setdefault(driver, len(snapshot.dimensions) + len(drivers))
    requests = _wider(snapshot.requests.T, len(drivers)).T
    for class_id, driver in wanted:
        requests[class_id, drivers[driver]] += 1
    return replace(
        snapshot,
        dimensions=(*snapshot.dimensions, *(f"attachable-volumes-csi-{d.replace('/', '-')}" for d in drivers)),
        requests=requests,
        nodes=replace(
            snapshot.nodes,
            allocatable=_allocatable(snapshot, storage, drivers),
            used=_used(snapshot, requests, len(drivers)),
            releasing=_wider(snapshot.nodes.releasing, len(drivers)),
        ),
    )


def _drivers(pod_class: PodClass, storage: Storage) -> list[str]:
    """The driver of each claim of a class, as far as there is one."""
    claims = (storage.claim(pod_class.namespace, name) for name in pod_class.claims)
    return [driver for claim in claims if claim is not None and (driver := _driver(claim, storage))]


def _driver(claim: PersistentVolumeClaim, storage: Storage) -> str:
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return volume.spec.csi.driver if volume.spec.csi else ""
    storage_class = storage.storage_class(claim.storage_class)
    if storage_class is None or storage_class.provisioner in _IGNORED:
        return ""
    return (storage_class.parameters or {}).get(_DRIVER_PARAMETER) or storage_class.provisioner


def _allocatable(snapshot: Snapshot, storage: Storage, drivers: Mapping[str, int]) -> Matrix:
    out = _wider(snapshot.nodes.allocatable, len(drivers))
    for csi_node in storage.csi_nodes():
        node = snapshot.nodes.facts.index.get(csi_node.metadata.name)
        for driver in csi_node.spec.drivers or ():
            if node is not None and driver.name in drivers:
                count = driver.allocatable.count if driver.allocatable else None
                out[drivers[driver.name], node] = 1000 * (_NO_LIMIT if count is None else count)
    return out


def _used(snapshot: Snapshot, requests: Matrix, more: int) -> Matrix:
    out = _wider(snapshot.nodes.used, more)
    pods = snapshot.pods
    rows = np.flatnonzero((pods.node >= 0) & (pods.job > -2) & np.isin(pods.state, ON_NODE_STATES))
    for column in range(len(out) - more, len(out)):
        out[column] = np.bincount(
            pods.node[rows], weights=requests[pods.pod_class[rows], column], minlength=out.shape[1]
        )
    return out


def _wider(matrix: Matrix, more: int) -> Matrix:
    """A copy with `more` rows of zeros."""
    return np.concatenate([matrix, np.zeros((more, matrix.shape[1]))])
