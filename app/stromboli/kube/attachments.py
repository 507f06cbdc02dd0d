"""Volcano's resource dimension for attached volumes: each claim counts as a resource of its driver.

A node has `attachable-volumes-csi-DRIVER` if its CSINode lists the driver, and a pod requests one thousandth of it per
claim. So the amount never limits a pod, but a node without the driver does, even for volumes that no CSI driver
attaches. kube-scheduler's exact limits are a predicate of their own (`kube.volume_limits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES
from stromboli.api.resources import Matrix
from stromboli.kube.csi_migration import Volume
from stromboli.kube.csi_nodes import csi_nodes
from stromboli.kube.mounted import Named, mounted_volumes
from stromboli.kube.storage import NO_PROVISIONER, PersistentVolumeClaim, Storage, storage_of
from stromboli.state.snapshot import Snapshot

#: provisioners whose volumes are not counted
_IGNORED = frozenset(("rancher.io/local-path", "hostpath.csi.k8s.io"))
DRIVER_PARAMETER = "csi.storage.k8s.io/csi-driver-name"
#: limit of a driver whose CSINode gives none
_NO_LIMIT = 2**31 - 1


def with_attachments(snapshot: Snapshot, *, local: bool) -> Snapshot:
    """The snapshot with a dimension for each driver if any pod mounts a claim; otherwise the snapshot itself.

    `local` says whether unbound claims of a class without provisioner count too.
    """
    mounted = mounted_volumes(snapshot, storage_of(snapshot), _counted_with_local if local else _counted)
    pods = snapshot.pods
    rows = np.flatnonzero(pods.job > -2)
    of_class = np.full(len(snapshot.classes), -1)
    of_class[pods.pod_class[rows]] = rows
    classes = np.flatnonzero(of_class >= 0)
    _, drivers, users = mounted.of_all(of_class[classes])
    numbers, first = np.unique(drivers, return_index=True)
    if not len(numbers):
        return snapshot
    counted = numbers[np.argsort(first)].tolist()
    requests = _wider(snapshot.requests.T, len(counted)).T
    for column, driver in enumerate(counted, len(snapshot.dimensions)):
        requests[:, column] = np.bincount(classes[users[drivers == driver]], minlength=len(requests))
    names = [mounted.drivers[driver] for driver in counted]
    return replace(
        snapshot,
        dimensions=(*snapshot.dimensions, *(f"attachable-volumes-csi-{name.replace('/', '-')}" for name in names)),
        requests=requests,
        nodes=replace(
            snapshot.nodes,
            allocatable=_allocatable(snapshot, names),
            used=_used(snapshot, requests, len(names)),
            releasing=_wider(snapshot.nodes.releasing, len(names)),
        ),
    )


def _counted(named: Named, claims: Sequence[PersistentVolumeClaim], storage: Storage) -> Iterator[Volume]:
    """The drivers of claims, one entry per claim."""
    for driver, number in _counted_with_local(named, claims, storage):
        if driver != NO_PROVISIONER:
            yield driver, number


def _counted_with_local(_: Named, claims: Sequence[PersistentVolumeClaim], storage: Storage) -> Iterator[Volume]:
    """The drivers of claims, including claims that no driver attaches."""
    for number, claim in enumerate(claims):
        driver = _driver(claim, storage)
        if driver:
            yield driver, str(number)


def _driver(claim: PersistentVolumeClaim, storage: Storage) -> str:
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return volume.spec.csi.driver if volume.spec.csi else ""
    storage_class = storage.storage_class(claim.storage_class)
    if storage_class is None or storage_class.provisioner in _IGNORED:
        return ""
    return (storage_class.parameters or {}).get(DRIVER_PARAMETER) or storage_class.provisioner


def _allocatable(snapshot: Snapshot, drivers: Sequence[str]) -> Matrix:
    out = _wider(snapshot.nodes.allocatable, len(drivers))
    limits = csi_nodes(snapshot).limits(snapshot.nodes.facts)
    for column, name in enumerate(drivers, len(snapshot.dimensions)):
        if name in limits:
            out[column] = 1000 * np.nan_to_num(limits[name], nan=0.0, posinf=_NO_LIMIT)
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
