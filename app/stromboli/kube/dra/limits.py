"""The devices of nodes that claims of some pods take, as limits for a search.

Each limit is of a set of devices that some request may get, and counts the requests that get no other device. A device
that draws on counters counts by its fractions of them, too, as partitions of one card exclude each other. What exceeds
a limit is impossible; what does not may be, by constraints between devices, or where several nodes reach them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.api.words import counted
from stromboli.framework.plugin.relations import Limited, Near, Rationed, same_node
from stromboli.kube.dra.allocator import Demand, attribute_of, attribute_values
from stromboli.kube.dra.capacity import Amount
from stromboli.kube.dra.comparing import Compared, Units, compared_of, comparisons, least, least_parts, names
from stromboli.kube.dra.inventory import Devices, Inventory
from stromboli.kube.dra.returns import Returns
from stromboli.kube.dra.selection import NO
from stromboli.kube.dra.stock import Balance, Stock

#: sets of devices that are counted, and devices of a set whose counters are
_MOST_SETS, _MOST_DEVICES = 8, 1_000
#: the number of parts of a device that take no capacity
_UNLIMITED = 1_000_000
CROWDED = "node(s) had insufficient resources for all pods that share a resource claim"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Devices that a request may get, and the minimum number that it takes."""

    #: shape (devices + 1,)
    devices: Mask
    #: the part of these that one pod counts for, of those that share the claim
    count: float
    classes: frozenset[str]
    #: by device that is given in parts: the least that it takes of each of its capacities
    parts: Mapping[int, Mapping[str, Amount]]


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of one pod's claims that have no devices yet."""

    wanted: Sequence[Wanted] = ()
    compared: Sequence[Compared] = ()
    #: keys of the claims that other pods share
    shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, demand: Demand, naming: Mapping[str, int], claims: Sequence[str]) -> Needs:
        """`naming` is the number of pods that share each claim."""
        shared = frozenset(key for key in claims if naming[key] > 1)
        return cls(list(_wanted(demand, naming)), compared_of(demand, naming), shared)


def _wanted(demand: Demand, naming: Mapping[str, int]) -> Iterator[Wanted]:
    for request in demand.claim_requests:
        if any(choice.admin for choice in request.choices):
            continue
        devices = np.logical_or.reduce([demand.codes(choice) != NO for choice in request.choices])
        for constraint in request.constraints:
            if names(constraint, request):
                devices &= attribute_values(demand.devices, attribute_of(constraint)) >= 0
        count = min(1 if choice.count is None else choice.count for choice in request.choices)
        classes = frozenset(choice.device_class for choice in request.choices)
        parts = least_parts(demand, request.choices, devices)
        yield Wanted(devices, count / max(1, naming[request.claim]), classes, parts)


def sharing(pods: Sequence[Needs], nodes: int) -> Iterator[Near]:
    """Relations that keep pods which share claims of devices on one node."""
    for at, mine in enumerate(pods):
        for claim in sorted(mine.shared):
            selected = np.array([claim in each.shared for each in pods])
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

    def limits(self, pods: Sequence[Needs]) -> Iterator[Limited | Rationed]:
        """Limits on what pods take of sets of devices, and by constraints between devices."""
        yield from self._of_sets([each.wanted for each in pods])
        yield from comparisons([each.compared for each in pods], self.inventory, self._units)

    def _of_sets(self, pods: Sequence[Sequence[Wanted]]) -> Iterator[Limited | Rationed]:
        every = [wanted for of_pod in pods for wanted in of_pod]
        sets = {np.packbits(wanted.devices).tobytes(): wanted.devices for wanted in every}
        if not sets or len(sets) > _MOST_SETS:
            return
        union = np.logical_or.reduce([*sets.values()])
        sets.setdefault(np.packbits(union).tobytes(), union)
        multiple = self._multiple()
        for devices in sets.values():
            within = [[each for each in of_pod if not (each.devices & ~devices).any()] for of_pod in pods]
            classes = sorted({name for of_pod in within for each in of_pod for name in each.classes})
            words = f"devices of class {' or '.join(classes)}"
            takes = np.array([sum(each.count for each in of_pod) for of_pod in within], np.float64)
            yield Limited(words, takes, *self._counted(devices, [each for of_pod in within for each in of_pod]))
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

    def _units(self, devices: Mask, wanted: Sequence[Wanted | Compared]) -> tuple[Units, Units]:
        """Number of times that each of some devices can be taken now, and at all, shape (devices + 1,)."""
        in_use = self.in_use.copy()
        in_use[[row for rows in self.returns.free_on.values() for row in rows]] = False
        free, whole = (devices & ~in_use).astype(np.int64), devices.astype(np.int64)
        for row in np.flatnonzero(devices & self._multiple()).tolist():
            free[row], whole[row] = self._shares(row, wanted)
        return free, whole

    def _multiple(self) -> Mask:
        """The devices that are given in parts."""
        return self.devices.where("multiple", lambda offer: offer.multiple, bool)

    def _shares(self, row: int, wanted: Sequence[Wanted | Compared]) -> tuple[int, int]:
        """Upper bounds on the parts of a device that are left, and on all of them."""
        stock, drawn = self.balance.stock, self.balance.drawn
        parts = [each.parts[row] for each in wanted if row in each.parts]
        draws = [(of, amount) for of, amount in stock.share(row, least(parts)) if amount] if parts else []
        left = (max(0, stock.limits[of] - drawn[of]) // amount for of, amount in draws)
        whole = (stock.limits[of] // amount for of, amount in draws)
        return min(left, default=_UNLIMITED), min(whole, default=_UNLIMITED)

    def _counted(self, devices: Mask, wanted: Sequence[Wanted]) -> tuple[Vector, Vector]:
        """Number of some devices, or parts of them, that each node has free for what is wanted, and in all."""
        units = self._units(devices, wanted)
        # What becomes free on one node alone is counted there.
        for row in (row for rows in self.returns.free_on.values() for row in rows):
            units[0][row] = 0
        free, whole = (self.inventory.totals(each).astype(np.float64) for each in units)
        for node, near in self.returns.free_on.items():
            free[node] += sum(bool(devices[row] & self.in_use[row]) for row in near)
        return free, whole

    def _totals(self, devices: Mask) -> Vector:
        return self.inventory.totals(devices.astype(np.int64)).astype(np.float64)

    def _drawn(
        self, words: str, within: Sequence[Sequence[Wanted]], devices: Mask, multiple: Mask
    ) -> Iterator[Limited]:
        """Limits by the counters of some devices, all of which belong to their nodes, in whole counters.

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
        free, whole = (least * number for number in self._counted(plain, ()))
        for node in self.inventory.nodes.tolist():
            counters = _counters(stock, [row for row in self.inventory.on(node).tolist() if devices[row]])
            whole[node] += len(counters)
            free[node] += sum(1 - self.balance.drawn[row] / stock.limits[row] for row in counters)
        yield Limited(words, takes, free, whole)


def _counters(stock: Stock, devices: Sequence[int]) -> set[int]:
    """The counters that some devices draw on."""
    return {row for device in devices for row, drawn in stock.counters(device) if drawn and stock.limits[row]}
