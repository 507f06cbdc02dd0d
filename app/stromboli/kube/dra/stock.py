"""What devices draw on besides themselves, as rows: shared counters of their pools, and capacity given in parts.

Each row has a limit in thousandths, and what is drawn of it never exceeds the limit by what is decided here. A device
that consumes counters draws on them while it is allocated; one that may be allocated several times draws on them once,
and each of its shares on the rows of its capacities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Rows
from stromboli.kube.dra.capacity import Amount, Capacities

#: amounts in thousandths by row, as exact as integers of Python are
Amounts: TypeAlias = list[int]
#: rows, and how much is drawn of each, in thousandths
Draws: TypeAlias = Sequence[tuple[int, int]]
#: counters by set and name
Counters: TypeAlias = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PoolStock:
    """The rows of one pool."""

    #: equal for pools whose rows stand for the same
    layout: tuple[tuple[str, str], ...]
    limits: tuple[int, ...]
    #: by device, in the order of the pool's offers: the counters that it draws on
    counters: tuple[Draws, ...]
    #: by device: the row of each capacity; None for a device that is given whole
    parts: tuple[Mapping[str, int] | None, ...]
    #: whether all devices are those of one node
    local: bool


def pool_stock(
    sets: Mapping[str, Mapping[str, int]],
    devices: Sequence[tuple[Counters, Capacities | None]],
    *,
    local: bool,
) -> PoolStock:
    """The rows of a pool with some counter sets; a device comes with its capacities if it is given in parts.

    Raises KeyError for a counter that no set has.
    """
    layout = [(name, counter) for name, counters in sets.items() for counter in counters]
    limits = [limit for counters in sets.values() for limit in counters.values()]
    row_of = {name: row for row, name in enumerate(layout)}
    draws, parts = list[Draws](), list[Mapping[str, int] | None]()
    for number, (counters, capacities) in enumerate(devices):
        draws.append([(row_of[name, counter], drawn) for name, counter, drawn in counters])
        parts.append(None)
        if capacities is not None:
            first = len(layout)
            parts[-1] = {name: row for row, name in enumerate(capacities.amounts, first)}
            layout += ((f"/{number}", name) for name in capacities.amounts)
            limits += (each.limit for each in capacities.amounts.values())
    return PoolStock(tuple(layout), tuple(limits), tuple(draws), tuple(parts), local)


class Stock:
    """The rows of all pools that have any."""

    def __init__(self, pools: Iterable[tuple[int, PoolStock]], devices: int) -> None:
        """Pools with the rows of their first devices, of so many devices, in order."""
        self._pools = list(pools)
        self._offsets = [0, *accumulate(len(pool.limits) for _, pool in self._pools)]
        self.limits: Amounts = [limit for _, pool in self._pools for limit in pool.limits]
        #: the number of the pool of each device that draws on anything, -1 for all others, shape (devices + 1,)
        self.pool: Rows = np.full(devices + 1, -1)
        #: its place in the pool
        self.place: Rows = np.zeros(devices + 1, np.intp)
        for number, (begin, pool) in enumerate(self._pools):
            place = np.arange(len(pool.counters))
            draws = [bool(drawn) or parts is not None for drawn, parts in zip(pool.counters, pool.parts, strict=True)]
            self.pool[begin + place[draws]] = number
            self.place[begin + place] = place

    def __bool__(self) -> bool:
        return bool(self._pools)

    def is_local(self, device: int) -> bool:
        """Whether only one node's devices draw on the same rows."""
        _, pool = self._pools[int(self.pool[device])]
        return pool.local

    def is_shared(self, device: int) -> bool:
        """Whether a device is given in parts."""
        number = int(self.pool[device])
        return number >= 0 and self._pools[number][1].parts[self.place[device]] is not None

    def counters(self, device: int) -> Draws:
        """What a device draws on while it is allocated."""
        number = int(self.pool[device])
        if number < 0:
            return ()
        offset = self._offsets[number]
        return [(offset + row, drawn) for row, drawn in self._pools[number][1].counters[self.place[device]]]

    def share(self, device: int, consumed: Mapping[str, Amount]) -> Draws:
        """What a share of a device draws on besides; capacities that the device has not are left out."""
        number = int(self.pool[device])
        parts = self._pools[number][1].parts[self.place[device]] if number >= 0 else None
        if parts is None:
            return ()
        offset = self._offsets[number]
        return [(offset + parts[name], each.consumed) for name, each in consumed.items() if name in parts]

    def states(self, drawn: Amounts, pools: Rows) -> Rows:
        """Equal numbers for pools of which as much is left in rows that stand for the same, shape (all pools + 1,)."""
        out, numbers = np.full(len(self._pools) + 1, -1), dict[tuple[object, ...], int]()
        for number in pools.tolist():
            rows = slice(*self._offsets[number : number + 2])
            left = tuple(map(sub, self.limits[rows], drawn[rows]))
            out[number] = numbers.setdefault((self._pools[number][1].layout, left), len(numbers))
        return out


class Balance:
    """What is drawn of a stock."""

    def __init__(self, stock: Stock, drawn: Amounts | None = None, shares: Counter[int] | None = None) -> None:
        self.stock = stock
        self.drawn: Amounts = [0] * len(stock.limits) if drawn is None else drawn
        #: by the row of a device that is given in parts: how many it is given in
        self.shares: Counter[int] = Counter() if shares is None else shares

    def copy(self) -> Balance:
        """The same, to go on with apart."""
        return Balance(self.stock, self.drawn.copy(), self.shares.copy())

    def draws(self, device: int, consumed: Mapping[str, Amount] | None) -> Draws:
        """What a device draws on if it is given now, or a share of it that consumes so much."""
        if consumed is None:
            return self.stock.counters(device)
        counters = () if self.shares[device] else self.stock.counters(device)
        return (*counters, *self.stock.share(device, consumed))

    def has(self, draws: Draws) -> bool:
        """Whether there is so much left."""
        return all(self.drawn[row] + amount <= self.stock.limits[row] for row, amount in draws)

    def take(self, device: int, consumed: Mapping[str, Amount] | None) -> None:
        """Give a device, or a share of it."""
        self._draw(self.draws(device, consumed), 1)
        if consumed is not None:
            self.shares[device] += 1

    def give_back(self, device: int, consumed: Mapping[str, Amount] | None) -> None:
        """Take back what was given last like that."""
        if consumed is not None:
            self.shares[device] -= 1
        self._draw(self.draws(device, consumed), -1)

    def _draw(self, draws: Draws, sign: int) -> None:
        for row, amount in draws:
            self.drawn[row] += sign * amount
