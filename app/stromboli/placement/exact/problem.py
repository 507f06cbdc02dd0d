"""A gang and the nodes as numbers: which pods may go where, what they take, and what excludes what.

Interchangeable pods are one kind. Sets of nodes and of kinds are integers with one bit for each: excluding a domain
is one operation, however many nodes it has. Nothing here knows sessions or plugins, so that the same
problem has the same answer wherever it is solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import repeat
from operator import or_

import numpy as np

from stromboli.api import resources
from stromboli.api.resources import TOLERANCE, Mask

#: names of what rules out placements: resources, and these
FILTERS = "node selectors, taints and other filters of nodes"
QUEUE = "the queue's limits"
TOPOLOGY = "network topology"


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods that are alike."""

    count: int
    #: by dimension
    request: tuple[float, ...]
    #: the nodes that may take one as far as that depends on no other pod of the gang
    nodes: int


@dataclass(frozen=True, slots=True)
class Need:
    """A minimum number of pods of some kinds has to get places."""

    kinds: int
    least: int


@dataclass(frozen=True, slots=True)
class Domains:
    """A division of the nodes."""

    #: by node, negative for none
    of: tuple[int, ...]
    #: the nodes of each domain
    members: dict[int, int]

    @classmethod
    def divide(cls, of: Sequence[int]) -> Domains:
        """The domains of nodes with these numbers."""
        members: dict[int, int] = {}
        for node, number in enumerate(of):
            if number >= 0:
                members[number] = members.get(number, 0) | 1 << node
        return cls(tuple(of), members)

    @property
    def whole(self) -> bool:
        """Whether the domains are the nodes."""
        return self.of == tuple(range(len(self.of)))

    def finer(self, other: Domains) -> bool:
        """Whether any two nodes in one domain of this division are also in one domain of the other."""
        return all(any(not mine & ~its for its in other.members.values()) for mine in self.members.values())


@dataclass(frozen=True, slots=True)
class ApartRule:
    """Kinds that do not share a domain."""

    words: str
    #: by kind, those that it excludes
    conflicts: tuple[int, ...]
    domains: Domains
    #: by kind, the nodes where others of the gang that have places exclude it; empty for none
    closed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NearRule:
    """Kinds that join pods of selected kinds, in a domain of each of several divisions."""

    words: str
    kinds: int
    selected: int
    divisions: tuple[Domains, ...]
    #: by division: the nodes in whose domain a selected pod is already
    present: tuple[int, ...]
    #: whether there is a selected pod on any node, also on nodes outside the problem
    somewhere: bool = False
    #: whether those pods may as well be gone, so that a pod may be the first
    uncertain: bool = False

    @property
    def open(self) -> bool:
        """Whether a pod may be placed while none of its gang is."""
        return self.uncertain or not self.somewhere

    @property
    def founders(self) -> int:
        """Selected kinds that do not have to join others by this rule."""
        return self.selected & ~self.kinds


@dataclass(frozen=True, slots=True)
class BalancedRule:
    """A kind that keeps the numbers of selected pods in the domains close to the smallest of them."""

    words: str
    kind: int
    selected: int
    domains: Domains
    #: the nodes that count
    eligible: int
    #: by domain that has eligible nodes: the selected pods that it has already
    counts: dict[int, float]
    max_skew: int
    #: whether the smallest number counts as 0
    too_few_domains: bool
    #: by domain: selected pods that may stay or be gone, and count where they raise the smallest number
    uncertain: dict[int, float] = field(default_factory=dict)

    def fewest(self, counts: dict[int, float]) -> float:
        """The smallest number, of such numbers in all domains."""
        if self.too_few_domains:
            return 0.0
        return min((count + self.uncertain.get(domain, 0.0) for domain, count in counts.items()), default=0.0)


@dataclass(frozen=True, slots=True)
class WithinRule:
    """Kinds all of whose pods lie in one of several sets of nodes."""

    words: str
    kinds: int
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """A limit on what all pods that are placed on some nodes may take together."""

    words: str
    #: by kind
    takes: tuple[float, ...]
    free: float
    #: the nodes; all where it is negative
    nodes: int = -1
    #: the limit in words
    told: str = ""
    #: whether more nodes would raise it
    grows: bool = False


@dataclass(slots=True)
class Problem:
    """The pods to place, and where they may go."""

    kinds: list[Kind]
    needs: list[Need]
    #: the free amounts, by node and dimension
    free: list[tuple[float, ...]]
    #: by dimension, its name
    dimensions: list[str]
    apart: list[ApartRule] = field(default_factory=list)
    near: list[NearRule] = field(default_factory=list)
    balanced: list[BalancedRule] = field(default_factory=list)
    within: list[WithinRule] = field(default_factory=list)
    quotas: list[QuotaRule] = field(default_factory=list)
    #: learned: numbers of pods by kind that are refused together, and so are larger ones
    forbidden: list[tuple[int, ...]] = field(default_factory=list)
    #: whether the rules say everything that the filters would
    clear: bool = True
    #: whether the filters exclude no less once others of the gang have places, so that what is impossible here is
    sound: bool = True

    @property
    def everywhere(self) -> int:
        """All nodes."""
        return (1 << len(self.free)) - 1

    def fitting(self) -> list[int]:
        """Nodes that may take a pod alone, by its kind: filters pass, and it fits."""
        free = np.array(self.free, np.float64).reshape(len(self.free), len(self.dimensions)).T
        found = []
        for kind in self.kinds:
            fitting = resources.fits(np.array(kind.request), free) if len(self.free) else np.zeros(0, np.bool_)
            found.append(kind.nodes & as_set(fitting) if kind.count else 0)
        return found

    def opened(self) -> list[int]:
        """Nodes that may take a pod now, by its kind: filters pass, it fits, and its domain is not left."""
        found = self.fitting()
        for rule in self.within:
            union = reduce(or_, rule.choices, 0)
            for at in bits(rule.kinds):
                found[at] &= union
        for apart in self.apart:
            for at, closed in enumerate(apart.closed):
                found[at] &= ~closed
        for near in self.near:
            for at in bits(near.kinds):
                found[at] &= self._joinable(near, at)
        for quota in self.quotas:
            for at, takes in enumerate(quota.takes):
                if not fits((takes,), (quota.free,)):
                    found[at] &= ~quota.nodes
        return found

    def _joinable(self, rule: NearRule, kind: int) -> int:
        """The nodes where a kind may be the first of those that join, or has any to join that it does not exclude."""
        nodes = self.everywhere
        if rule.open and rule.selected >> kind & 1:
            return nodes
        for domains, present in zip(rule.divisions, rule.present, strict=True):
            joined = rule.selected
            for apart in self.apart:
                if apart.conflicts[kind] & joined and domains.finer(apart.domains):
                    joined &= ~apart.conflicts[kind]
            if not any(self.kinds[other].count > (other == kind) for other in bits(joined)):
                nodes &= present
        return nodes

    @property
    def rules(self) -> Iterator[ApartRule | NearRule | BalancedRule | WithinRule | QuotaRule]:
        """All rules besides amounts and filters."""
        for of_sort in (self.apart, self.near, self.balanced, self.within, self.quotas):
            yield from of_sort

    def names(self) -> list[str]:
        """The names of the constraints that may rule out placements."""
        asked = [any(kind.request[at] > 0 for kind in self.kinds) for at in range(len(self.dimensions))]
        amounts = [name for name, wanted in zip(self.dimensions, asked, strict=True) if wanted]
        filtered = [FILTERS] if any(kind.nodes != self.everywhere for kind in self.kinds) else []
        limited = [QUEUE] if self.forbidden else []
        return list(dict.fromkeys((*amounts, *filtered, *(rule.words for rule in self.rules), *limited)))

    def without(self, name: str) -> str:
        """Relaxation of a named constraint, in words."""
        if name in self.dimensions:
            return f"with more {name} on a node"
        if any(rule.words == name for rule in self.quotas):
            return f"beyond {name}"
        own = {FILTERS: "on nodes that node selectors, taints or cordons keep them off", QUEUE: f"beyond {QUEUE}"}
        return own.get(name, f"without {name}")

    def relaxed(self, names: frozenset[str]) -> Problem:
        """The problem without some named constraints."""
        columns = [at for at, name in enumerate(self.dimensions) if name in names]

        def without(request: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(0.0 if at in columns else amount for at, amount in enumerate(request))

        everywhere = self.everywhere if FILTERS in names else 0
        return replace(
            self,
            kinds=[Kind(each.count, without(each.request), each.nodes | everywhere) for each in self.kinds],
            apart=[rule for rule in self.apart if rule.words not in names],
            near=[rule for rule in self.near if rule.words not in names],
            balanced=[rule for rule in self.balanced if rule.words not in names],
            within=[rule for rule in self.within if rule.words not in names],
            quotas=[rule for rule in self.quotas if rule.words not in names],
            forbidden=[] if QUEUE in names else self.forbidden,
        )

    def alike(self) -> list[int]:
        """Number of each node, shared by nodes that no rule tells apart while no pod of the gang is on them."""
        size = len(self.free)
        columns = [
            np.unpackbits(np.frombuffer(mask.to_bytes(size // 8 + 1, "little"), np.uint8), bitorder="little")[:size]
            for mask in self._masks()
        ]
        looks = np.array(columns).T.tobytes() if columns else b""
        width = len(columns)
        numbers: list[list[int]] = [[_domain(rule.domains, node) for node in range(size)] for rule in self.apart]
        numbers += [[_domain(each, node) for node in range(size)] for rule in self.near for each in rule.divisions]
        numbers += [[_domain(rule.domains, node) for node in range(size)] for rule in self.balanced]
        known: dict[object, int] = {}
        of_nodes = zip(*numbers, strict=True) if numbers else repeat((), size)
        return [
            known.setdefault((free, looks[node * width : (node + 1) * width], of_node, self._counted(node)), len(known))
            for node, (free, of_node) in enumerate(zip(self.free, of_nodes, strict=True))
        ]

    def _masks(self) -> Iterator[int]:
        """The sets of nodes that rules tell apart, each once."""
        masks = [kind.nodes for kind in self.kinds]
        masks += [mask for rule in self.near for mask in rule.present]
        masks += [rule.eligible for rule in self.balanced]
        masks += [choice for rule in self.within for choice in rule.choices]
        masks += [mask for rule in self.apart for mask in rule.closed]
        masks += [rule.nodes for rule in self.quotas if rule.nodes >= 0]
        return iter(dict.fromkeys(masks))

    def _counted(self, node: int) -> tuple[float | None, ...]:
        """The counts of rules in the domains of a node."""
        counted = ((rule.domains.of[node], rule) for rule in self.balanced)
        return tuple(each.get(domain) for domain, rule in counted for each in (rule.counts, rule.uncertain))


def _domain(domains: Domains, node: int) -> int:
    """The domain of a node, the same number for all domains of one node: such nodes are not told apart by it."""
    number = domains.of[node]
    return number if number < 0 or domains.members[number].bit_count() > 1 else -2


def as_set(mask: Mask) -> int:
    """Where a mask is true, as the bits of a number."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def bits(mask: int) -> Iterator[int]:
    """The members of a set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def fits(request: Sequence[float], free: Sequence[float]) -> bool:
    """Whether a request fits, as `resources.fits` compares it."""
    return all(left > want - TOLERANCE or want <= 0 for want, left in zip(request, free, strict=True))
