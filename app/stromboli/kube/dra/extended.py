"""Extended resources backed by a DeviceClass: a pod requests amounts, and gets devices through a claim of its own.

On a node with a device plugin for such a resource, that plugin provides it. On other nodes the pod needs devices of the
class, through a special claim that is created when the pod is placed: one request per container and resource, owned by
the pod, as kube-scheduler creates it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.api import keys, objects, quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.pod_state import ON_NODE_STATES, PodState
from stromboli.api.resources import UNKNOWN, Mask, Matrix, Vector, amounts
from stromboli.kube.dra.holdings import holdings_of
from stromboli.kube.dra.inventory import Devices, devices_of, inventory
from stromboli.kube.dra.objects import SPECIAL, ClaimError, DeviceClass, DeviceObjects, ResourceClaim
from stromboli.kube.dra.requests import class_choice
from stromboli.kube.dra.selection import NO
from stromboli.kube.dra.stock import Balance
from stromboli.state.nodes import NodeFacts, NodeRecord
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot

Plain: TypeAlias = dict[str, Any]
#: device class by extended resource
Backing: TypeAlias = Mapping[str, str]

#: prefix of the implicit resource name of a class
PREFIX = "deviceclass.resource.kubernetes.io/"
#: alphabet of generated suffixes: no vowels, and no characters that are easily confused
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX, _LONGEST = 5, 63
#: number of shares of a device with multiple allocations and without capacity
_MANY = 2**20
#: unit of amounts
_MILLI = np.float64(1000)


class _Backing(NamedTuple):
    plain: PlainObjects
    classes: Backing


def backing(snapshot: Snapshot) -> Backing:
    """The class behind each extended resource; the newest of several."""
    plain = snapshot.objects.get("DeviceClass", NO_OBJECTS)
    known = cast("_Backing | None", snapshot.derived.get(_Backing))
    if known is None or known.plain is not plain:
        known = snapshot.derived[_Backing] = _Backing(plain, _classes(plain))
    return known.classes


def _classes(plain: PlainObjects) -> Backing:
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(plain, reverse=True):
        try:
            device_class = plain.read(name, DeviceClass)
        except msgspec.ValidationError:
            continue
        created = device_class.metadata.creation_timestamp or ""
        for resource in (PREFIX + name, device_class.spec.extended_resource_name):
            if resource and found.get(resource, ("", ""))[0] <= created:
                found[resource] = created, name
    return {resource: name for resource, (_, name) in found.items()}


def has_plugin(facts: NodeFacts, resource: str) -> Mask:
    """The nodes with a device plugin for a resource, shape (nodes,)."""

    def of_node(record: NodeRecord) -> bool | None:
        return any(amounts({resource: record.allocatable.get(resource, 0)}).values()) or None

    found: Mask = facts.column(("plugin", resource), of_node).numbers >= 0
    return found


# -- the special claim -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpecialClaim:
    """The claim for the extended resources of a pod on some nodes."""

    claim: ResourceClaim
    #: the manifest to create
    manifest: Plain
    #: the request of each container's devices, for `status.extendedResourceClaimStatus` of the pod
    mappings: Sequence[Plain]


def special_claim(pod: PodRecord, resources: Sequence[str], classes: Backing, taken: Container[str]) -> SpecialClaim:
    """The claim of a pod for some resources; its key is none of the `taken` ones."""
    requests, mappings = _requests(pod.pod_class.spec, resources, classes)
    base = _base(pod)
    names = (base[: _LONGEST - _SUFFIX] + _letters(f"{pod.uid}/{number}") for number in count())
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    manifest = {
        "metadata": {
            "name": next(name for name in names if keys.key(pod.namespace, name) not in taken),
            "generateName": base,
            "namespace": pod.namespace,
            "annotations": {SPECIAL: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": requests}},
    }
    return SpecialClaim(msgspec.convert(manifest, ResourceClaim), manifest, mappings)


def special_prefix(pod: PodRecord) -> str:
    """The key prefix of all special claims of a pod."""
    return keys.key(pod.namespace, _base(pod)[: _LONGEST - _SUFFIX])


def _base(pod: PodRecord) -> str:
    return f"{pod.name}-extended-resources-"


def _letters(seed: str) -> str:
    digest = blake2b(seed.encode(), digest_size=_SUFFIX).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)


@dataclass(frozen=True, slots=True)
class _Need:
    """Devices that a container requests."""

    index: int
    container: str
    request: str
    devices: int


def _requests(spec: objects.PodSpec, resources: Sequence[str], classes: Backing) -> tuple[list[Plain], list[Plain]]:
    """The requests of a special claim, by name, and the request that each container uses."""
    requests, mappings = list[Plain](), list[Plain]()
    for resource in resources:
        lasting, passing = _needs(spec, resource)
        extra, uses = _shared(lasting, passing)
        for need in (*extra, *lasting):
            exactly = {"deviceClassName": classes[resource], "allocationMode": "ExactCount", "count": need.devices}
            requests.append({"name": need.request, "exactly": exactly})
        for container, request in (*((need.container, need.request) for need in lasting), *uses):
            mappings.append({"containerName": container, "resourceName": resource, "requestName": request})
    return sorted(requests, key=lambda request: str(request["name"])), mappings


def _needs(spec: objects.PodSpec, resource: str) -> tuple[list[_Need], list[_Need]]:
    """The requests of containers and sidecars, and those of init containers that terminate before others start."""
    first = spec.init_containers or ()
    lasting, passing = list[_Need](), list[_Need]()
    for index, container in enumerate((*first, *(spec.containers or ()))):
        listed = (container.resources.requests if container.resources else None) or {}
        devices = _count(listed.get(resource, 0))
        if devices:
            need = _Need(index, container.name, f"container-{index}-request-{sorted(listed).index(resource)}", devices)
            ends = index < len(first) and container.restart_policy != "Always"
            (passing if ends else lasting).append(need)
    return lasting, passing


def _count(written: str | int | float) -> int:
    """A number of devices; 0 if it is invalid."""
    try:
        value = quantity.parse(written)
    except InvalidQuantityError:
        return 0
    return int(value) if value.denominator == 1 else 0


def _shared(lasting: Sequence[_Need], passing: Sequence[_Need]) -> tuple[list[_Need], list[tuple[str, str]]]:
    """The devices that init containers need beyond those of later containers, and whose devices each of them uses.

    They run one after the other, so the largest need suffices for all.
    """
    extra, uses = list[_Need](), list[tuple[str, str]]()
    for need in passing:
        missing = need.devices
        for later in (later for later in lasting if later.index >= need.index):
            if missing > 0:
                uses.append((need.container, later.request))
                missing -= later.devices
        if missing > 0:
            uses.append((need.container, need.request))
            extra.append(replace(need, devices=missing))
    if not extra:
        return [], uses
    largest, own = max(extra, key=lambda need: need.devices), {need.request for need in extra}
    return [largest], [(name, largest.request if request in own else request) for name, request in uses]


# -- amounts ---------------------------------------------------------------------------------------------------------


def with_device_resources(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which nodes have as much of an extended resource as devices of its class.

    Pods that request it are counted as for any other resource; their special claims decide which devices they get.
    """
    classes = backing(snapshot)
    resources = _resources(snapshot, classes) if classes else ()
    if not resources:
        return snapshot
    facts, objects_of, devices = snapshot.nodes.facts, DeviceObjects(snapshot.objects), devices_of(snapshot)
    known, holdings = inventory(devices, facts, snapshot), holdings_of(snapshot, objects_of)
    in_use, balance = holdings.held(devices), holdings.balance(devices)
    #: total and free amounts of nodes without a device plugin, shape (nodes,)
    offered: dict[str, tuple[Vector, Vector]] = {}
    for resource in resources:
        try:
            suitable = class_choice(classes[resource], objects_of).codes(devices) != NO
        except ClaimError:
            continue
        there = ~has_plugin(facts, resource)
        copies = _copies(devices, Balance(devices.stock), suitable), _copies(devices, balance, suitable & ~in_use)
        whole, free = (_MILLI * (known.totals(each) * there) for each in copies)
        if whole.any():
            offered[resource] = whole, free
    if not offered:
        return snapshot
    snapshot = _with_columns(snapshot, [each for each in offered if each not in snapshot.dimensions])
    allocatable, used = snapshot.nodes.allocatable.copy(), snapshot.nodes.used.copy()
    for resource, (whole, free) in offered.items():
        column, rows = snapshot.dimensions.index(resource), np.flatnonzero(whole)
        allocatable[column, rows] = np.maximum(whole, used[column] + free)[rows]
        used[column, rows] = allocatable[column, rows] - free[rows]
    nodes = replace(snapshot.nodes, allocatable=allocatable, used=used)
    return replace(snapshot, nodes=nodes, claimed=frozenset(offered))


def _resources(snapshot: Snapshot, classes: Backing) -> list[str]:
    """The resources with a class that any pod requests, by name."""
    found = {name for at, name in enumerate(snapshot.dimensions) if name in classes and snapshot.requests[:, at].any()}
    if UNKNOWN in snapshot.dimensions:
        found.update(name for _, name in _unknown(snapshot) if name in classes)
    return sorted(found)


def _unknown(snapshot: Snapshot) -> Iterator[tuple[int, str]]:
    """The pod classes, and the names of requested resources without a column."""
    for number in np.flatnonzero(snapshot.requests[:, snapshot.dimensions.index(UNKNOWN)]).tolist():
        for name in snapshot.classes[number].request:
            if name not in snapshot.dimensions:
                yield number, name


def _with_columns(snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
    """The snapshot with a column for each of some resources, which were counted as unknown."""
    if not names:
        return snapshot
    unknown, first = snapshot.dimensions.index(UNKNOWN), len(snapshot.dimensions)
    requests = _wider(snapshot.requests.T, len(names)).T
    for number, name in _unknown(snapshot):
        if name in names:
            amount = snapshot.classes[number].request[name]
            requests[number, first + names.index(name)] = amount
            requests[number, unknown] -= amount
    nodes, pods = snapshot.nodes, snapshot.pods
    on_node = (pods.node >= 0) & (pods.job > -2)
    held = {}
    for what, states in (("used", ON_NODE_STATES), ("releasing", (PodState.Releasing,))):
        rows = np.flatnonzero(on_node & np.isin(pods.state, states))
        matrix = held[what] = _wider(getattr(nodes, what), len(names))
        for column in range(first, len(matrix)):
            of_pods = requests[pods.pod_class[rows], column]
            matrix[column] = np.bincount(pods.node[rows], weights=of_pods, minlength=matrix.shape[1])
            matrix[unknown] -= matrix[column]
    nodes = replace(
        nodes, allocatable=_wider(nodes.allocatable, len(names)), used=held["used"], releasing=held["releasing"]
    )
    return replace(snapshot, dimensions=(*snapshot.dimensions, *names), requests=requests, nodes=nodes)


def _wider(matrix: Matrix, more: int) -> Matrix:
    """A copy with `more` rows of zeros."""
    return np.concatenate([matrix, np.zeros((more, matrix.shape[1]))])


def _copies(devices: Devices, balance: Balance, among: Mask) -> npt.NDArray[np.int64]:
    """The number of pods with a request of one that fit on each device, shape (devices + 1,)."""
    copies = among.astype(np.int64)
    for row in np.flatnonzero(among & (devices.stock.pool >= 0)).tolist():
        if devices.stock.is_shared(row):
            share = devices.stock.share(row, devices.offers[row].capacities.consumed({}) or {})
            left = ((devices.stock.limits[at] - balance.drawn[at]) // drawn for at, drawn in share if drawn)
            copies[row] = max(0, min(left, default=_MANY))
    return copies
