"""Small random clusters that exercise everything that plugins are asked about.

Their objects carry what the checked plugin reads, with the same few values, so that its answers differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from stromboli.api.validation import describe
from stromboli.plugin_kit.surroundings import SCHEDULER
from stromboli.simulation.manifests import decode
from stromboli.state.reads import Reads

_VALUES = ("red", "blue", "true", "false", "1", "2")
_CREATED = "2024-01-01T00:00:{:02}Z"
_GROUP = "scheduling.k8s.io/group-name"
_QUEUES = ("default", "research", "production")
_NAMESPACE = re.compile(r"[a-z][-a-z0-9]{0,61}[a-z0-9]")


def made_up(chance: Random, reads: Reads, words: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """The objects of a cluster, as (kind, object); `words` are additional keys and values, and names of namespaces."""
    manifests = _Draw(chance, reads, words).manifests()
    return [(each["kind"], decode(each["kind"], each, describe(each["kind"], each))) for each in manifests]


class _Draw:
    """Generates one cluster."""

    def __init__(self, chance: Random, reads: Reads, words: Iterable[str]) -> None:
        self._chance = chance
        self._labels = sorted(reads.labels)
        self._annotations = sorted(key for key in reads.annotations | reads.kept if not key.endswith("/"))
        named = sorted(words)
        #: keys of labels and annotations, and of nodes' taints; nodes' resources; values of labels
        self._keys = [*dict.fromkeys([*self._labels, *self._annotations, *named])]
        self._resources = [word for word in named if "/" in word and "kubernetes.io/" not in word]
        values = (*_VALUES, *(word for word in named if "/" not in word))
        #: few values per key, so that nodes have some in common
        self._values = {key: chance.sample(values, 2) for key in self._keys}
        self._namespaces = ("default", chance.choice([*filter(_NAMESPACE.fullmatch, named)] or ["team"]))
        # In every other cluster most gangs need the places of others.
        sizes = chance.choice(((4, 8, 16), (2, 4)))
        #: idle CPUs by node
        self._idle = {f"node-{number}": chance.choice(sizes) for number in range(chance.randint(3, 9))}

    def manifests(self) -> Iterator[dict[str, Any]]:
        yield from (self._node(name, cpus) for name, cpus in self._idle.items())
        yield from self._hyper_nodes(list(self._idle))
        yield from (self._queue(name) for name in _QUEUES)
        for name, value in (("low", 10), ("high", 1_000)):
            yield {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for number in range(self._chance.randint(1, 4)):
            yield from self._gang(f"old-{number}", running=True)
        for number in range(self._chance.randint(2, 6)):
            yield from self._gang(f"new-{number}", running=False)

    def _likely(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _node(self, name: str, cpus: int) -> dict[str, Any]:
        amounts = {"cpu": str(cpus), "memory": f"{self._chance.choice((2, 4)) * cpus}Gi", "pods": "20"}
        labels = {"kubernetes.io/hostname": name, "zone": self._chance.choice("ab")}
        amounts |= {each: str(self._chance.randrange(5)) for each in self._resources if self._likely(0.5)}
        taints = [self._taint() for _ in range(self._chance.choice((0, 0, 1, 1, 2)))]
        return {
            "kind": "Node",
            "metadata": {"name": name, **self._marks(labels)},
            "spec": {"taints": taints},
            "status": {"allocatable": amounts, "capacity": amounts},
        }

    def _taint(self) -> dict[str, str]:
        effect = self._chance.choice(("NoSchedule", "NoExecute", *["PreferNoSchedule"] * 3))
        if not self._keys or self._likely(0.3):
            return {"key": "dedicated", "value": "batch", "effect": effect}
        key = self._chance.choice(self._keys)
        return {"key": key, "value": self._chance.choice(self._values[key]), "effect": effect}

    def _hyper_nodes(self, nodes: list[str]) -> Iterator[dict[str, Any]]:
        racks = {f"rack-{first}": nodes[first : first + 3] for first in range(0, len(nodes), 3)}
        for name, members in racks.items():
            yield _hyper_node(name, 1, "Node", members)
        yield _hyper_node("spine", 2, "HyperNode", list(racks))

    def _queue(self, name: str) -> dict[str, Any]:
        spec: dict[str, Any] = {"weight": self._chance.randint(1, 3), "reclaimable": self._likely(0.8)}
        if self._likely(0.5):
            spec["deserved"] = {"cpu": str(self._chance.randint(2, 12)), "memory": "16Gi"}
        if self._likely(0.3):
            spec["capability"] = {"cpu": str(self._chance.randint(4, 24))}
        metadata = {"name": name, **self._marks({})}
        return {"kind": "Queue", "metadata": metadata, "spec": spec, "status": {"state": "Open"}}

    def _gang(self, name: str, *, running: bool) -> Iterator[dict[str, Any]]:
        """A PodGroup and its pods, which differ from each other in some gangs."""
        size = self._chance.randint(1, 6)
        spec: dict[str, Any] = {
            "minMember": 1 if self._likely(0.3) else size,
            "queue": self._chance.choice(_QUEUES),
            "priorityClassName": self._chance.choice(("low", "high")),
        }
        if self._likely(0.2):
            spec["subGroupPolicy"] = [{"name": "part", "matchLabelKeys": ["part"], "subGroupSize": 2}]
        if self._likely(0.2):
            spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": self._chance.choice((1, 2))}
        phase = "Running" if running else self._chance.choice(("Inqueue", "Pending"))
        if phase == "Pending" and self._likely(0.5):
            spec["minResources"] = {"cpu": str(size)}
        namespace = self._chance.choice(self._namespaces)
        metadata = {"name": name, "namespace": namespace, "creationTimestamp": self._created(), **self._marks({})}
        yield {
            "kind": "PodGroup",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": phase},
        }
        alike, model = self._likely(0.5), self._model()
        for index in range(size):
            cpu, labels, annotations, more = model if alike else self._model()
            node = self._node_for(cpu) if running else ""
            if running and not node:
                continue
            labels, annotations = {"part": str(index // 2), **labels}, {_GROUP: name, **annotations}
            of = {"namespace": namespace, "labels": labels, "annotations": annotations}
            yield _pod(f"{name}-{index}", self._created(), cpu, of, more, node)

    def _model(self) -> tuple[int, dict[str, str], dict[str, str], dict[str, Any]]:
        """CPUs, labels, annotations and further fields of the spec."""
        more: dict[str, Any] = {"priority": self._chance.choice((10, 1_000))}
        if self._likely(0.2):
            more["nodeSelector"] = {"zone": self._chance.choice("ab")}
        if self._likely(0.5):
            keys = [{"key": "dedicated"}, *({"key": key} for key in self._keys), {}]
            more["tolerations"] = [{**self._chance.choice(keys), "operator": "Exists"}]
        if self._likely(0.1):
            more["hostNetwork"] = True
        if self._likely(0.3):
            more["priorityClassName"] = self._chance.choice(("low", "high"))
        annotations = self._some(self._annotations)
        if self._likely(0.4):
            annotations["volcano.sh/preemptable"] = self._chance.choice(("true", "false"))
        return self._chance.choice((0, 1, 1, 2, 3)), self._some(self._labels), annotations, more

    def _marks(self, labels: dict[str, str]) -> dict[str, dict[str, str]]:
        """Labels and annotations, those given among them."""
        return {"labels": self._some(self._keys) | labels, "annotations": self._some(self._keys)}

    def _some(self, keys: list[str]) -> dict[str, str]:
        return {key: self._chance.choice(self._values[key]) for key in keys if self._likely(0.7)}

    def _node_for(self, cpu: int) -> str:
        """A node with enough idle CPU, which is then used; empty if there is none."""
        fitting = [name for name, idle in self._idle.items() if idle >= cpu]
        if not fitting:
            return ""
        node = self._chance.choice(fitting)
        self._idle[node] -= cpu
        return node

    def _created(self) -> str:
        return _CREATED.format(self._chance.randrange(60))


def _hyper_node(name: str, tier: int, kind: str, members: list[str]) -> dict[str, Any]:
    selected = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return {"kind": "HyperNode", "metadata": {"name": name}, "spec": {"tier": tier, "members": selected}}


def _pod(
    name: str,
    created: str,
    cpu: int,
    metadata: dict[str, Any],
    more: dict[str, Any],
    node: str,
) -> dict[str, Any]:
    requests = {"cpu": str(cpu), "memory": f"{cpu}Gi"} if cpu else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "uid": name, "creationTimestamp": created, **metadata},
        "spec": {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "main", "image": "example.com/main:1", "resources": {"requests": requests}}],
            **({"nodeName": node} if node else {}),
            **more,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
