"""Which PodGroup a pod gets that is in none: in what queue, how many pods start together, and what they need.

Pods of one ReplicaSet, StatefulSet, DaemonSet or Job share a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

import msgspec

from stromboli.api import objects, readers, requests
from stromboli.api.crds import SCHEDULING, PodGroupPhase
from stromboli.api.errors import InvalidObjectError
from stromboli.api.quantity import parse
from stromboli.api.validation import field_path, shown
from stromboli.state.cluster import object_key
from stromboli.state.pods import GROUP_ANNOTATION, QUEUE_ANNOTATION

Object: TypeAlias = dict[str, Any]

_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
_INHERITED = "volcano.sh/"
_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
_TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
_POD_ANNOTATIONS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone")
_POD_BUDGETS = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_POD_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")


def is_bare(pod: objects.Pod) -> bool:
    """Whether a pod is in no group and should be in one."""
    return (
        not (pod.metadata.annotations or {}).get(GROUP_ANNOTATION)
        and pod.spec.scheduling_group is None
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def pod_group_for(pod: objects.Pod, owners: list[Object]) -> Object:
    """The PodGroup of a bare pod; what its owners are annotated with is inherited.

    Raises InvalidObjectError for an annotation, and InvalidQuantityError for a request, that cannot be read.
    """
    meta = pod.metadata
    annotations = meta.annotations or {}
    references = meta.owner_references or []
    controller = next((reference for reference in references if reference.controller), None)
    inherited = _owner_annotations(owners)
    min_member = _min_member(owners)
    spec: Object = {"minMember": min_member, "minResources": min_resources(pod.spec, min_member)}
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    if annotations.get(QUEUE_ANNOTATION):
        spec["queue"] = annotations[QUEUE_ANNOTATION]
    topology = _network_topology(annotations, f"Pod {object_key(pod)}")
    if topology:
        spec["networkTopology"] = topology
    metadata: Object = {
        "name": f"podgroup-{controller.uid if controller else meta.uid}",
        "namespace": meta.namespace or "default",
        "ownerReferences": _owner_references(pod, controller is not None),
        "annotations": {**inherited, **_pod_annotations(annotations)},
        "labels": {key: (meta.labels or {})[key] for key in _POD_LABELS if key in (meta.labels or {})},
    }
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec,
        "status": {"phase": PodGroupPhase.Pending},
    }


def _owner_references(pod: objects.Pod, has_controller: bool) -> list[Object]:
    if has_controller:
        found: list[Object] = msgspec.to_builtins(pod.metadata.owner_references)
        return [{key: value for key, value in reference.items() if value is not None} for reference in found]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    return [{**owner, "controller": True, "blockOwnerDeletion": True}]


def _owner_annotations(owners: list[Object]) -> dict[str, str]:
    inherited: dict[str, str] = {}
    for owner in owners:
        for key, value in (owner["metadata"].get("annotations") or {}).items():
            if key.startswith(_INHERITED):
                inherited.setdefault(key, value)
    return inherited


def _pod_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    found = {key: annotations[key] for key in _POD_ANNOTATIONS if key in annotations}
    budget = next((key for key in _POD_BUDGETS if key in annotations), None)
    return found if budget is None else {**found, budget: annotations[budget]}


def _min_member(owners: list[Object]) -> int:
    for owner in owners:
        annotations = owner["metadata"].get("annotations") or {}
        if _MIN_MEMBER in annotations:
            return _count(annotations, _MIN_MEMBER, f"{owner.get('kind', 'owner')} {object_key(owner)}")
    return 1


def _network_topology(annotations: Mapping[str, str], where: str) -> Object:
    topology: Object = {}
    if _TOPOLOGY_MODE in annotations:
        topology["mode"] = "soft" if annotations[_TOPOLOGY_MODE].lower() == "soft" else "hard"
    if _TOPOLOGY_TIER in annotations:
        topology["highestTierAllowed"] = _count(annotations, _TOPOLOGY_TIER, where)
    return topology


def _count(annotations: Mapping[str, str], key: str, where: str) -> int:
    """The number in an annotation. A gang that begins with another number than was meant would be worse than none."""
    found = readers.count(annotations[key])
    if found is None:
        problem = f"should be a number from 0 to {readers.INT32}, not {shown(annotations[key])}"
        raise InvalidObjectError(where, field_path(("metadata", "annotations", key)), problem)
    return found


def min_resources(spec: objects.PodSpec, pods: int) -> dict[str, str]:
    """What a resource quota would count for this many such pods. Raises InvalidQuantityError."""
    if pods == 0:
        return {}
    usage = {"count/pods": Fraction(1), "pods": Fraction(1)}
    for name, amount in requests.total(spec, "requests", exact).items():
        usage[name] = usage[f"requests.{name}"] = amount
    for name, amount in requests.total(spec, "limits", exact).items():
        if name in ("cpu", "memory", "ephemeral-storage"):
            usage[f"limits.{name}"] = amount
    return {name: formatted(amount * pods) for name, amount in usage.items()}


def exact(listed: objects.ResourceList | None) -> dict[str, Fraction]:
    """A resource list by name. Raises InvalidQuantityError."""
    return {name: parse(amount) for name, amount in (listed or {}).items()}


def formatted(amount: Fraction) -> str:
    """An amount as a quantity: whole, or in thousandths, rounded up."""
    return str(amount.numerator) if amount.denominator == 1 else f"{ceil(amount * 1000)}m"
