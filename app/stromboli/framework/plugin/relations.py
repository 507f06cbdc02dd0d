"""Relations between placements of pods: rules as data, about which a search can reason.

A predicate says where one more pod may go in the current state. A relation says what the answer will be once other pods
of the gang are placed, without placing them. Pods are referred to by their index in the plugin's arguments; each stands
for all identical ones. Domains are numbered per node, shape (nodes,), negative for a node in none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A rule between pods."""

    #: the rule in the words of a user: `host ports`, `pod affinity by topology.kubernetes.io/zone`
    words: str

    @property
    def replaces(self) -> str:
        """The cause of a predicate that says the same of pods that have places already, and that the placement of
        others may remove; empty where others can only add to it."""
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Apart(Relation):
    """Pods that do not share a domain with each other, as for host ports and anti-affinity."""

    #: which exclude which, shape (pods, pods), symmetric; on the diagonal whether pods like one exclude each other
    conflicts: Mask
    domain: Rows


@dataclass(frozen=True, slots=True, eq=False)
class Near(Relation):
    """A pod that joins pods which all of its terms select: in each term's domain there is one."""

    cause: str
    pod: int
    #: which of the pods the terms select, shape (pods,)
    selected: Mask
    #: by term
    domains: tuple[Rows, ...]
    #: by term: the nodes whose domain has a selected pod already, shape (nodes,)
    present: tuple[Mask, ...]

    @property
    def replaces(self) -> str:
        return self.cause


@dataclass(frozen=True, slots=True, eq=False)
class Balanced(Relation):
    """A pod that keeps the numbers of selected pods in the domains within a skew of the smallest one."""

    cause: str
    pod: int
    #: which of the pods count, shape (pods,)
    selected: Mask
    domain: Rows
    #: the nodes that count, shape (nodes,)
    eligible: Mask
    #: the selected pods that each node has already, shape (nodes,)
    counts: Vector
    max_skew: int
    #: whether there are fewer domains than the rule asks for, so that the smallest number counts as 0
    too_few_domains: bool

    @property
    def replaces(self) -> str:
        return self.cause


@dataclass(frozen=True, slots=True, eq=False)
class Limited(Relation):
    """Things that each node has a limited number of, such as volumes that a driver attaches."""

    #: number that each pod takes, shape (pods,)
    takes: Vector
    #: number that each node has left, and in all, shape (nodes,)
    free: Vector
    whole: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Rationed(Relation):
    """Limit on the total that pods take on some nodes, such as a limit of their queue.

    Amounts are in the units of requests, or in thousandths.
    """

    #: amount that each pod takes, shape (pods,)
    takes: Vector
    #: where that counts, shape (nodes,)
    nodes: Mask
    #: amount left, and in all, which `told` says in words
    free: float
    whole: float
    told: str
    #: whether more nodes would bring more of it
    grows: bool


@dataclass(frozen=True, slots=True, eq=False)
class Unclear(Relation):
    """Pods that depend on each other beyond what relations express: finding no places for them proves nothing."""

    pods: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Narrowing(Relation):
    """Pods from which the places of others only ever take nodes, beyond what relations express.

    Places that are found may be refused, but what is impossible without this rule is impossible with it.
    """

    pods: Mask
    #: by pod: causes of predicates that may end when other pods are gone, besides those that are `Passing`
    causes: tuple[frozenset[str], ...]


def same_node(nodes: int) -> Rows:
    """The domains that are single nodes, shape (nodes,)."""
    return np.arange(nodes)
