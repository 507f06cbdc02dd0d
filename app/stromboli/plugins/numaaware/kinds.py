"""Kinds of nodes: whether a pod's CPUs can be aligned follows from the numbers of free CPUs.

A kind is the kubelet's policy with the CPUs of each NUMA node, in total and free. There are few kinds, however many
nodes, and each is evaluated once per pod class.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.plugins.numaaware.topology import RESTRICTED, SINGLE, Cpus, Topology

#: number of exclusive CPUs of each container that gets any
Wanted: TypeAlias = tuple[int, ...]

#: instead of a number of NUMA nodes: the pod is refused, or the result depends on which CPUs are free
REFUSED, UNCLEAR = -1, -2


class Kind(NamedTuple):
    """The properties of a node that decide whether a pod's CPUs can be aligned."""

    policy: str
    #: CPUs by NUMA node, ascending, and those that pods can get
    capacity: tuple[int, ...]
    free: tuple[int, ...]
    #: whether any CPU is free, including CPUs reserved for the system
    any_free: bool

    def spread(self, wanted: Wanted) -> int:
        """The number of NUMA nodes of a pod's CPUs; REFUSED or UNCLEAR.

        Each container gets CPUs of the smallest sufficient set of NUMA nodes. With one NUMA node the remaining free
        CPUs are known; with several they depend on which CPUs of each are taken.
        """
        free, used = list(self.free), set[int]()
        for at, count in enumerate(wanted):
            best = self._best(count, free)
            smallest = self._smallest(count, self.capacity)
            preferred = best is not None and len(best) == smallest
            if self.policy == SINGLE and not (preferred and smallest == 1):
                return REFUSED
            if self.policy == RESTRICTED and not preferred:
                return REFUSED
            if best is None:
                # The container gets none of the free CPUs.
                continue
            used.update(best)
            if len(best) == 1:
                free[best[0]] -= count
            elif at < len(wanted) - 1:
                return UNCLEAR
        return len(used)

    def _best(self, count: int, free: list[int]) -> tuple[int, ...] | None:
        """The smallest set of NUMA nodes with enough free CPUs; among equals the one with the lowest numbers."""
        size = self._smallest(count, tuple(free))
        if not size:
            return None
        sets = (numa for numa in combinations(range(len(free)), size) if sum(free[at] for at in numa) >= count)
        return min(sets, key=lambda numa: sum(1 << at for at in numa))

    @staticmethod
    def _smallest(count: int, of: tuple[int, ...]) -> int:
        """The minimum number of NUMA nodes with enough CPUs; 0 if all are not enough."""
        have = 0
        for size, most in enumerate(sorted(of, reverse=True), 1):
            have += most
            if have >= count:
                return size
        return 0


#: nodes that do not pin CPUs, or do not align them
INDIFFERENT = Kind("", (), (), False)


def kind_of(topology: Topology, free: Cpus) -> Kind:
    """The kind of a node with these free CPUs."""
    if not topology.aligns:
        return INDIFFERENT
    numbers = {numa: at for at, numa in enumerate(sorted({cpu.numa for cpu in topology.cpus.values()}))}
    capacity, left = [0] * len(numbers), [0] * len(numbers)
    for number, cpu in topology.cpus.items():
        at = numbers[cpu.numa]
        capacity[at] += 1
        left[at] += number in free and number not in topology.reserved
    return Kind(topology.topology_policy, tuple(capacity), tuple(left), bool(free))


class Kinds:
    """The kinds in a session, numbered."""

    def __init__(self) -> None:
        self._listed: list[Kind] = []
        self._numbers: dict[Kind, int] = {}
        self._spreads: dict[Wanted, list[int]] = {}

    def number(self, kind: Kind) -> int:
        """The number of a kind."""
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = len(self._listed)
            self._listed.append(kind)
        return known

    def spreads(self, wanted: Wanted) -> Rows:
        """The result for a pod on each kind, as in `Kind.spread`; shape (kinds,)."""
        known = self._spreads.setdefault(wanted, [])
        known += [0 if kind is INDIFFERENT else kind.spread(wanted) for kind in self._listed[len(known) :]]
        return np.array(known, np.intp)

    def with_policy(self, policy: str) -> Mask:
        """The kinds that align by a policy and have CPUs left, shape (kinds,)."""
        return np.array([kind.any_free and kind.policy == policy for kind in self._listed], np.bool_)
