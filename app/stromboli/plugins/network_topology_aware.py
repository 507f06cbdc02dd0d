"""network-topology-aware: keeps the pods of a job close together, and packs HyperNodes before using empty ones.

A job with a highest tier is offered the HyperNodes up to that tier, lowest first, that can hold its minimum: for a
group those that hold all of its pods, and after them those that hold what it lacks to start. Of several, a group takes
the one that is fullest with it. Within a HyperNode, pods prefer nodes near the job's other pods; pods of jobs without
topology pack HyperNodes, so that empty ones stay free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from stromboli.api.pod_state import PodState
from stromboli.api.resources import Mask, Matrix, Rows, Vector, fits
from stromboli.fairness.resource_weights import ResourceWeights
from stromboli.framework.cluster.job import NOWHERE, Job, SubJob
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.topology import has_topology
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.plugin.operation import Operation
from stromboli.state.pods import PodRecord

_MAX_SCORE = 100
#: up to this many missing tiers are counted one by one
_FADED = 64
#: score range that separates nodes of different HyperNodes
_OF_NODES = frozenset(("batch_node_order", "neighbourhoods", "identity", "on_allocate", "on_deallocate"))


class NetworkTopologyAwareArguments(ResourceWeights):
    """Arguments of network-topology-aware.

    `hypernode.binpack.resources.NAME` sets the weight (1) of a resource that `hypernode.binpack.resources` lists.
    Negative values count as the default.
    """

    prefix: ClassVar[str] = "hypernode.binpack"

    weight: int = 1
    """Multiplies all scores; 0 disables them."""
    cpu: int = Field(default=1, alias="hypernode.binpack.cpu")
    """Weight of cpu when packing HyperNodes."""
    memory: int = Field(default=1, alias="hypernode.binpack.memory")
    """Weight of memory."""
    resources: str = Field(default="", alias="hypernode.binpack.resources")
    """Further resources that count, separated by commas."""
    normal_pods: bool = Field(default=True, alias="hypernode.binpack.normal-pod.enable")
    """Whether pods without a topology of their own pack HyperNodes too."""
    fading: float = Field(default=0.8, alias="hypernode.binpack.normal-pod.fading")
    """For those, the weight of each tier relative to the tier below; with 0 only tier 1 counts."""
    max_evicting: int = Field(default=8, alias="hypernode.gradient.evict.max-hypernodes")
    """Limit on the HyperNodes that are tried for placements with evictions."""


class NetworkTopologyAware(Plugin):
    name = "network-topology-aware"
    Arguments: ClassVar[type[BaseModel]] = NetworkTopologyAwareArguments

    def open(self, view: View) -> None:
        self._view = view
        self._tree = tree = view.topology
        nodes, arguments = view.nodes, self.arguments
        #: amounts by HyperNode, shape (dimensions, HyperNodes); `used` follows placements, the others are from the
        #: start
        self._allocatable = tree.matrix_sums(nodes.allocatable)
        self._used = tree.matrix_sums(nodes.used)
        self._idle = tree.matrix_sums(nodes.idle)
        self._future_idle = tree.matrix_sums(nodes.future_idle())
        self._lowest_tier, self._top_tier = int(tree.tiers.min()), int(tree.tiers[tree.top])
        self._scale = float(_MAX_SCORE * _or_default(arguments.weight, 1))
        weights = arguments.weights()
        self._columns = [c for c, name in enumerate(view.dimensions) if name in weights]
        self._weights = np.array([weights[view.dimensions[c]] for c in self._columns], np.float64)
        self._fading = _or_default(arguments.fading, 0.8)
        self._max_evicting = arguments.max_evicting if arguments.max_evicting > 0 else 8
        self._tiers: list[int] = np.unique(tree.tiers).tolist()
        self._steps = _weights(self._tiers, self._fading)
        if len(tree) == 1:
            # Then all nodes are equally close.
            self.silent = _OF_NODES
        self._requests: dict[str, Vector] = {}
        self._rows: dict[str, Rows] = {}
        #: the HyperNode of each node at each tier, by tier
        self._of_tier: dict[int, Rows] = {}
        #: nodes with equal numbers are in the same HyperNodes
        self._alike: Rows | None = None

    # -- accounts --------------------------------------------------------------------------------------------------

    def on_allocate(self, operation: Operation) -> None:
        self._count(operation, +1)

    def on_deallocate(self, operation: Operation) -> None:
        self._count(operation, -1)

    def _count(self, operation: Operation, sign: int) -> None:
        for node, number in Counter(operation.nodes).items():
            self._used[:, self._tree.holders(node)] += (sign * number * operation.request)[:, None]

    # -- which HyperNodes ------------------------------------------------------------------------------------------

    def hyper_node_gradient(self, of: Job | SubJob, root: int, evicting: bool) -> list[Rows]:
        if of.highest_tier is None:
            return [np.array([root], np.intp)]
        start = self._search_root(of, root)
        if start == NOWHERE:
            return []
        below = self._tree.below(start)
        eligible = below[self._tree.tiers[below] <= of.highest_tier]
        if of.allocated_hyper_node != NOWHERE:
            return self._widest(self._by_tier(eligible)) if evicting else self._by_tier(eligible)
        large = self._hold(self._minimum(of), evicting)[eligible]
        gradients, smaller = self._by_tier(eligible[large]), list[Rows]()
        if isinstance(of, SubJob) and self._view.rules.what_fits and not large.all():
            enough = self._hold(self._minimum(of, lacking=True), evicting)[eligible]
            smaller = self._by_tier(eligible[enough & ~large])
        return self._widest(smaller + gradients) if evicting else gradients + smaller

    def _by_tier(self, hyper_nodes: Rows) -> list[Rows]:
        tiers = self._tree.tiers[hyper_nodes]
        return [hyper_nodes[tiers == tier] for tier in np.unique(tiers)]

    def _search_root(self, of: Job | SubJob, root: int) -> int:
        """The HyperNode below which to search: `root`, or less if a running job may not grow beyond it.

        NOWHERE if none satisfies both.
        """
        tree, held = self._tree, of.allocated_hyper_node
        if held == NOWHERE:
            return root
        allowed = [h for h in tree.ancestors(held) if tree.tiers[h] <= (of.highest_tier or 0)]
        if not allowed:
            return NOWHERE
        widest = allowed[-1]
        common = tree.lca(root, widest)
        if common == widest:
            return root
        return widest if common == root else NOWHERE

    def _hold(self, least: Vector, evicting: bool) -> Mask:
        """Mask of HyperNodes that fit an amount as a whole, shape (HyperNodes,)."""
        if evicting:
            return fits(least, self._allocatable)
        always = self._view.nodes.always
        return fits(least, self._idle, always) | fits(least, self._future_idle, always)

    def _minimum(self, of: Job | SubJob, *, lacking: bool = False) -> Vector:
        """The minResources of a job; for a group the requests of all pending pods, or of as many as it is `lacking`."""
        view = self._view
        if isinstance(of, Job):
            return np.zeros(len(view.dimensions)) if of.min_resources is None else of.min_resources
        rows = self._rows_of(of)
        waiting = rows[view.pods.state[rows] == PodState.Pending]
        requests = view.requests(waiting)
        if lacking:
            # Of each resource the smallest requests, whichever pods these are of.
            requests = np.sort(requests, axis=0)[: max(0, of.min_available - of.ready_count)]
        total: Vector = requests.sum(axis=0)
        return total

    def _widest(self, gradients: list[Rows]) -> list[Rows]:
        """The gradients from the highest tier down, with the number of HyperNodes limited."""
        left, out = self._max_evicting, []
        for gradient in reversed(gradients):
            out.append(gradient[-left:])
            left -= len(out[-1])
            if left == 0:
                break
        return out

    # -- scores of HyperNodes --------------------------------------------------------------------------------------

    def hyper_node_order(self, sub_job: SubJob, hyper_nodes: Rows) -> Vector:
        scores = self._fullness(self._request_of(sub_job), hyper_nodes)
        best = scores == scores.max(initial=0.0)
        if best.sum() > 1:
            pods = np.bincount(self._nodes_of(sub_job), minlength=len(self._tree.lowest)).astype(np.float64)
            scores[best] += self._tree.sums(pods)[hyper_nodes[best]] / sub_job.size
        return self._scale * scores

    def hyper_node_order_with(self, sub_job: SubJob, hyper_nodes: Rows, requested: Matrix) -> Vector:
        return self._scale * self._fullness(self._request_of(sub_job), hyper_nodes, requested)

    def _fullness(self, request: Vector, hyper_nodes: Rows | slice, more: Matrix | None = None) -> Vector:
        """Utilization of HyperNodes with a request, given additional free amounts, 0 to 1; 0 where it does not fit."""
        asked = request[self._columns] > 0
        columns, weights = np.array(self._columns, np.intp)[asked], self._weights[asked]
        whole = self._allocatable[:, hyper_nodes][columns]
        used = self._used[:, hyper_nodes][columns] + request[columns][:, None]
        if more is not None:
            used += more[columns]
        if weights.sum() <= 0:
            return np.zeros(whole.shape[1])
        share = np.divide(used, whole, out=np.zeros_like(used), where=whole > 0)
        # summed resource by resource, so that a HyperNode's score does not depend on the number of HyperNodes
        scores: Vector = sum((w * of for w, of in zip(weights, share, strict=True)), np.zeros(whole.shape[1]))
        scores /= weights.sum()
        scores[(used > whole).any(axis=0)] = 0.0
        return scores

    def _request_of(self, sub_job: SubJob) -> Vector:
        """The requests of all pods of a group, including running ones."""
        found = self._requests.get(sub_job.uid)
        if found is None:
            found = self._view.requests(self._rows_of(sub_job)).sum(axis=0)
            self._requests[sub_job.uid] = found
        return found

    def _rows_of(self, sub_job: SubJob) -> Rows:
        found = self._rows.get(sub_job.uid)
        if found is None:
            found = self._rows[sub_job.uid] = self._view.rows(sub_job)
        return found

    def _nodes_of(self, sub_job: SubJob) -> Rows:
        """The nodes of the placed pods of a group."""
        nodes = self._view.pods.node[self._rows_of(sub_job)]
        return nodes[nodes >= 0].astype(np.intp)

    # -- scores of nodes -------------------------------------------------------------------------------------------

    def identity(self, pod: PodRecord) -> bool | None:
        """Whether its placements change scores of neighbouring nodes; the location of its group is read for each
        pod."""
        job = self._view.job_of(pod)
        return None if job is None else has_topology(job)

    def batch_node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
        job = self._view.jobs.get(pod.job)
        if job is None or self._scale == 0:
            return None
        sub_job = self._view.sub_job_of(job, pod)
        if sub_job.network_topology is None:
            scores = self._packed(pod, nodes.rows) if self.arguments.normal_pods else None
        else:
            scores = self._close(sub_job, nodes.rows) if sub_job.anchor != NOWHERE else None
        if scores is None or (scores == scores[0]).all():
            return None
        return self._scale * scores

    def neighbourhoods(self, pod: PodRecord) -> Rows | None:
        if pod.job not in self._view.jobs or self._scale == 0 or len(self._tree) == 1:
            return None
        if self._alike is None:
            columns = np.stack([self._at(tier) for tier in self._tiers])
            self._alike = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
        return self._alike

    def _close(self, sub_job: SubJob, rows: Rows) -> Vector:
        """Closeness of nodes to the placed pods of a group, 0 to 1, then the number of those pods on each."""
        tree, anchor = self._tree, sub_job.anchor
        spread = self._top_tier - self._lowest_tier
        of_hyper_node = np.ones(len(tree)) if spread == 0 else (self._top_tier - tree.lca_tiers(anchor)) / spread
        of_hyper_node[anchor] = 1.0
        lowest = tree.lowest[rows]
        scores = np.where(lowest == NOWHERE, 0.0, of_hyper_node[lowest])
        best = scores == scores.max(initial=0.0)
        if best.sum() > 1:
            inside = np.bincount(tree.lowest[self._nodes_of(sub_job)] + 1, minlength=len(tree) + 1)
            inside[NOWHERE + 1] = 0
            scores[best] += inside[lowest[best] + 1] / sub_job.size
        return scores

    def _packed(self, pod: PodRecord, rows: Rows) -> Vector:
        """Utilization of the HyperNodes of nodes with a pod, over all tiers, 0 to 1; nodes outside of any count as
        full."""
        fullness = self._fullness(self._view.request(pod), slice(None))
        total, total_weight = np.zeros(len(rows)), 0.0
        for tier, weight in self._steps:
            if tier is None:
                total += weight
            else:
                hyper_nodes = self._at(tier)[rows]
                total += weight * np.where(hyper_nodes == NOWHERE, 1.0, fullness[hyper_nodes])
            total_weight += weight
        return total / total_weight

    def _at(self, tier: int) -> Rows:
        found = self._of_tier.get(tier)
        if found is None:
            found = self._of_tier[tier] = self._tree.of_tier(tier)
        return found


def _weights(tiers: list[int], fading: float) -> list[tuple[int | None, float]]:
    """The weight of each tier, from the lowest to the top; None for tiers without HyperNodes."""
    try:
        steps = list(_faded(tiers, fading, 1))
    except OverflowError:
        steps = []
    if any(weight for _, weight in steps):
        return steps
    # Beyond the range of floats: weights relative to the largest.
    return list(_faded(tiers, fading, tiers[-1] if fading > 1 else tiers[0]))


def _faded(tiers: list[int], fading: float, first: int) -> Iterator[tuple[int | None, float]]:
    """The weights of tiers, where tier `first` has 1."""
    yield tiers[0], _weight(tiers[0], fading, first)
    for below, tier in pairwise(tiers):
        near = min(tier, below + _FADED)
        for missing in range(below + 1, near):
            yield None, _weight(missing, fading, first)
        if near < tier:
            # A geometric series, from its largest term.
            most, ratio = (near, fading) if fading <= 1 else (tier - 1, 1 / fading)
            series = tier - near if ratio == 1 else (1 - ratio ** (tier - near)) / (1 - ratio)
            yield None, _weight(most, fading, first) * series
        yield tier, _weight(tier, fading, first)


def _weight(tier: int, fading: float, first: int) -> float:
    # With fading 0, tier 0 counts as tier 1, since it has no other weight.
    return fading ** max(tier - first, 0) if fading == 0 else fading ** (tier - first)


def _or_default(value: float, default: float) -> float:
    return default if value < 0 else value
