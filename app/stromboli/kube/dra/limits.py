"""What claims of some pods take of the devices that nodes have, as limits that a search can reason about.

Each limit is of a set of devices that some request may get, and counts the requests that get no other device. A device
that draws on counters counts by its fractions of them, too, as partitions of one card exclude each other. What exceeds
a limit is impossible; what does not may be, by constraints between devices, or where several nodes reach them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.api.words import counted
from stromboli.framework.plugin.relations import Limited, Near, Rationed, same_node
from stromboli.kube.dra.allocator import Demand
from stromboli.kube.dra.inventory import Devices, Inventory
from stromboli.kube.dra.returns import Returns
from stromboli.kube.dra.selection import NO
from stromboli.kube.dra.stock import Balance, Stock

#: sets of devices that are counted, and devices of a set whose counters are
_MOST_SETS, _MOST_DEVICES = 8, 1_000
CROWDED = "node(s) had insufficient resources for all pods that share a resource claim"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Devices that a request may get, and how many of them it takes at least."""

    #: shape (devices + 1,)
    devices: Mask
    #: the part of these that one pod counts for, of those that share the claim
    count: float
    classes: frozenset[str]


def wanted_of(demand: Demand, naming: Mapping[str, int]) -> list[Wanted]:
    """What the requests of a pod take; `naming` says how many pods share each claim."""
    found = list[Wanted]()
    for request in demand.claim_requests:
        if any(choice.admin for choice in request.choices):
            continue
        devices = np.logical_or.reduce([demand.codes(choice) != NO for choice in request.choices])
        count = min(1 if choice.count is None else choice.count for choice in request.choices)
        classes = frozenset(choice.device_class for choice in request.choices)
        found.append(Wanted(devices, count / max(1, naming[request.claim]), classes))
    return found


def sharing(claims: Sequence[Collection[str]], nodes: int) -> Iterator[Near]:
    """That pods which share claims of devices go to one node, by the shared claims that each has."""
    for at, mine in enumerate(claims):
        for claim in sorted(mine):
            selected = np.array([claim in of_pod for of_pod in claims])
            present = (np.zeros(nodes, np.bool_),)
            yield Near("shared resource claims", CROWDED, at, selected, (same_node(nodes),), present)


@dataclass(frozen=True, slots=True)
class Supply:
    """The devices of nodes, and which are in use."""

    inventory: Inventory
    in_use: Mask
    returns: Returns
    balance: Balance

    @property
    def devices(self) -> Devices:
        """All devices."""
        return self.inventory.devices

    def limits(self, pods: Sequence[Sequence[Wanted]]) -> Iterator[Limited | Rationed]:
        """What pods take of sets of devices, by what each of them wants."""
        every = [wanted for of_pod in pods for wanted in of_pod]
        sets = {np.packbits(wanted.devices).tobytes(): wanted.devices for wanted in every}
        if not sets or len(sets) > _MOST_SETS:
            return
        union = np.logical_or.reduce([*sets.values()])
        sets.setdefault(np.packbits(union).tobytes(), union)
        multiple = self.devices.where("multiple", lambda offer: offer.multiple, bool)
        for devices in sets.values():
            within = [[each for each in of_pod if not (each.devices & ~devices).any()] for of_pod in pods]
            classes = sorted({name for of_pod in within for each in of_pod for name in each.classes})
            words = f"devices of class {' or '.join(classes)}"
            takes = np.array([sum(each.count for each in of_pod) for of_pod in within], np.float64)
            yield Limited(words, takes, *self._counted(devices, multiple))
            if self.inventory.reaching_shared.any() and not (devices & multiple).any():
                near = {row for rows in self.returns.free_on.values() for row in rows if devices[row]}
                free = int((devices & ~self.in_use).sum()) + sum(bool(self.in_use[row]) for row in near)
                there = int(devices.sum())
                nodes = np.ones(len(self.inventory.facts), np.bool_)
                yield Rationed(
                    f"the {words} that there are",
                    takes * 1e3,
                    nodes,
                    free * 1e3,
                    there * 1e3,
                    counted(there, "device"),
                    grows=True,
                )
            if self.balance.stock:
                yield from self._drawn(f"counters of {words}", within, devices, multiple)

    def _counted(self, devices: Mask, multiple: Mask) -> tuple[Vector, Vector]:
        """How many of some devices each node has free, and in all; those that are shared have no limit."""
        unlimited = np.where(self._totals(devices & multiple) > 0, np.inf, 0.0)
        free = self._totals(devices & ~self.in_use)
        for node, near in self.returns.free_on.items():
            free[node] += sum(bool(devices[row] & self.in_use[row]) for row in near)
        return free + unlimited, self._totals(devices) + unlimited

    def _totals(self, devices: Mask) -> Vector:
        return self.inventory.totals(devices.astype(np.int64)).astype(np.float64)

    def _drawn(
        self, words: str, within: Sequence[Sequence[Wanted]], devices: Mask, multiple: Mask
    ) -> Iterator[Limited]:
        """What requests draw of the counters of some devices, all of which belong to their nodes, in whole counters.

        A device that draws on none counts for as much as the one that draws least.
        """
        stock, rows = self.balance.stock, np.flatnonzero(devices)
        if len(rows) > _MOST_DEVICES or any(map(self.inventory.is_shared, rows.tolist())):
            return
        plain, fraction = devices & ~multiple & (stock.pool < 0), np.where(multiple, 0.0, stock.fraction)
        least = fraction[devices & (fraction > 0)].min(initial=np.inf)
        if not np.isfinite(least):
            return
        fraction[plain] = least
        takes = np.array([sum(each.count * fraction[each.devices].min(initial=np.inf) for each in of) for of in within])
        if not takes.any() or not np.isfinite(takes).all():
            return
        free, whole = (least * number for number in self._counted(plain, multiple))
        for node in self.inventory.nodes.tolist():
            counters = _counters(stock, [row for row in self.inventory.on(node).tolist() if devices[row]])
            whole[node] += len(counters)
            free[node] += sum(1 - self.balance.drawn[row] / stock.limits[row] for row in counters)
        yield Limited(words, takes, free, whole)


def _counters(stock: Stock, devices: Sequence[int]) -> set[int]:
    """The counters that some devices draw on."""
    return {row for device in devices for row, drawn in stock.counters(device) if drawn and stock.limits[row]}
