"""Builders of objects for tests: the fields that a test is about, defaults for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stromboli.api import crds, objects
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.simulation.manifests import decode
from stromboli.state.cluster import ClusterState

#: what the plugins of the package read of pods
READS = discover().reads
#: a time for sessions that do not care
NOON = 1_700_000_000.0


def node(name: str, cpu: str = "8", memory: str = "32Gi", pods: str = "110", **more: Any) -> objects.Node:
    """A node; `labels`, `taints`, `unschedulable`, the status of `ready`, `status`, and further `resources` by name."""
    labels = more.pop("labels", {})
    spec = {key: more.pop(key) for key in ("taints", "unschedulable") if key in more}
    ready = more.pop("ready", None)
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}] if ready else []
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("resources", {})}
    manifest = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": conditions, **more.pop("status", {})},
    }
    assert not more, more
    return decode("Node", manifest, name)


def queue(name: str, weight: int = 1, state: str = "Open", created: int = 0, **spec: Any) -> crds.Queue:
    """A queue."""
    return crds.Queue.parse(
        {
            "metadata": {"name": name, "creationTimestamp": _time(created)},
            "spec": {"weight": weight, **spec},
            "status": {"state": state},
        }
    )


def pod_group(
    name: str,
    min_member: int = 1,
    queue: str = "default",
    phase: str = "Inqueue",
    created: int = 0,
    namespace: str = "default",
    **spec: Any,
) -> crds.PodGroup:
    """A PodGroup."""
    return crds.PodGroup.parse(
        {
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": _time(created)},
            "spec": {"minMember": min_member, "queue": queue, **spec},
            "status": {"phase": phase},
        }
    )


def pod(
    name: str,
    group: str = "",
    cpu: str = "1",
    memory: str = "1Gi",
    node: str = "",
    phase: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    scheduler: str = "stromboli",
    resources: dict[str, str] | None = None,
    deleted: bool = False,
    nominated: str = "",
    namespace: str = "default",
    whole: dict[str, str] | None = None,
    ports: list[dict[str, Any]] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> objects.Pod:
    """A pod; without cpu and memory ("") it is best-effort. `whole` is what it requests beside its container."""
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v} | (resources or {})
    main = {"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": labels or {},
        "annotations": ({"scheduling.k8s.io/group-name": group} if group else {}) | (annotations or {}),
    }
    if deleted:
        metadata["deletionTimestamp"] = _time(1)
    manifest = {
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "containers": [main | ({"ports": ports} if ports else {})],
            **({"nodeName": node} if node else {}),
            **({"resources": {"requests": whole}} if whole else {}),
            **spec,
        },
        "status": {
            "phase": phase or ("Running" if node else "Pending"),
            "nominatedNodeName": nominated,
            **(status or {}),
        },
    }
    return decode("Pod", manifest, name)


def gang(name: str, count: int, **spec: Any) -> list[objects.Pod]:
    """The pods of a gang, all alike."""
    return [pod(f"{name}-{i}", name, **spec) for i in range(count)]


def state(*objs: Any) -> ClusterState:
    """A state that has seen the objects, lists flattened."""
    out = ClusterState(("stromboli",), reads=READS)
    for obj in objs:
        for each in obj if isinstance(obj, list) else [obj]:
            out.upsert(kind_of(each), each)
    return out


def kind_of(obj: Any) -> str:
    """The kind of an object, parsed or as plain data."""
    return str(obj["kind"]) if isinstance(obj, dict) else type(obj).__name__


def decide(cluster: ClusterState, policy: str, **options: Any) -> SessionResult:
    """One session with a policy text."""
    return Engine(policy, **options).decide(cluster.snapshot(), now=NOON)


def policy(*tiers: str, actions: str = "allocate") -> str:
    """A policy text: each argument is a tier, its plugins by name."""
    lines = [f"actions: {actions!r}", "tiers:"]
    for tier in tiers:
        lines += ["- plugins:", *(f"  - name: {name}" for name in tier.split())]
    return "\n".join(lines)


def hyper_node(name: str, tier: int, kind: str, members: list[str]) -> crds.HyperNode:
    """A HyperNode of members by name; `kind` is Node or HyperNode."""
    selected = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return crds.HyperNode.parse({"metadata": {"name": name}, "spec": {"tier": tier, "members": selected}})


def racks(*counts: int, cpu: str = "2", per_spine: int = 2) -> Iterator[Any]:
    """Nodes rN-M, racks rN of these sizes in tier 1, and spines of some racks in tier 2."""

    for rack, count in enumerate(counts):
        names = [f"r{rack}-{i}" for i in range(count)]
        yield from (node(name, cpu=cpu) for name in names)
        yield hyper_node(f"r{rack}", 1, "Node", names)
    for first in range(0, len(counts), per_spine):
        members = [f"r{rack}" for rack in range(first, min(first + per_spine, len(counts)))]
        yield hyper_node(f"spine{first // per_spine}", 2, "HyperNode", members)


def _time(offset: int) -> str:
    return f"2024-01-01T00:{offset // 60:02}:{offset % 60:02}Z"
