"""The CPUs of a node, and which of them a container would get: a model of the kubelet's static CPU manager.

A hint is a set of NUMA nodes on which a container's cores are free. It is preferred if no smaller set would suffice
with all cores free. The node's topology policy chooses the best hint, or refuses the container if none is preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from math import ceil
from typing import Any, TypeAlias

from stromboli.api import quantity, readers
from stromboli.api.validation import shown

#: numbers of CPUs
Cpus: TypeAlias = frozenset[int]

#: limits on CPUs, and on NUMA nodes, whose subsets are enumerated
_HIGHEST = 2**16 - 1
_MOST_NUMA_NODES = 8

BEST_EFFORT, RESTRICTED, SINGLE = "best-effort", "restricted", "single-numa-node"


@dataclass(frozen=True, slots=True)
class Cpu:
    """The location of a CPU."""

    numa: int
    socket: int
    #: numbered within the socket or the machine
    core: int

    @property
    def physical(self) -> tuple[int, int]:
        """The core that the CPU is a thread of."""
        return self.socket, self.core


@dataclass(frozen=True)
class Topology:
    """A node's CPUs and how its kubelet assigns them."""

    cpu_policy: str
    topology_policy: str
    cpus: Mapping[int, Cpu]
    #: free CPUs, as the node reported
    free: Cpus
    #: pods that the report includes, as `NAMESPACE/NAME`
    reported: Set[str]
    #: CPUs reserved for the system
    reserved: Cpus = frozenset()

    @property
    def aligns(self) -> bool:
        """Whether the kubelet pins CPUs and aligns them with NUMA nodes."""
        return self.cpu_policy == "static" and self.topology_policy not in ("", "none")

    def assign(self, count: int, free: Cpus) -> Cpus | None:
        """The exclusive CPUs of a container that requests `count`; None if it is refused.

        With 0 the container shares CPUs: it fits everywhere and gets none.
        """
        usable = free - self.reserved
        if count == 0:
            return frozenset()
        hints = list(self._hints(count, usable))
        if self.topology_policy == SINGLE:
            hints = [hint for hint in hints if hint.preferred and len(hint.numa) == 1]
        best = min(hints, key=lambda hint: hint.rank, default=None)
        if self.topology_policy in (RESTRICTED, SINGLE) and (best is None or not best.preferred):
            return None
        aligned = self._on(best.numa, usable) if best else usable
        taken = self.take(aligned, min(count, len(aligned)))
        rest = count - len(taken)
        # The kubelet detects the shortage when the container starts; a set that is too small is not assigned.
        return taken | self.take(usable - taken, rest) if rest <= len(usable - taken) else frozenset()

    def numa_nodes(self, cpus: Iterable[int]) -> int:
        """The number of NUMA nodes of some CPUs."""
        return len({self.cpus[cpu].numa for cpu in cpus if cpu in self.cpus})

    def take(self, cpus: Cpus, count: int) -> Cpus:
        """The `count` CPUs of a set that fragment the rest least: sockets, then cores, then threads."""
        taken: set[int] = set()
        for groups in (self._sockets, self._cores):
            left = cpus - taken
            for whole in groups:
                if len(whole) <= count - len(taken) and whole <= left:
                    taken |= whole
        while len(taken) < count:
            taken.add(min(cpus - taken, key=lambda cpu: self._loneliness(cpu, cpus - taken, taken)))
        return frozenset(taken)

    def _hints(self, count: int, usable: Cpus) -> Iterable[Hint]:
        of_numa = self._numa_nodes
        sets = list(chain.from_iterable(combinations(of_numa, size) for size in range(1, len(of_numa) + 1)))
        enough = (numa for numa in sets if sum(len(of_numa[number]) for number in numa) >= count)
        smallest = min(map(len, enough), default=0)
        for numa in sets:
            if len(self._on(numa, usable)) >= count:
                yield Hint(numa, len(numa) == (smallest or len(of_numa)))

    def _on(self, numa: tuple[int, ...], cpus: Cpus) -> Cpus:
        return cpus.intersection(chain.from_iterable(self._numa_nodes[number] for number in numa))

    @cached_property
    def _numa_nodes(self) -> Mapping[int, Cpus]:
        return self._groups(lambda cpu: cpu.numa)

    @cached_property
    def _sockets(self) -> Collection[Cpus]:
        return self._groups(lambda cpu: cpu.socket).values()

    @cached_property
    def _cores(self) -> Collection[Cpus]:
        return self._groups(lambda cpu: cpu.physical).values()

    def _groups(self, of: Callable[[Cpu], Any]) -> Mapping[Any, Cpus]:
        """The CPUs of the machine by socket, core or thread, in order."""
        groups: dict[Any, set[int]] = {}
        for number, cpu in self.cpus.items():
            groups.setdefault(of(cpu), set()).add(number)
        return {key: frozenset(groups[key]) for key in sorted(groups)}

    def _loneliness(self, cpu: int, left: Set[int], taken: Set[int]) -> tuple[int, int, int, tuple[int, int], int]:
        """Threads next to assigned ones come first, then those of the sockets and cores with the fewest free."""
        where = self.cpus[cpu]
        return (
            -sum(self.cpus[other].socket == where.socket for other in taken),
            sum(self.cpus[other].socket == where.socket for other in left),
            sum(self.cpus[other].physical == where.physical for other in left),
            where.physical,
            cpu,
        )


@dataclass(frozen=True, slots=True)
class Hint:
    """Sets of NUMA nodes, ascending, with enough free CPUs together."""

    numa: tuple[int, ...]
    preferred: bool

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key, best first: preferred, few, low numbers."""
        return not self.preferred, len(self.numa), sum(1 << number for number in self.numa)


def read(manifest: Mapping[str, Any]) -> Topology | None:
    """The topology of a Numatopology object; None without CPUs or if it is invalid."""
    spec = manifest.get("spec") or {}
    try:
        cpus = {
            _number(number): Cpu(
                _number(at.get("numa") or 0), _number(at.get("socket") or 0, -1), _number(at.get("core") or 0, -1)
            )
            for number, at in (spec.get("cpuDetail") or {}).items()
        }
        if len({cpu.numa for cpu in cpus.values()}) > _MOST_NUMA_NODES:
            return None
        reported = (spec.get("numares") or {}).get("cpu") or {}
        free = parse_cpus(str(reported.get("allocatable") or ""))
        kept = ceil(quantity.parse((spec.get("resReserved") or {}).get("cpu", 0)))
        policies = spec.get("policies") or {}
        topology = Topology(
            cpu_policy=policies.get("CPUManagerPolicy") or "",
            topology_policy=policies.get("TopologyManagerPolicy") or "",
            cpus=cpus,
            free=free & cpus.keys(),
            reported=frozenset(
                f"{pod.get('namespace')}/{pod.get('name')}" for pod in spec.get("podAllocations") or () if pod
            ),
        )
    except (ValueError, TypeError, AttributeError):
        return None
    return replace(topology, reserved=topology.take(frozenset(cpus), min(kept, len(cpus))))


def parse_cpus(written: str) -> Cpus:
    """A CPU list such as `0-3,8`. Raises ValueError."""
    out: set[int] = set()
    for part in written.split(","):
        if part.strip():
            first, _, last = part.partition("-")
            out.update(range(_number(first), _number(last or first) + 1))
    return frozenset(out)


def _number(written: object, least: int = 0) -> int:
    """The number of a CPU, core, socket or NUMA node; cores and sockets may be -1. Raises ValueError."""
    found = readers.integer(str(written).strip(), least, _HIGHEST)
    if found is None:
        raise ValueError(f"{shown(written)} is not a CPU number")
    return found
