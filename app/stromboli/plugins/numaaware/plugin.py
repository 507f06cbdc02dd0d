"""The plugin: which nodes can align a pod's CPUs, which do it best, and which pods use which CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from pydantic import BaseModel

from stromboli.api import quantity
from stromboli.api.objects import Container
from stromboli.api.pod_state import PodState
from stromboli.api.requests import pod_level
from stromboli.api.resources import Rows, Vector
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.causes import Filters
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.plugins.numaaware import topology
from stromboli.plugins.numaaware.kinds import INDIFFERENT, REFUSED, UNCLEAR, Kinds, Wanted, kind_of
from stromboli.plugins.numaaware.kinds import Kind as NodeKind
from stromboli.plugins.numaaware.topology import Cpus, Topology
from stromboli.state.classes import PodClass
from stromboli.state.plain import NO_OBJECTS, PlainObjects
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
    spellings = ("numaaware",)
    reads = Reads(annotations=(_POLICY,))
    Arguments: ClassVar[type[BaseModel]] = NumaAwareArguments

    def open(self, view: View) -> None:
        self._view = view
        self._topologies: dict[int, Topology] = {}
        self._kinds = Kinds()
        #: number of each node's kind, shape (nodes,)
        self._kind_of: Rows = np.full(len(view.nodes), self._kinds.number(INDIFFERENT))
        for name, report in _reports(view.snapshot).items():
            node = view.nodes.facts.index.get(name)
            if node is not None and report.topology is not None:
                self._topologies[node] = report.topology
                self._kind_of[node] = self._kinds.number(report.kind)
        #: CPUs that are free now, by node, if they differ from the report
        self._free: dict[int, Cpus] = {}
        #: node and CPUs of the pods placed in this session, by row
        self._taken: dict[int, tuple[int, Cpus]] = {}
        #: by pod class: the exclusive CPUs of containers, None if they share CPUs
        self._wants: dict[int, Wanted | None] = {}
        self._count_unreported()

    def varies_on_node(self, pod: PodRecord) -> bool:
        return bool(self._topologies) and self._wanted(pod) is not None

    def by_class(self, pod: PodRecord) -> bool:
        return not self.varies_on_node(pod)

    def predicate(self, pod: PodRecord, nodes: NodeView) -> Filters:
        if self._wanted(pod) is None:
            return
        policy = _policy(pod)
        if policy:
            matching = self._kinds.with_policy(policy)[self._kind_of[nodes.rows]]
            yield "node(s) didn't have the pod's NUMA topology policy", matching
        yield "node(s) couldn't align the pod's cpus", self._spreads(pod, nodes.rows) >= 0

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        """Fewer NUMA nodes are better, relative to the worst candidate node."""
        if not _policy(pod) or self._wanted(pod) is None:
            return None
        counts = np.maximum(self._spreads(pod, nodes.rows), 0)
        worst = counts.max(initial=0)
        score = _SCORE - _SCORE * counts // worst if worst else np.full(len(counts), _SCORE)
        out: Vector = score.astype(np.float64) * self.arguments.weight
        return out

    # -- accounts ------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        if operation.kind is not Kind.Evict:
            for pod, node in zip(operation.pods, operation.nodes, strict=True):
                if self._wanted(pod) is not None:
                    self._take(pod, node)

    def on_deallocate(self, operation: Operation) -> None:
        for pod in operation.pods:
            node, cpus = self._taken.pop(pod.row, (-1, frozenset()))
            if node >= 0:
                self._set_free(node, self._free_on(node) | cpus)

    def _take(self, pod: PodRecord, node: int) -> None:
        cpus = self._assignment(pod, node)
        if cpus:
            self._taken[pod.row] = node, cpus
            self._set_free(node, self._free_on(node) - cpus)

    def _free_on(self, node: int) -> Cpus:
        found = self._free.get(node)
        return self._topologies[node].free if found is None else found

    def _set_free(self, node: int, free: Cpus) -> None:
        self._free[node] = free
        self._kind_of[node] = self._kinds.number(kind_of(self._topologies[node], free))

    def _count_unreported(self) -> None:
        """Assign CPUs to pods that are on their way to a node whose report does not include them yet."""
        pods = self._view.pods
        for row in np.flatnonzero(pods.state == PodState.Binding).tolist():
            pod, node = self._view.record(row), int(pods.node[row])
            known = self._topologies.get(node)
            if known is not None and pod.key not in known.reported and self._wanted(pod) is not None:
                self._take(pod, node)

    # -- answers -------------------------------------------------------------------------------------------------

    def _wanted(self, pod: PodRecord) -> Wanted | None:
        """The number of exclusive CPUs of each container; None if the pod shares CPUs."""
        pod_class = pod.pod_class
        if pod_class.id not in self._wants:
            counts = map(_whole_cpus, pod_class.spec.containers or ())
            self._wants[pod_class.id] = tuple(filter(None, counts)) if _is_guaranteed(pod_class) else None
        return self._wants[pod_class.id]

    def _spreads(self, pod: PodRecord, nodes: Rows) -> Rows:
        """The number of NUMA nodes of the pod's CPUs, negative where it is refused; shape (nodes,)."""
        spreads = self._kinds.spreads(self._wanted(pod) or ())[self._kind_of[nodes]]
        for at in np.flatnonzero(spreads == UNCLEAR).tolist():
            node = int(nodes[at])
            cpus = self._assignment(pod, node)
            spreads[at] = REFUSED if cpus is None else self._topologies[node].numa_nodes(cpus)
        return spreads

    def _assignment(self, pod: PodRecord, node: int) -> Cpus | None:
        """The CPUs that a pod would get on a node, none where they are not pinned; None if it is refused."""
        known = self._topologies.get(node)
        if known is None or not known.aligns:
            return frozenset()
        free, taken = self._free_on(node), frozenset[int]()
        for count in self._wanted(pod) or ():
            cpus = known.assign(count, free - taken)
            if cpus is None:
                return None
            taken |= cpus
        return taken


class _Report(NamedTuple):
    """The report of a node."""

    topology: Topology | None
    kind: NodeKind


def _reports(snapshot: Snapshot) -> dict[str, _Report]:
    """The reports of nodes by name; unchanged ones are taken over from the last snapshot."""
    plain = snapshot.objects.get("Numatopology", NO_OBJECTS)
    before, reports = cast("tuple[PlainObjects, dict[str, _Report]]", snapshot.derived.get(NumaAware, (NO_OBJECTS, {})))
    changed = plain.changed_since(before)
    if changed:
        reports = reports.copy()
        for name in changed:
            reports.pop(name, None)
            if name in plain:
                reports[name] = _read(plain[name])
    snapshot.derived[NumaAware] = plain, reports
    return reports


def _read(manifest: Mapping[str, Any]) -> _Report:
    known = topology.read(manifest)
    return _Report(known, INDIFFERENT if known is None else kind_of(known, known.free))


def _policy(pod: PodRecord) -> str:
    """The topology policy that a pod requires, empty for none."""
    policy = pod.annotations.get(_POLICY, "")
    return "" if policy == "none" else policy


def _is_guaranteed(pod_class: PodClass) -> bool:
    """Whether every container's requests equal its limits of cpu and memory, which pinning requires.

    CPUs of pods with pod-level resources are not pinned.
    """
    spec = pod_class.spec
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    whole = pod_level(spec, "requests") or pod_level(spec, "limits")
    return bool(containers) and not whole and all(_requests_its_limits(container) for container in containers)


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
    """The number of exclusive CPUs of a container: none for a fractional request."""
    requests: Any = (container.resources and container.resources.requests) or {}
    cpus = quantity.parse(requests.get("cpu", 0))
    return int(cpus) if cpus.denominator == 1 else 0
