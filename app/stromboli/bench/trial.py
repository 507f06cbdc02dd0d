"""A trial: a cluster with placed pods, waves of new ones, and what a session spends on each wave.

Three waves come one after the other, each to a cluster of placed pods alone: new pods that find places (`success`),
pods in PodGroups of their own that ask for more than any node has (`vain`), and a single pod (`tick`).
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stromboli.api import crds, objects
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment, NodeUsage
from stromboli.simulation import synthetic
from stromboli.simulation.manifests import decode
from stromboli.state.cluster import ClusterState, object_key

Fields = Mapping[str, Any]
#: kind and object
Objects = Iterator[tuple[str, Any]]

HOSTNAME = "kubernetes.io/hostname"
#: any time: trials are of this moment
NOW = 1_700_000_000.0
#: more than a node has
_TOO_MUCH = "64"
_MOST_IN_VAIN = 100
_ACTIONS = "enqueue, allocate, backfill"
_TIERS = ("priority gang conformance", "overcommit drf predicates proportion nodeorder binpack")


def _nothing(_: int) -> Fields:
    return {}


def _no_objects(_: int) -> Objects:
    return iter(())


@dataclass(frozen=True, slots=True)
class Trial:
    """Requirements of a feature on the cluster; functions are called with a number, unless stated otherwise.

    `pod` and `placed` give the spec of a pod, with `labels`, `annotations` and the time when it `started`.
    """

    pod: Callable[[int], Fields] = _nothing
    placed: Callable[[int], Fields] = _nothing
    #: `labels`, `annotations`, `taints`, `images` and `amounts` of a node
    node: Callable[[int], Fields] = _nothing
    #: spec of the PodGroup of new pods, with `annotations`; `running_group` is that of placed ones
    group: Callable[[int], Fields] = _nothing
    running_group: Callable[[int], Fields] = _nothing
    #: spec of a queue, with `annotations`
    queue: Callable[[int], Fields] = _nothing
    #: more objects, by the number of nodes
    objects: Callable[[int], Objects] = _no_objects
    #: annotations of all pods
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: plugins in addition to the built-in policy's, with their arguments
    plugins: Mapping[str, Fields] = field(default_factory=dict)
    #: plugins of that policy that are left out
    without: str = ""
    #: the plugin that reads the hierarchy of queues
    hierarchy: str = ""
    actions: str = _ACTIONS
    #: further keys of the policy
    settings: Mapping[str, Fields] = field(default_factory=dict)
    #: arguments of actions
    configurations: Mapping[str, Fields] = field(default_factory=dict)
    #: queues, between which PodGroups take turns
    queues: int = 1
    #: new pods, and the PodGroups that they are in
    pods: int = 100
    groups: int = 1
    #: running pods on each node, and in each PodGroup
    per_node: int = 2
    per_group: int = 1_000_000
    #: nodes that change before each session, and other objects that do, by the number of the session
    changing: int = 0
    changed: Callable[[int], Objects] = _no_objects
    #: whether sessions have the policy's budget; otherwise they try all pods
    bounded: bool = False
    #: whether pods that never fit are like all others, since no pod finds a node or victims
    always_vain: bool = False
    #: number of PodGroups of pods that never fit; 0 for one each
    groups_in_vain: int = 0

    def policy(self) -> str:
        """The built-in policy with the plugins and settings of the feature."""
        tiers = [[name for name in tier.split() if name not in self.without.split()] for tier in _TIERS]
        tiers[-1] += self.plugins
        out = [f'actions: "{self.actions}"']
        if self.configurations:
            listed = [{"name": name, "arguments": of} for name, of in self.configurations.items()]
            out.append(f"configurations: {json.dumps(listed)}")
        out += [f"{key}: {json.dumps(value)}" for key, value in self.settings.items()]
        out.append("tiers:")
        for tier in tiers:
            out += ["- plugins:", *map(self._plugin, tier)]
        return "\n".join(out)

    def _plugin(self, name: str) -> str:
        option = {"name": name, "arguments": self.plugins.get(name) or None, "enableHierarchy": name == self.hierarchy}
        return f"  - {json.dumps({key: value for key, value in option.items() if value})}"


@dataclass(slots=True)
class Figures:
    """Milliseconds of CPU: for each pod in success and in vain, and of the session with one pod."""

    success: float = 0.0
    vain: float = 0.0
    #: for each pod in vain when nothing has changed since the session before
    again: float = 0.0
    tick: float = 0.0
    #: of the session with no new pod
    idle: float = 0.0
    #: decisions to bind and evict in success
    bound: int = 0
    evicted: int = 0
    #: peak of the process
    mebibytes: int = 0


def measure(trial: Trial, nodes: int, runs: int) -> Figures:
    """Try all waves, each in `runs` sessions and one before, which makes what others find; the best counts."""
    scheduler = Engine(trial.policy(), registry=discover())
    if not trial.bounded:
        scheduler = scheduler.unbounded()
    cluster = Cluster(trial, nodes, scheduler)
    figures = Figures()
    pods, in_vain = trial.pods, min(trial.pods, _MOST_IN_VAIN)
    if trial.bounded or trial.groups_in_vain:
        in_vain = pods
    if not trial.always_vain:
        with cluster.wave(pods, trial.groups):
            first, *later = cluster.sessions(1 + runs)
            figures.bound, figures.evicted = first[1:]
            figures.success = min(later)[0] / pods
    with cluster.wave(in_vain, trial.groups_in_vain or in_vain, cpu="" if trial.always_vain else _TOO_MUCH):
        first, *later = cluster.sessions(1 + runs)
        figures.vain, figures.again = first[0] / in_vain, min(later)[0] / in_vain
    with cluster.wave(1, 1):
        figures.tick = min(cluster.sessions(1 + runs)[1:])[0]
    figures.idle = min(cluster.sessions(1 + runs)[1:])[0]
    figures.mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


class Cluster:
    """The cluster of a trial."""

    def __init__(self, trial: Trial, nodes: int, scheduler: Engine) -> None:
        self._trial, self._scheduler, self._changes = trial, scheduler, 0
        self._state = state = ClusterState(("stromboli",), reads=scheduler.registry.reads)
        self._names = [f"node-{number:05}" for number in range(nodes)]
        for number in range(trial.queues):
            state.upsert("Queue", _queue(f"queue-{number}", trial.queue(number)))
        for number in range(nodes):
            self._upsert_node(number)
        for kind, obj in trial.objects(nodes):
            state.upsert(kind, obj)
        placed = nodes * trial.per_node
        for number in range(-(-placed // trial.per_group)):
            state.upsert("PodGroup", self._group("run", number, 1, trial.running_group(number), "Running"))
        for number in range(placed):
            state.upsert("Pod", self._pod("run", number, number // trial.per_group, self._names[number % nodes]))
        synthetic.write_statuses(state, self._scheduler.decide(state.snapshot(), now=NOW).decisions)

    @contextmanager
    def wave(self, pods: int, groups: int, cpu: str = "") -> Iterator[None]:
        """New pods in a number of PodGroups, which exist while the block runs; `cpu` replaces their request."""
        each = -(-pods // groups)
        made: list[tuple[str, Any]] = []
        for number in range(groups):
            least = min(each, pods - number * each)
            made.append(("PodGroup", self._group("new", number, least, self._trial.group(number), "Inqueue")))
        made += [("Pod", self._pod("new", number, number // each, cpu=cpu)) for number in range(pods)]
        for kind, obj in made:
            self._state.upsert(kind, obj)
        yield
        for kind, obj in reversed(made):
            self._state.delete(kind, object_key(obj))

    def sessions(self, count: int) -> list[tuple[float, int, int]]:
        """Milliseconds, pods bound and pods evicted of each of some sessions in a row."""
        decide, out = self.successive(), []
        for _ in range(count):
            with synthetic.undisturbed():
                began = time.process_time()
                result = decide()
                spent = 1e3 * (time.process_time() - began)
            self.change()
            out.append((spent, len(result.session.bound), len(result.session.evicted)))
        return out

    def successive(self) -> Callable[[], SessionResult]:
        """Decides once more each time it is called, with the state of the session before."""
        idle = NodeUsage(cpu=10.0, memory=10.0, measured=NOW)
        engine = Successive(self._scheduler, Environment(node_usage=dict.fromkeys(self._names, idle)))
        return lambda: engine.decide(self._state.snapshot(), now=NOW)

    def change(self) -> None:
        """The changes made before each session."""
        self._changes += 1
        for kind, obj in self._trial.changed(self._changes):
            self._state.upsert(kind, obj)
        for number in range(min(self._trial.changing, len(self._names))):
            self._upsert_node(number, str(self._changes))

    def _upsert_node(self, number: int, change: str = "") -> None:
        fields, name = self._trial.node(number), self._names[number]
        amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", **fields.get("amounts", {})}
        labels = {HOSTNAME: name, "change": change, **fields.get("labels", {})}
        manifest = {
            "metadata": {"name": name, "labels": labels, "annotations": fields.get("annotations", {})},
            "spec": {"taints": fields.get("taints", [])},
            "status": {"allocatable": amounts, "capacity": amounts, "images": fields.get("images", [])},
        }
        self._state.upsert("Node", decode("Node", manifest, name))

    def _group(self, job: str, number: int, least: int, fields: Fields, phase: str) -> crds.PodGroup:
        spec = {"minMember": least, "queue": f"queue-{number % self._trial.queues}", **fields}
        annotations = spec.pop("annotations", {})
        metadata = {"name": f"{job}-{number}", "namespace": "default", "annotations": annotations}
        return crds.PodGroup.parse({"metadata": metadata, "spec": spec, "status": {"phase": phase}})

    def _pod(self, job: str, number: int, group: int, node: str = "", cpu: str = "") -> objects.Pod:
        spec = dict(self._trial.placed(number) if node else self._trial.pod(number))
        name = f"{job}-{number}"
        in_group = {"scheduling.k8s.io/group-name": f"{job}-{group}"}
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": spec.pop("labels", {}),
            "annotations": {**in_group, **self._trial.annotations, **spec.pop("annotations", {})},
        }
        spec = {"schedulerName": "stromboli", "containers": [container()], **spec}
        if cpu:
            first, *others = spec["containers"]
            spec["containers"] = [_asking_for(cpu, first), *others]
        if node:
            spec["nodeName"] = node
        started = spec.pop("started", "2020-01-01T00:00:00Z")
        status = {"phase": "Running" if node else "Pending", "startTime": started}
        pod: objects.Pod = decode("Pod", {"metadata": metadata, "spec": spec, "status": status}, name)
        return pod


def container(requests: Fields | None = None, **more: Any) -> dict[str, Any]:
    """A container that requests a cpu, a Gi and the given amounts."""
    return {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi", **(requests or {})}}, **more}


def _asking_for(cpu: str, of: dict[str, Any]) -> dict[str, Any]:
    resources = {what: {**amounts, "cpu": cpu} for what, amounts in of.get("resources", {}).items()}
    return {**of, "resources": resources}


def _queue(name: str, fields: Fields) -> crds.Queue:
    spec = {"weight": 1, **fields}
    metadata = {"name": name, "annotations": spec.pop("annotations", {})}
    return crds.Queue.parse({"metadata": metadata, "spec": spec, "status": {"state": "Open"}})
