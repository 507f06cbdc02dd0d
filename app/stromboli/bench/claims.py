"""Trials of pods with claims, for volumes or for devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from stromboli.bench.trial import HOSTNAME, Objects, Trial, container

_DRIVER, _CSI = "gpu.example.com", "csi.example.com"
#: new pods, and their claims
_PODS = 100
_SMALL = {"containers": [container({"cpu": "1m", "memory": "1Mi"})]}

Object = dict[str, Any]


def _claim(name: str, storage_class: str, volume: str = "") -> tuple[str, Object]:
    """A claim for 5Gi, bound when it names a volume."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "volumeName": volume,
        "resources": {"requests": {"storage": "5Gi"}},
    }
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return "PersistentVolumeClaim", {"metadata": metadata, "spec": spec}


def _volume(name: str, storage_class: str, *, node: str = "", of: str = "") -> tuple[str, Object]:
    """A volume: local when it names a node, else one of the CSI driver; `of` is the claim that has it."""
    spec: Object = {
        "storageClassName": storage_class,
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
    }
    if node:
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    else:
        spec["csi"] = {"driver": _CSI, "volumeHandle": name}
    if of:
        spec["claimRef"] = {"namespace": "default", "name": of}
    phase = "Bound" if of else "Available"
    return "PersistentVolume", {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def _storage_class(name: str, provisioner: str) -> tuple[str, Object]:
    """A class whose claims wait for their first pod."""
    more = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return "StorageClass", {"metadata": {"name": name}, **more}


def _names(nodes: int) -> list[str]:
    return [f"node-{number:05}" for number in range(nodes)]


def _with_volume(job: str, number: int) -> Mapping[str, Any]:
    return {**_SMALL, "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": f"{job}-{number}"}}]}


def _with_device(job: str, number: int) -> Mapping[str, Any]:
    return {**_SMALL, "resourceClaims": [{"name": "c", "resourceClaimName": f"{job}-{number}"}]}


# -- volumes ---------------------------------------------------------------------------------------------------------


def _local(nodes: int) -> Objects:
    yield _storage_class("local", "kubernetes.io/no-provisioner")
    yield from (_volume(f"v-{name}", "local", node=name) for name in _names(nodes))
    yield from (_claim(f"new-{number}", "local") for number in range(_PODS))


def _bound(nodes: int) -> Objects:
    yield _storage_class("made", _CSI)
    yield from (_volume(f"v{number}", "made", of=f"other{number}") for number in range(10_000))
    yield from (_claim(f"new-{number}", "made") for number in range(_PODS))


def _attached(placed: Callable[[int], int], nodes: int) -> Objects:
    yield _storage_class("made", _CSI)
    for name in _names(nodes):
        yield "CSINode", {"metadata": {"name": name}, "spec": {"drivers": [_csi()]}}
    jobs = [*(("run", number) for number in range(placed(nodes))), *(("new", number) for number in range(_PODS))]
    for job, number in jobs:
        yield _volume(f"v-{job}-{number}", "made", of=f"{job}-{number}")
        yield _claim(f"{job}-{number}", "made", f"v-{job}-{number}")


def _csi() -> Object:
    """A driver that attaches 40 volumes to a node."""
    return {"name": _CSI, "allocatable": {"count": 40}}


def _placed_with_volume(most: int, number: int) -> Mapping[str, Any]:
    return _with_volume("run", number) if number < most else {}


LOCAL = Trial(pod=partial(_with_volume, "new"), objects=_local)
BOUND = Trial(pod=partial(_with_volume, "new"), objects=_bound)
ATTACHED = Trial(
    pod=partial(_with_volume, "new"),
    placed=partial(_placed_with_volume, 10_000),
    objects=partial(_attached, lambda nodes: min(10_000, 2 * nodes)),
)
ATTACHED_NONE = Trial(pod=partial(_with_volume, "new"), objects=partial(_attached, lambda nodes: 0))
ATTACHED_ALL = Trial(
    pod=partial(_with_volume, "new"),
    placed=partial(_with_volume, "run"),
    objects=partial(_attached, lambda nodes: 20 * nodes),
    per_node=20,
)


# -- devices ---------------------------------------------------------------------------------------------------------


def _slice(name: str, count: int, model: str = "h100", **where: Any) -> tuple[str, Object]:
    """A slice of alike devices that each have a number of their own."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "model": {"string": model},
                "uuid": {"string": f"{name}-{number}"},
                "index": {"int": number},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "pool": pool, "devices": devices, **where}
    return "ResourceSlice", {"metadata": {"name": name}, "spec": spec}


def _device_claim(name: str, expression: str, node: str = "", device: int = 0) -> tuple[str, Object]:
    """A claim for one device that an expression selects; with a node it has one there."""
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    found = [{"request": "r", "driver": _DRIVER, "pool": node, "device": f"gpu-{device}"}]
    status = {"allocation": {"devices": {"results": found}}} if node else {}
    metadata = {"name": name, "namespace": "default", "uid": name}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return "ResourceClaim", {"metadata": metadata, "spec": spec, "status": status}


def _selected(slices: Iterator[tuple[str, Object]]) -> Objects:
    expression = f'device.driver == "{_DRIVER}"'
    yield "DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    yield from slices
    attributes = f'device.attributes["{_DRIVER}"]'
    for number in range(_PODS):
        selector = f'{attributes}.model == "h100" && {attributes}.index != {100 + number}'
        yield _device_claim(f"new-{number}", selector)


def _own_selectors(nodes: int) -> Objects:
    return _selected(_slice(name, 8, nodeName=name) for name in _names(nodes))


def _everywhere(nodes: int) -> Objects:
    return _selected(iter([_slice("all", 128, allNodes=True)]))


def _all_placed(nodes: int) -> Objects:
    names = _names(nodes)
    yield from _selected(_slice(name, 24, nodeName=name) for name in names)
    for number in range(20 * nodes):
        yield _device_claim(f"run-{number}", "true", names[number % nodes], number // nodes)


def _changed_slice(session: int) -> Objects:
    """The first node has devices of a new model, and in every other session one more."""
    (name,) = _names(1)
    yield _slice(name, 24 + session % 2, f"model-{session}", nodeName=name)


SELECTED = Trial(pod=partial(_with_device, "new"), objects=_own_selectors)
EVERYWHERE = Trial(pod=partial(_with_device, "new"), objects=_everywhere)
SELECTED_ALL = Trial(
    pod=partial(_with_device, "new"), placed=partial(_with_device, "run"), objects=_all_placed, per_node=20
)
SELECTED_CHANGED = replace(SELECTED_ALL, changed=_changed_slice)
