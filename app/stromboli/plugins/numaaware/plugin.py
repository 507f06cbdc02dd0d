"""The plugin: which nodes can align a pod's processors, which of them do it best, and who has taken which."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
from pydantic import BaseModel

from stromboli.api import quantity
from stromboli.api.objects import Container
from stromboli.api.pod_state import PodState
from stromboli.api.resources import Vector
from stromboli.framework.nodes import NodeView
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.plugin import Arguments, Filters, Plugin
from stromboli.framework.view import View
from stromboli.plugins.numaaware import topology
from stromboli.plugins.numaaware.topology import Cpus, Topology
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads
from stromboli.state.snapshot import Snapshot

_POLICY = "volcano.sh/numa-topology-policy"
_SCORE = 100


class NumaAwareArguments(Arguments):
    """Arguments of numa-aware."""

    weight: int = 1
    """Multiplies the score."""


class NumaAware(Plugin):
    name = "numa-aware"
    reads = Reads(annotations=(_POLICY,))
    Arguments: ClassVar[type[BaseModel]] = NumaAwareArguments

    def open(self, view: View) -> None:
        self._view = view
        self._topologies: dict[int, Topology] = {}
        for name, (_, known) in _reports(view.snapshot).items():
            node = view.nodes.facts.index.get(name)
            if node is not None and known is not None:
                self._topologies[node] = known
        #: processors that are free now, by node
        self._free: dict[int, Cpus] = {node: known.free for node, known in self._topologies.items()}
        #: node and processors of the pods that got some in this session, by row
        self._taken: dict[int, tuple[int, Cpus]] = {}
        #: what pods of a class would get, by node; dropped when its processors change
        self._answers: dict[int, dict[int, Cpus | None]] = {}
        self._count_unreported()

    def varies(self, pod: PodRecord) -> bool:
        return bool(self._topologies) and _is_guaranteed(pod.pod_class)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if not _is_guaranteed(pod.pod_class):
            return
        rows = nodes.rows.tolist()
        wanted = _wanted(pod)
        if wanted:
            matching = (self._has_policy(row, wanted) for row in rows)
            yield "node(s) didn't have the pod's NUMA topology policy", np.fromiter(matching, np.bool_, len(rows))
        aligned = (self._assignment(pod, row) is not None for row in rows)
        yield "node(s) couldn't align the pod's cpus", np.fromiter(aligned, np.bool_, len(rows))

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """Fewer NUMA nodes are better, relative to the worst of the nodes to choose from."""
        if not _wanted(pod) or not _is_guaranteed(pod.pod_class):
            return None
        counts = np.array([self._spread(pod, row) for row in nodes.rows.tolist()])
        worst = counts.max(initial=0)
        score = _SCORE - _SCORE * counts // worst if worst else np.full(len(counts), _SCORE)
        out: Vector = score.astype(np.float64) * self.arguments.weight
        return out

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        if operation.kind is not Kind.Evict:
            for pod, node in zip(operation.pods, operation.nodes, strict=True):
                if _is_guaranteed(pod.pod_class):
                    self._take(pod, node)

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            node, cpus = self._taken.pop(pod.row, (-1, frozenset()))
            if node >= 0:
                self._free[node] |= cpus
                self._answers.pop(node, None)

    def _take(self, pod: PodRecord, node: int) -> None:
        cpus = self._assignment(pod, node)
        if cpus:
            self._taken[pod.row] = node, cpus
            self._free[node] -= cpus
            self._answers.pop(node, None)

    def _count_unreported(self) -> None:
        """Give processors to pods that are on their way to a node whose report does not know them yet."""
        pods = self._view.pods
        for row in np.flatnonzero(pods.state == PodState.Binding).tolist():
            pod, node = self._view.record(row), int(pods.node[row])
            known = self._topologies.get(node)
            if known is not None and pod.key not in known.reported and _is_guaranteed(pod.pod_class):
                self._take(pod, node)

    # -- answers -------------------------------------------------------------------------------------------------

    def _has_policy(self, node: int, wanted: str) -> bool:
        known = self._topologies.get(node)
        return known is not None and known.aligns and known.topology_policy == wanted and bool(self._free[node])

    def _assignment(self, pod: PodRecord, node: int) -> Cpus | None:
        """The processors that a pod would get on a node, none where they are not pinned; None when it is refused."""
        known = self._topologies.get(node)
        if known is None or not known.aligns:
            return frozenset()
        answers = self._answers.setdefault(node, {})
        if pod.pod_class.id not in answers:
            answers[pod.pod_class.id] = self._assign(pod, known, self._free[node])
        return answers[pod.pod_class.id]

    def _assign(self, pod: PodRecord, known: Topology, free: Cpus) -> Cpus | None:
        taken: Cpus = frozenset()
        for container in pod.pod_class.spec.containers or ():
            cpus = known.assign(_whole_cpus(container), free - taken)
            if cpus is None:
                return None
            taken |= cpus
        return taken

    def _spread(self, pod: PodRecord, node: int) -> int:
        return self._topologies[node].numa_nodes(self._assignment(pod, node) or ()) if node in self._topologies else 0


def _reports(snapshot: Snapshot) -> dict[str, tuple[object, Topology | None]]:
    """What the nodes report, and how it was read, by name; what was read for the last snapshot is taken over."""
    before = cast("dict[str, tuple[object, Topology | None]]", snapshot.derived.get(NumaAware, {}))
    reports = {}
    for name, manifest in snapshot.objects.get("Numatopology", {}).items():
        known = before.get(name)
        reports[name] = known if known and known[0] is manifest else (manifest, topology.read(manifest))
    snapshot.derived[NumaAware] = reports
    return reports


def _wanted(pod: PodRecord) -> str:
    """The policy that a pod asks for, empty for none."""
    policy = pod.annotations.get(_POLICY, "")
    return "" if policy == "none" else policy


def _is_guaranteed(pod_class: PodClass) -> bool:
    """Whether every container requests all of its limits of cpu and memory: only then are processors pinned."""
    containers = [*(pod_class.spec.containers or ()), *(pod_class.spec.init_containers or ())]
    return bool(containers) and all(_requests_its_limits(container) for container in containers)


def _requests_its_limits(container: Container) -> bool:
    if container.resources is None:
        return False
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    return all(
        quantity.parse(limits.get(name, 0)) > 0
        and quantity.parse(requests.get(name, 0)) == quantity.parse(limits[name])
        for name in ("cpu", "memory")
    )


def _whole_cpus(container: Container) -> int:
    """The number of processors that a container gets for itself: none when it wants a part of one."""
    requests: Any = (container.resources and container.resources.requests) or {}
    cpus = quantity.parse(requests.get("cpu", 0))
    return int(cpus) if cpus.denominator == 1 else 0
