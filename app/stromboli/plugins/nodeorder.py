"""nodeorder: kube-scheduler's scores, each with a weight."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.resources import CPU, MEMORY, Matrix, Vector
from stromboli.framework.cluster.nodes import Changes, Nodes, NodeView, part_requested
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Arguments, Plugin
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.kube import allocation, node_affinity, taints
from stromboli.kube.images import image_locality
from stromboli.kube.interpod import InterPod
from stromboli.kube.placed import PlacedPods
from stromboli.kube.selector_spread import SelectorSpread, is_spread
from stromboli.kube.spread import Spread
from stromboli.state.pods import PodRecord
from stromboli.state.reads import Reads

_GPU = "nvidia.com/gpu"
#: for fewer nodes computing the balance is faster than caching it
_MANY = 64


class NodeOrderArguments(Arguments):
    """Weights of the scores; 0 disables a score."""

    least_requested: int = Field(default=1, alias="leastrequested.weight")
    """Prefers nodes with more free cpu and memory (LeastAllocated)."""
    most_requested: int = Field(default=0, alias="mostrequested.weight")
    """Prefers nodes with less free cpu and memory (MostAllocated)."""
    balanced_resource: int = Field(default=1, alias="balancedresource.weight")
    """Prefers nodes whose cpu, memory and GPUs are used more evenly with the pod than without (BalancedAllocation)."""
    node_affinity: int = Field(default=2, alias="nodeaffinity.weight")
    """Preferred node affinity."""
    pod_affinity: int = Field(default=2, alias="podaffinity.weight")
    """Preferred inter-pod affinity and anti-affinity."""
    taint_toleration: int = Field(default=3, alias="tainttoleration.weight")
    """Prefers nodes without untolerated PreferNoSchedule taints."""
    image_locality: int = Field(default=1, alias="imagelocality.weight")
    """Prefers nodes that have the images already (ImageLocality)."""
    pod_topology_spread: int = Field(default=2, alias="podtopologyspread.weight")
    """Topology spread constraints with ScheduleAnyway; replicas without constraints over nodes and zones."""
    selector_spread: int = Field(default=0, alias="selectorspread.weight")
    """Prefers nodes and zones with fewer pods of the same PodGroup, for pods without spread constraints."""


class Promises:
    """The requests on nodes as scores count them: nominated pods are included, evicted ones are not."""

    def __init__(self, view: View) -> None:
        self._shape = view.nodes.used.shape
        #: added to the used amounts of nodes; None while no pod was nominated or evicted
        self._used: Matrix | None = None
        self._scoring: Matrix | None = None

    def change(self, operation: Operation, sign: int) -> None:
        """Add pods to their nodes (1) or remove them (-1)."""
        if operation.kind is Kind.Allocate:
            return
        if self._used is None or self._scoring is None:
            self._used, self._scoring = np.zeros(self._shape), np.zeros((2, self._shape[1]))
        for node in operation.nodes:
            if node < 0:
                continue
            self._used[:, node] += sign * operation.request
            if operation.kind is Kind.Evict:
                self._scoring[:, node] += np.multiply(operation.pods[0].pod_class.scoring_request, sign)

    def used(self, nodes: NodeView) -> Matrix:
        """Requests of pods on nodes, shape (dimensions, n)."""
        return nodes.used if self._used is None else nodes.used + self._used[:, nodes.rows]

    def __bool__(self) -> bool:
        """Whether any pod was nominated or evicted so far."""
        return self._used is not None

    def fullness(self, nodes: NodeView, cpu: float, memory: float) -> Matrix:
        """The requested shares of cpu and memory with an additional request, shape (2, n)."""
        if self._used is None:
            return nodes.fullness(cpu, memory)
        return part_requested(self.used(nodes), nodes.basic_allocatable, cpu, memory)

    def evenness(self, nodes: NodeView) -> Vector:
        """The evenness of cpu and memory without the pod, shape (n,)."""
        return allocation.evenness(self.used(nodes)[:2] / nodes.basic_allocatable)

    def evenness_of(self, nodes: Nodes, row: int) -> float:
        """The evenness of one node."""
        used = nodes.used[:2, row].tolist()
        if self._used is not None:
            used = [has + more for has, more in zip(used, self._used[:2, row].tolist(), strict=True)]
        cpu, memory = nodes.allocatable[:2, row].tolist()
        return allocation.evenness_of_one(used[CPU] / cpu, used[MEMORY] / memory)

    def scoring(self, nodes: NodeView) -> Matrix:
        """The allocatable cpu and memory for scoring, shape (2, n)."""
        return nodes.scoring if self._scoring is None else nodes.scoring + self._scoring[:, nodes.rows]


class Evenness:
    """The evenness of cpu and memory of each node, recomputed on demand for changed nodes."""

    def __init__(self, nodes: Nodes, amounts: Promises) -> None:
        self._nodes = nodes
        self._amounts = amounts
        self._changes = Changes(nodes)
        #: of all nodes, shape (nodes,)
        self._known: Vector | None = None

    def of(self, view: NodeView) -> Vector:
        """The evenness of some nodes, shape (n,); it must not be changed."""
        if view.imagined or len(view) < _MANY:
            return self._amounts.evenness(view)
        known = self._up_to_date()
        return known if len(view) == len(known) else known.take(view.rows)

    def _up_to_date(self) -> Vector:
        changed = self._changes.take()
        if self._known is None or len(changed) >= _MANY:
            self._known = self._amounts.evenness(self._nodes.view(self._nodes.rows))
        else:
            for row in changed:
                self._known[row] = self._amounts.evenness_of(self._nodes, row)
        return self._known


@dataclass(slots=True)
class ScoredRequest:
    """The request of a pod class, in the forms that scores need."""

    #: cpu and memory with defaults, shape (2, 1)
    scoring: Matrix
    #: the resources to balance; None if the pod requests none of them
    balanced: slice | list[int] | None
    #: zeros and the request of those, shape (2, k, 1); None if these are cpu and memory, which all nodes have
    cases: Matrix | None
    #: the requests of cpu and memory
    cpu: float
    memory: float
    #: image locality score, shape (nodes,); None if all are equal
    images: Vector | None


class NodeOrder(Plugin):
    name = "nodeorder"
    #: labels and namespaces matter to terms between pods, which make pods vary
    reads = Reads(whole=True)
    Arguments: ClassVar[type[BaseModel]] = NodeOrderArguments

    def open(self, view: View) -> None:
        self._request = view.request
        self._facts = view.nodes.facts
        self._complete = bool(view.nodes.allocatable[:2].all())
        self._gpu = view.dimensions.index(_GPU) if _GPU in view.dimensions else -1
        self._asks: dict[int, ScoredRequest] = {}
        self._amounts = amounts = Promises(view)
        self._evenness = Evenness(view.nodes, amounts)
        self._placed = PlacedPods(view)
        self._inter_pod = InterPod(view, self._placed)
        if not (self.arguments.pod_affinity and self._inter_pod.any_prefers):
            self.silent = frozenset(("identity",))
        self._spread = Spread(view, self._placed)
        self._selector_spread = SelectorSpread(view, self._placed)

    def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        weights, ask, total = self.arguments, self._ask(pod), None
        if weights.least_requested or weights.most_requested:
            requested, allocatable = self._amounts.scoring(nodes) + ask.scoring, nodes.basic_allocatable
            if weights.least_requested:
                left = allocation.least_allocated(requested, allocatable, complete=self._complete)
                total = _added(total, weights.least_requested, left)
            if weights.most_requested:
                used = allocation.most_allocated(requested, allocatable, complete=self._complete)
                total = _added(total, weights.most_requested, used)
        if weights.balanced_resource and ask.balanced is not None:
            total = _added(total, weights.balanced_resource, self._balanced(nodes, ask, ask.balanced))
        if ask.images is not None:
            total = _added(total, weights.image_locality, ask.images[nodes.rows])
        return total

    def _balanced(self, nodes: NodeView, ask: ScoredRequest, columns: slice | list[int]) -> Vector:
        if ask.cases is None:
            even = allocation.evenness(self._amounts.fullness(nodes, ask.cpu, ask.memory))
            return allocation.evened_out(self._evenness.of(nodes), even)
        return allocation.balanced(ask.cases, self._amounts.used(nodes)[columns], nodes.allocatable[columns])

    def by_amounts(self, pod: PodRecord) -> bool:
        return self._ask(pod).images is None and not self._amounts

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        weights = self.arguments
        spec = pod.pod_class.spec
        total: Vector | None = None
        if weights.node_affinity:
            total = _added(total, weights.node_affinity, _scaled(node_affinity.preference(spec, nodes.facts), nodes))
        if weights.taint_toleration:
            unwanted = _scaled(taints.unwanted(spec.tolerations or (), nodes.facts), nodes)
            total = _added(total, -weights.taint_toleration, unwanted)
        if weights.pod_affinity:
            total = _added(total, weights.pod_affinity, _stretched(self._inter_pod.preference(pod), nodes))
        if weights.pod_topology_spread:
            total = _added(total, weights.pod_topology_spread, self._spread.scores(pod, nodes.rows))
        if weights.selector_spread:
            total = _added(total, weights.selector_spread, self._selector_spread.scores(pod, nodes.rows))
        return total

    def identity(self, pod: PodRecord) -> Hashable:
        """Pods of a class differ by the preferred terms that select them."""
        return self._inter_pod.preferring(pod)

    def varies_on_node(self, pod: PodRecord) -> bool:
        weights, pod_class = self.arguments, pod.pod_class
        return bool(
            (weights.pod_affinity and pod_class.spec.affinity and self._inter_pod.prefers(pod))
            or (weights.pod_topology_spread and self._spread.prefers(pod))
            or (weights.selector_spread and is_spread(pod))
        )

    def by_class(self, pod: PodRecord) -> bool:
        return not self.varies_on_node(pod)

    def on_allocate(self, operation: Operation) -> None:
        self._placed.add(operation)
        self._amounts.change(operation, 1)

    def on_deallocate(self, operation: Operation) -> None:
        self._placed.remove(operation)
        self._amounts.change(operation, -1)

    def _ask(self, pod: PodRecord) -> ScoredRequest:
        pod_class = pod.pod_class
        ask = self._asks.get(pod_class.id)
        if ask is None:
            request = self._request(pod)
            # Reading single numbers from lists is faster than from arrays.
            amounts = request.tolist()
            gpus = amounts[self._gpu] if self._gpu >= 0 else 0.0
            columns: slice | list[int] = [CPU, MEMORY, self._gpu] if gpus else slice(0, 2)
            plain = self._complete and not gpus
            images = image_locality(pod_class.spec, self._facts) if self.arguments.image_locality else None
            ask = self._asks[pod_class.id] = ScoredRequest(
                scoring=np.array(pod_class.scoring_request)[:, None],
                balanced=columns if amounts[CPU] or amounts[MEMORY] or gpus else None,
                cases=None if plain else allocation.without_and_with(request[columns]),
                cpu=amounts[CPU],
                memory=amounts[MEMORY],
                images=images,
            )
        return ask


def _scaled(scores: Vector | None, nodes: NodeView) -> Vector | None:
    """Scores of candidate nodes, scaled so that the maximum is 100; None if all are equal."""
    if scores is None:
        return None
    chosen = scores[nodes.rows]
    highest = chosen.max(initial=0.0)
    if highest <= 0 or (chosen == highest).all():
        return None
    chosen *= 100.0
    chosen /= highest
    return np.floor(chosen, out=chosen)


def _stretched(scores: Vector | None, nodes: NodeView) -> Vector | None:
    """Scores of candidate nodes, scaled to the range 0 to 100; None if all are equal."""
    if scores is None:
        return None
    chosen = scores[nodes.rows]
    lowest, highest = chosen.min(initial=np.inf), chosen.max(initial=-np.inf)
    if highest <= lowest:
        return None
    chosen -= lowest
    chosen /= highest - lowest
    chosen *= 100.0
    return np.floor(chosen, out=chosen)


def _added(total: Vector | None, weight: int, scores: Vector | None) -> Vector | None:
    """The total with weighted scores, which may be overwritten."""
    if scores is None:
        return total
    if weight != 1:
        scores = scores * weight
    if total is None:
        return scores
    total += scores
    return total
