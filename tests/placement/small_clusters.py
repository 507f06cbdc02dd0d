"""Small clusters in plain values, and as the objects that a session sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stromboli.state.cluster import ClusterState
from tests.builders import hyper_node, node, pod, pod_group, queue, state

ZONE = "zone"
HOST = "kubernetes.io/hostname"
DRIVER = "csi.example.com"


@dataclass(frozen=True)
class SmallNode:
    cpu: int
    memory: int
    zone: str
    #: a label that pods may select
    disk: str = ""
    #: racks 0 and 1 are below spine 0, rack 2 is below spine 1
    rack: int = 0
    #: how many volumes it attaches, if that is limited
    attaches: int | None = None


@dataclass(frozen=True)
class SmallPod:
    cpu: int
    memory: int = 1
    app: str = "a"
    role: str = ""
    #: the sub group, in a gang that has some
    part: str = "0"
    disk: str = ""
    ports: tuple[int, ...] = ()
    volumes: int = 0
    #: topology key and app
    near: tuple[tuple[str, str], ...] = ()
    far: tuple[tuple[str, str], ...] = ()
    #: topology key, app and skew
    spread: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Parts:
    """Sub groups: how many pods each starts with, how many start, and whether each has to be in one rack."""

    size: int
    least: int
    hard: bool = False


@dataclass(frozen=True)
class Cluster:
    nodes: tuple[SmallNode, ...]
    pods: tuple[SmallPod, ...]
    least: int
    #: pods of others, with the node of each; they are in a queue beside the gang's
    running: tuple[tuple[SmallPod, int], ...] = ()
    by_role: Mapping[str, int] = field(default_factory=dict)
    parts: Parts | None = None
    #: whether the gang has to be in one rack (1) or below one spine (2)
    tier: int | None = None
    #: CPUs that the gang's queue may hold, and the queue above it and the others'
    capability: int | None = None
    above: int | None = None
    #: the node of each pod of the gang that has one already, by number
    held: Mapping[int, int] = field(default_factory=dict)

    def state(self) -> ClusterState:
        """What a session sees of it."""
        cluster = state(*self._objects())
        for kind, obj in self._volumes():
            cluster.upsert(kind, obj)
        return cluster

    def _objects(self) -> Iterator[Any]:
        yield queue("root")
        yield queue("above", **_limit(self.above))
        yield queue("default", parent="above", **_limit(self.capability))
        yield queue("others", parent="above")
        for number, each in enumerate(self.nodes):
            labels = {ZONE: each.zone, **({"disk": each.disk} if each.disk else {})}
            yield node(f"n{number}", cpu=str(each.cpu), memory=f"{each.memory}Gi", labels=labels)
        if self.tier is not None or (self.parts is not None and self.parts.hard):
            yield from self._racks()
        for number, (each, on) in enumerate(self.running):
            yield pod_group(f"other{number}", 1, queue="others", phase="Running")
            yield _pod(f"other{number}-0", f"other{number}", each, node=f"n{on}")
        yield pod_group("x", self.least, phase="Running" if self.held else "Inqueue", **self._spec())
        for number, each in enumerate(self.pods):
            yield _pod(f"x-{number}", "x", each, node=f"n{self.held[number]}" if number in self.held else "")

    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"minTaskMember": dict(self.by_role)} if self.by_role else {}
        if self.tier is not None:
            spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": self.tier}
        if self.parts is not None:
            part = {"name": "part", "subGroupSize": self.parts.size, "minSubGroups": self.parts.least}
            near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if self.parts.hard else {}
            spec["subGroupPolicy"] = [part | near | {"matchLabelKeys": ["part"]}]
        return spec

    def _racks(self) -> Iterator[Any]:
        racks = sorted({each.rack for each in self.nodes})
        for rack in racks:
            names = [f"n{number}" for number, each in enumerate(self.nodes) if each.rack == rack]
            yield hyper_node(f"r{rack}", 1, "Node", names)
        for spine in sorted({rack // 2 for rack in racks}):
            yield hyper_node(f"s{spine}", 2, "HyperNode", [f"r{rack}" for rack in racks if rack // 2 == spine])

    def _volumes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Volumes that are bound to claims, each with one pod."""
        for number, each in enumerate(self.nodes):
            if each.attaches is not None:
                drivers = [{"name": DRIVER, "allocatable": {"count": each.attaches}}]
                yield "CSINode", {"metadata": {"name": f"n{number}"}, "spec": {"drivers": drivers}}
        named = [(f"x-{number}", each) for number, each in enumerate(self.pods)]
        named += [(f"other{number}-0", each) for number, (each, _) in enumerate(self.running)]
        for name, each in named:
            for number in range(each.volumes):
                volume = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
                csi = {"driver": DRIVER, "volumeHandle": f"{name}-{number}"}
                metadata = {"name": f"{name}-{number}"}
                spec = volume | {"csi": csi, "capacity": {"storage": "1Gi"}}
                yield "PersistentVolume", {"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}
                bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}, "namespace": "default"}
                spec = volume | {"volumeName": f"{name}-{number}", "resources": {"requests": {"storage": "1Gi"}}}
                yield "PersistentVolumeClaim", {"metadata": metadata | bound, "spec": spec}


def _limit(cpu: int | None) -> dict[str, Any]:
    return {} if cpu is None else {"capability": {"cpu": str(cpu)}}


def _pod(name: str, group: str, each: SmallPod, **more: Any) -> Any:
    spec: dict[str, Any] = {"nodeSelector": {"disk": each.disk}} if each.disk else {}
    affinity = {kind: _terms(terms) for kind, terms in (("podAffinity", each.near), ("podAntiAffinity", each.far))}
    if each.near or each.far:
        spec["affinity"] = {kind: terms for kind, terms in affinity.items() if terms}
    if each.spread:
        spec["topologySpreadConstraints"] = [
            {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _labels(app)}
            for key, app, skew in each.spread
        ]
    claims = [{"persistentVolumeClaim": {"claimName": f"{name}-{number}"}} for number in range(each.volumes)]
    return pod(
        name,
        group,
        cpu=str(each.cpu),
        memory=f"{each.memory}Gi",
        labels={"app": each.app, "part": each.part},
        annotations={"volcano.sh/task-spec": each.role} if each.role else {},
        ports=[{"containerPort": port, "hostPort": port} for port in each.ports],
        volumes=[{"name": f"v{number}", **claim} for number, claim in enumerate(claims)],
        **spec,
        **more,
    )


def _terms(terms: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    found = [{"topologyKey": key, "labelSelector": _labels(app)} for key, app in terms]
    return {"requiredDuringSchedulingIgnoredDuringExecution": found} if found else {}


def _labels(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}
