"""Nodes that answer alike: whether a pod's processors can be aligned follows from numbers of free ones.

A kind is the kubelet's policy with the processors of each NUMA node, all of them and those that are free. There are few
kinds, however many nodes: each is asked once what becomes of a pod.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.plugins.numaaware.topology import RESTRICTED, SINGLE, Cpus, Topology

#: how many processors each container of a pod gets for itself, where it gets any
Wanted: TypeAlias = tuple[int, ...]

#: instead of a number of NUMA nodes: the pod is refused, or what it gets depends on which processors are free
REFUSED, UNCLEAR = -1, -2


class Kind(NamedTuple):
    """See the module's docstring."""

    policy: str
    #: processors by NUMA node, in ascending order, and those of them that pods can get
    capacity: tuple[int, ...]
    free: tuple[int, ...]
    #: whether any processor is free, be it one for the system
    any_free: bool

    def spread(self, wanted: Wanted) -> int:
        """On how many NUMA nodes the processors of a pod are; REFUSED or UNCLEAR.

        The smallest set of NUMA nodes is taken as a whole, for a smaller one would not do. So what is left is known
        when the set has one member; beyond, it matters which processors of each go.
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
                # It gets none of those that are there.
                continue
            used.update(best)
            if len(best) == 1:
                free[best[0]] -= count
            elif at < len(wanted) - 1:
                return UNCLEAR
        return len(used)

    def _best(self, count: int, free: list[int]) -> tuple[int, ...] | None:
        """The smallest set of NUMA nodes with so many free processors, of equals the one with the lowest numbers."""
        size = self._smallest(count, tuple(free))
        if not size:
            return None
        sets = (numa for numa in combinations(range(len(free)), size) if sum(free[at] for at in numa) >= count)
        return min(sets, key=lambda numa: sum(1 << at for at in numa))

    @staticmethod
    def _smallest(count: int, of: tuple[int, ...]) -> int:
        """How many NUMA nodes it takes at least to have so many processors; 0 when all are not enough."""
        have = 0
        for size, most in enumerate(sorted(of, reverse=True), 1):
            have += most
            if have >= count:
                return size
        return 0


#: nodes that pin no processors, or care not where they are
INDIFFERENT = Kind("", (), (), False)


def kind_of(topology: Topology, free: Cpus) -> Kind:
    """The kind of a node of which these processors are free."""
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
    """The kinds that there are in a session, numbered."""

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
        """What becomes of a pod on each kind, see `Kind.spread`; shape (kinds,)."""
        known = self._spreads.setdefault(wanted, [])
        known += [0 if kind is INDIFFERENT else kind.spread(wanted) for kind in self._listed[len(known) :]]
        return np.array(known, np.intp)

    def with_policy(self, policy: str) -> Mask:
        """The kinds that align by a policy and have processors left, shape (kinds,)."""
        return np.array([kind.any_free and kind.policy == policy for kind in self._listed], np.bool_)
