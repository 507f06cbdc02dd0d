"""The tree of HyperNodes: which nodes are close together, and which domains hold which.

HyperNodes are numbered by ascending tier, then name. Above them all is a virtual one over every node, the last number.
A tree depends on HyperNodes and their nodes alone, so it is kept while these stay the same.

A HyperNode has one parent. A member that is missing, already belongs to another HyperNode or would close a cycle is
left out and named in `problems`; everything else stays usable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from stromboli.api import crds
from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.framework.cluster.job import NOWHERE, Groups, Job, SubJob
from stromboli.framework.cluster.members import Members, members_of
from stromboli.state.nodes import NodeFacts

#: the name of the virtual HyperNode over all nodes
TOP_NAME = "<cluster-top-hypernode>"
#: below all tiers
NO_TIER = -1
#: levels of a tree; a HyperNode is compared with all above it
_MOST_LEVELS = 64


class Topology:
    """The tree of HyperNodes. HyperNodes and nodes are referred to by index, NOWHERE is none."""

    __slots__ = (
        "_ancestors",
        "_below",
        "_flat",
        "_held_by",
        "_lca_tiers",
        "_owner",
        "_size",
        "_starts",
        "_starts_of_nodes",
        "disjoint",
        "index",
        "lowest",
        "names",
        "parents",
        "problems",
        "tier_by_name",
        "tiers",
        "top",
    )

    def __init__(self, ordered: list[crds.HyperNode], nodes: list[Rows], size: int, levels: int = 0) -> None:
        """HyperNodes by ascending tier and name, and the nodes that each names itself, out of `size` nodes.

        There are at least `levels` tiers below the virtual HyperNode.
        """
        self.names = [h.metadata.name for h in ordered]
        self.top = len(self.names)
        top_tier = max([h.spec.tier for h in ordered], default=levels) + 1
        self.names.append(TOP_NAME)
        #: tier of each, shape (HyperNodes,)
        self.tiers: npt.NDArray[np.int64] = np.array([*(h.spec.tier for h in ordered), top_tier])
        self.index = {name: i for i, name in enumerate(self.names)}
        self.tier_by_name = {h.spec.tier_name: h.spec.tier for h in ordered if h.spec.tier_name}
        #: problems of the HyperNodes, a line each
        self.problems: list[str] = []
        self.parents, children = self._tree(ordered)
        self._size = size
        # Memberships are kept as pairs: a narrow level may have as many HyperNodes as there are nodes.
        held = [*self._inherited(nodes, children), np.arange(size)]
        #: the HyperNode and the node of each membership, by HyperNode and then node, and where each HyperNode's begin
        self._owner: Rows = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        self._flat: Rows = np.concatenate(held).astype(np.intp)
        self._starts: Rows = np.searchsorted(self._owner, np.arange(len(held) + 1))
        #: the HyperNodes that hold nodes, by node, and where each node's begin
        by_node = np.argsort(self._flat, kind="stable")
        self._held_by: Rows = self._owner[by_node]
        self._starts_of_nodes: Rows = np.searchsorted(self._flat[by_node], np.arange(size + 1))
        #: the HyperNode of the lowest tier there is that each node is in, NOWHERE for those in none, shape (nodes,)
        self.lowest: Rows = self.of_tier(int(self.tiers.min()))
        #: whether no node is in two HyperNodes of the lowest tier
        in_lowest = self._flat[self.tiers[self._owner] == self.tiers.min()]
        self.disjoint = bool((np.bincount(in_lowest, minlength=size) <= 1).all())
        self._ancestors: dict[int, list[int]] = {NOWHERE: []}
        self._below: dict[int, Rows] = {}
        self._lca_tiers: dict[int, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def name(self, hyper_node: int) -> str:
        """The name of a HyperNode, empty for none."""
        return "" if hyper_node == NOWHERE else self.names[hyper_node]

    # -- the tree ----------------------------------------------------------------------------------------------------

    def ancestors(self, hyper_node: int) -> list[int]:
        """A HyperNode and its ancestors, upwards."""
        found = self._ancestors.get(hyper_node)
        if found is None:
            chain = [hyper_node]
            while chain[-1] not in self._ancestors:
                chain.append(self.parents[chain[-1]])
            found = self._ancestors[hyper_node] = [*chain[:-1], *self._ancestors[chain[-1]]]
        return found

    def lca(self, a: int, b: int) -> int:
        """The lowest HyperNode that holds both; with NOWHERE it is the other one."""
        if NOWHERE in (a, b):
            return max(a, b)
        above = self.ancestors(a)
        return next(h for h in self.ancestors(b) if h in above)

    def lca_tiers(self, hyper_node: int) -> npt.NDArray[np.int64]:
        """The tier of the lowest common ancestor of one HyperNode with each of all, shape (HyperNodes,)."""
        found = self._lca_tiers.get(hyper_node)
        if found is None:
            common = [self.lca(other, hyper_node) for other in range(len(self))]
            found = self._lca_tiers[hyper_node] = self.tiers[common]
        return found

    def below(self, hyper_node: int) -> Rows:
        """A HyperNode and its descendants, by ascending tier."""
        found = self._below.get(hyper_node)
        if found is None:
            found = self._below[hyper_node] = np.array(
                [other for other in range(len(self)) if hyper_node in self.ancestors(other)], np.intp
            )
        return found

    # -- nodes -------------------------------------------------------------------------------------------------------

    def holders(self, node: int) -> Rows:
        """The HyperNodes that hold a node, in ascending order."""
        return self._held_by[self._starts_of_nodes[node] : self._starts_of_nodes[node + 1]]

    def nodes(self, hyper_node: int) -> Rows:
        """The nodes that a HyperNode holds, in ascending order."""
        return self._flat[self._starts[hyper_node] : self._starts[hyper_node + 1]]

    def mask(self, hyper_node: int) -> Mask:
        """Mask of a HyperNode's nodes, shape (nodes,)."""
        mask = np.zeros(self._size, np.bool_)
        mask[self.nodes(hyper_node)] = True
        return mask

    def around(self, nodes: Rows) -> int:
        """The HyperNode of the lowest tier that holds all of some nodes; NOWHERE when there are none."""
        if not len(nodes):
            return NOWHERE
        some = np.zeros(self._size)
        some[nodes] = 1
        return int(np.argmax(self.sums(some) == some.sum()))

    def of_tier(self, tier: int) -> Rows:
        """The HyperNode of a tier that each node is in, NOWHERE for those in none, shape (nodes,)."""
        found, of_tier = np.full(self._size, NOWHERE, np.intp), self.tiers[self._owner] == tier
        # Of several the first counts, which is assigned last.
        found[self._flat[of_tier][::-1]] = self._owner[of_tier][::-1]
        return found

    def sums(self, of_nodes: Vector) -> Vector:
        """The sum over the nodes of each HyperNode, shape (HyperNodes,), of a value per node."""
        return np.bincount(self._owner, weights=of_nodes[self._flat], minlength=len(self)).astype(np.float64)

    def matrix_sums(self, of_nodes: Matrix) -> Matrix:
        """The sums by HyperNode for each row of a matrix, shape (rows, HyperNodes)."""
        if len(self) == 1:
            whole: Matrix = of_nodes.sum(axis=1, keepdims=True)
            return whole
        return np.stack([self.sums(row) for row in of_nodes])

    # -- building ----------------------------------------------------------------------------------------------------

    def _tree(self, ordered: list[crds.HyperNode]) -> tuple[list[int], list[list[int]]]:
        parents = [NOWHERE] * len(self.names)
        children: list[list[int]] = [[] for _ in self.names]
        #: number of levels of each, its own among them
        levels = [1] * len(self.names)
        for parent, hyper_node in enumerate(ordered):
            for member in hyper_node.spec.members:
                exact = member.selector.exact_match
                if member.type != "HyperNode" or exact is None:
                    continue
                problem = self._adoption_problem(parent, self.index.get(exact.name, NOWHERE), parents, levels)
                if problem:
                    self.problems.append(f"HyperNode {self.names[parent]}: member {exact.name}: {problem}")
                    continue
                child = self.index[exact.name]
                parents[child] = parent
                children[parent].append(child)
                above, height = parent, levels[child] + 1
                while above != NOWHERE and levels[above] < height:
                    levels[above] = height
                    above, height = parents[above], height + 1
        for child in range(self.top):
            if parents[child] == NOWHERE:
                parents[child] = self.top
        return parents, children

    def _adoption_problem(self, parent: int, child: int, parents: list[int], levels: list[int]) -> str:
        if child == NOWHERE:
            return "there is no such HyperNode"
        if parents[child] not in (NOWHERE, parent):
            return f"already belongs to {self.names[parents[child]]}"
        above, height = parent, levels[child]
        while above != NOWHERE:
            if above == child:
                return "holds this HyperNode itself"
            above, height = parents[above], height + 1
        return f"would be more than {_MOST_LEVELS} levels" if height > _MOST_LEVELS else ""

    def _inherited(self, named: list[Rows], children: list[list[int]]) -> list[Rows]:
        """The nodes that each HyperNode names or has by those below it, in ascending order."""
        found = [np.unique(rows) for rows in named]
        missing = [len(below) for below in children]
        complete = [hyper_node for hyper_node in range(self.top) if not missing[hyper_node]]
        for hyper_node in complete:
            if children[hyper_node]:
                below = [found[child] for child in children[hyper_node]]
                found[hyper_node] = np.unique(np.concatenate([found[hyper_node], *below]))
            parent = self.parents[hyper_node]
            if parent != self.top:
                missing[parent] -= 1
                if not missing[parent]:
                    complete.append(parent)
        return found


@dataclass(slots=True, eq=False)
class _Kept:
    """A tree with the inputs that it was derived from."""

    specs: Mapping[str, crds.HyperNodeSpec]
    facts: NodeFacts
    members: Mapping[str, Members]
    #: the nodes that each HyperNode names itself
    nodes: list[Rows]
    tree: Topology
    levels: int

    def same(self, ordered: list[crds.HyperNode], facts: NodeFacts, nodes: list[Rows]) -> bool:
        """Whether the tree of these is the same one."""
        if self.facts.index is not facts.index or self.specs != _specs(ordered):
            return False
        return all(mine is its or np.array_equal(mine, its) for mine, its in zip(self.nodes, nodes, strict=True))


def topology(
    hyper_nodes: Mapping[str, crds.HyperNode],
    facts: NodeFacts,
    derived: MutableMapping[object, object],
    levels: int = 0,
) -> Topology:
    """The tree of these HyperNodes over these nodes, cached in `derived`; for that and `levels` see `Snapshot`."""
    before = cast("_Kept | None", derived.get(Topology))
    before = before if before is not None and before.levels == levels else None
    if before is not None and before.facts is facts and before.specs == _specs(hyper_nodes.values()):
        return before.tree
    ordered = sorted(hyper_nodes.values(), key=lambda h: (h.spec.tier, h.metadata.name))
    members = members_of(ordered, facts, before.members if before else {}, before.facts if before else None)
    nodes = [each.nodes(facts) for each in members.values()]
    if before is not None and before.same(ordered, facts, nodes):
        tree = before.tree
    else:
        tree = Topology(ordered, nodes, len(facts), levels)
        tree.problems += [problem for each in members.values() for problem in each.problems]
    derived[Topology] = _Kept(_specs(ordered), facts, members, nodes, tree, levels)
    return tree


def _specs(hyper_nodes: Iterable[crds.HyperNode]) -> dict[str, crds.HyperNodeSpec]:
    return {hyper_node.metadata.name: hyper_node.spec for hyper_node in hyper_nodes}


# -- jobs ------------------------------------------------------------------------------------------------------------


def has_topology(job: Job) -> bool:
    """Whether a job or one of its groups says how close together its pods should be."""
    return says_topology(job.pod_group)


def says_topology(pod_group: crds.PodGroup) -> bool:
    """Whether a PodGroup, or one of its policies of sub groups, says how close together its pods should be."""
    spec = pod_group.spec
    return spec.network_topology is not None or any(policy.network_topology for policy in spec.sub_group_policy)


def locate(job: Job, groups: Groups, tree: Topology, nodes_of: Callable[[SubJob], Rows], *, hard: bool = True) -> None:
    """Find the highest tier over which a job's pods may spread, and the HyperNodes that already contain them.

    `nodes_of` gives the nodes of the placed pods of a group. Pods that only prefer to be close may spread up to the
    virtual top; groups that do, up to the bound of their job. With `hard`, pods that must be close but name no tier
    need some HyperNode, which the virtual top is not, and find none if no HyperNode has the tier that they name;
    without it neither is bound.
    """
    own = job.pod_group.spec.network_topology
    top_tier = int(tree.tiers[tree.top])
    groups.highest_tier = _highest_tier(own, tree, top_tier, hard)
    for_soft_groups = top_tier if groups.highest_tier is None else groups.highest_tier
    for sub_job in groups.sub_jobs.values():
        if own is None and sub_job.network_topology is None:
            continue
        held = tree.around(nodes_of(sub_job))
        if sub_job.network_topology is not None:
            sub_job.highest_tier = _highest_tier(sub_job.network_topology, tree, for_soft_groups, hard)
            sub_job.allocated_hyper_node = sub_job.anchor = held
        groups.allocated_hyper_node = tree.lca(groups.allocated_hyper_node, held)


def _highest_tier(spec: crds.NetworkTopology | None, tree: Topology, for_soft: int, hard: bool) -> int | None:
    if spec is None:
        return None
    if spec.mode == "soft":
        return for_soft
    if spec.highest_tier_allowed is not None:
        return spec.highest_tier_allowed
    if spec.highest_tier_name:
        return tree.tier_by_name.get(spec.highest_tier_name, NO_TIER if hard else None)
    return int(tree.tiers[tree.top]) - 1 if hard else None
