"""Small clusters in plain values, and every way to place a gang in them, tried one pod after the other.

The rules are written down once more, as Kubernetes documents them and without any of the package's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from stromboli.api import crds
from stromboli.api.objects import ContainerPort
from tests.builders import node, pod, pod_group, queue

ZONE = "zone"
HOST = "kubernetes.io/hostname"
#: a node for each pod of the gang that has one, by number
Placed = Mapping[int, int]


@dataclass(frozen=True)
class SmallNode:
    cpu: int
    memory: int
    zone: str
    #: a label that pods may select
    disk: str = ""
    rack: int = 0


@dataclass(frozen=True)
class SmallPod:
    cpu: int
    memory: int = 1
    app: str = "a"
    role: str = ""
    disk: str = ""
    ports: tuple[int, ...] = ()
    #: topology key and app
    near: tuple[tuple[str, str], ...] = ()
    far: tuple[tuple[str, str], ...] = ()
    #: topology key and app, with a skew of 1
    spread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cluster:
    nodes: tuple[SmallNode, ...]
    pods: tuple[SmallPod, ...]
    least: int
    #: pods of others, with the node of each
    running: tuple[tuple[SmallPod, int], ...] = ()
    by_role: Mapping[str, int] = field(default_factory=dict)
    #: whether the gang has to be in one rack
    hard: bool = False
    capability: int | None = None

    # -- as objects --------------------------------------------------------------------------------------------------

    def objects(self) -> Iterator[Any]:
        """What a state sees."""
        yield queue("default", **({} if self.capability is None else {"capability": {"cpu": str(self.capability)}}))
        yield queue("others")
        for number, each in enumerate(self.nodes):
            labels = {ZONE: each.zone, **({"disk": each.disk} if each.disk else {})}
            yield node(f"n{number}", cpu=str(each.cpu), memory=f"{each.memory}Gi", labels=labels)
        yield from self._racks()
        for number, (each, on) in enumerate(self.running):
            yield pod_group(f"other{number}", 1, queue="others", phase="Running")
            yield self._pod(f"other{number}-0", f"other{number}", each, node=f"n{on}")
        spec: dict[str, Any] = {"minTaskMember": dict(self.by_role)} if self.by_role else {}
        if self.hard:
            spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
        yield pod_group("x", self.least, **spec)
        for number, each in enumerate(self.pods):
            yield self._pod(f"x-{number}", "x", each)

    def _racks(self) -> Iterator[Any]:
        for rack in sorted({each.rack for each in self.nodes}) if self.hard else ():
            names = [f"n{number}" for number, each in enumerate(self.nodes) if each.rack == rack]
            members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
            yield crds.HyperNode.parse({"metadata": {"name": f"r{rack}"}, "spec": {"tier": 1, "members": members}})

    def _pod(self, name: str, group: str, each: SmallPod, **more: Any) -> Any:
        affinity: dict[str, Any] = {}
        for kind, terms in (("podAffinity", each.near), ("podAntiAffinity", each.far)):
            if terms:
                affinity[kind] = {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} for key, app in terms
                    ]
                }
        spec: dict[str, Any] = {"affinity": affinity} if affinity else {}
        if each.spread:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}},
                }
                for key, app in each.spread
            ]
        if each.disk:
            spec["nodeSelector"] = {"disk": each.disk}
        annotations = {"volcano.sh/task-spec": each.role} if each.role else {}
        made = pod(
            name,
            group,
            cpu=str(each.cpu),
            memory=f"{each.memory}Gi",
            labels={"app": each.app},
            annotations=annotations,
            **spec,
            **more,
        )
        if each.ports:
            container = made.spec.containers[0]
            ports = [ContainerPort(host_port=port) for port in each.ports]
            made = replace(made, spec=replace(made.spec, containers=[replace(container, ports=ports)]))
        return made

    # -- every way ---------------------------------------------------------------------------------------------------

    def possible(self) -> bool:
        """Whether some of the gang's pods, in some order and on some nodes, are what it starts with."""
        seen: set[frozenset[tuple[int, int]]] = set()
        waiting: list[dict[int, int]] = [{}]
        while waiting:
            placed = waiting.pop()
            if self._suffices(placed):
                return True
            for number in range(len(self.pods)):
                if number in placed:
                    continue
                for on in range(len(self.nodes)):
                    if self._may_go(number, on, placed):
                        then = {**placed, number: on}
                        key = frozenset(then.items())
                        if key not in seen:
                            seen.add(key)
                            waiting.append(then)
        return False

    def _suffices(self, placed: Placed) -> bool:
        roles = Counter(self.pods[number].role for number in placed)
        return len(placed) >= self.least and all(roles[role] >= least for role, least in self.by_role.items())

    def _may_go(self, number: int, on: int, placed: Placed) -> bool:
        mine, there = self.pods[number], self.nodes[on]
        others = [*self.running, *((self.pods[other], where) for other, where in placed.items())]
        here = [other for other, where in others if where == on]
        if sum(other.cpu for other in here) + mine.cpu > there.cpu:
            return False
        if sum(other.memory for other in here) + mine.memory > there.memory:
            return False
        if mine.disk and mine.disk != there.disk:
            return False
        if any(set(mine.ports) & set(other.ports) for other in here):
            return False
        if self.capability is not None and sum(self.pods[o].cpu for o in placed) + mine.cpu > self.capability:
            return False
        if self.hard and any(self.nodes[where].rack != there.rack for where in placed.values()):
            return False
        for other, where in others:
            if any(other.app == app and self._same(key, on, where) for key, app in mine.far):
                return False
            if any(mine.app == app and self._same(key, on, where) for key, app in other.far):
                return False
        return self._joins(mine, on, others) and all(self._spreads(mine, on, others, *each) for each in mine.spread)

    def _joins(self, mine: SmallPod, on: int, others: list[tuple[SmallPod, int]]) -> bool:
        if not mine.near:
            return True
        selected = [where for other, where in others if all(other.app == app for _, app in mine.near)]
        if not selected:
            return all(mine.app == app for _, app in mine.near)
        return all(any(self._same(key, on, where) for where in selected) for key, _ in mine.near)

    def _spreads(self, mine: SmallPod, on: int, others: list[tuple[SmallPod, int]], key: str, app: str) -> bool:
        eligible = [at for at, each in enumerate(self.nodes) if not mine.disk or each.disk == mine.disk]
        counts = {self._domain(key, at): 0 for at in eligible}
        for other, where in others:
            if other.app == app and where in eligible:
                counts[self._domain(key, where)] += 1
        return counts[self._domain(key, on)] + (mine.app == app) - min(counts.values()) <= 1

    def _domain(self, key: str, at: int) -> str:
        return self.nodes[at].zone if key == ZONE else str(at)

    def _same(self, key: str, one: int, other: int) -> bool:
        return self._domain(key, one) == self._domain(key, other)
