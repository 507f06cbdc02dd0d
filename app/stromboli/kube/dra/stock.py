"""Shared counters of pools, and capacity of devices with multiple allocations, as rows with limits.

Limits are in thousandths, and no decision exceeds them. A device that consumes counters draws on them while it is
allocated; a device with multiple allocations draws on them once, and each of its shares draws on the rows of its
capacities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.kube.dra.capacity import Amount, Capacities

#: amounts in thousandths by row, as exact Python integers
Amounts: TypeAlias = list[int]
#: rows, and the amount drawn of each, in thousandths
Draws: TypeAlias = Sequence[tuple[int, int]]
#: counters by set and name
Counters: TypeAlias = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PoolStock:
    """The rows of one pool."""

    #: equal for pools with the same meaning of rows
    layout: tuple[tuple[str, str], ...]
    limits: tuple[int, ...]
    #: by device, in the order of the pool's offers: the counters that it draws on
    counters: tuple[Draws, ...]
    #: by device: the row of each capacity; None for a device that is allocated whole
    parts: tuple[Mapping[str, int] | None, ...]
    #: by device: the counter set that it draws on first, by number, and the sum of its fractions of counters
    sets: Sequence[int]
    fractions: Sequence[float]
    #: the rows of each counter set
    rows: Sequence[slice]
    #: whether all devices are those of one node
    local: bool


def pool_stock(
    sets: Mapping[str, Mapping[str, int]],
    devices: Sequence[tuple[Counters, Capacities | None]],
    *,
    local: bool,
) -> PoolStock:
    """The rows of a pool with counter sets; a device with multiple allocations comes with its capacities.

    Raises KeyError for a counter that no set has.
    """
    layout = [(name, counter) for name, counters in sets.items() for counter in counters]
    limits = [limit for counters in sets.values() for limit in counters.values()]
    row_of = {name: row for row, name in enumerate(layout)}
    set_of, ends = {name: number for number, name in enumerate(sets)}, list(accumulate(map(len, sets.values())))
    draws, parts = list[Draws](), list[Mapping[str, int] | None]()
    for number, (counters, capacities) in enumerate(devices):
        draws.append([(row_of[name, counter], drawn) for name, counter, drawn in counters])
        parts.append(None)
        if capacities is not None:
            first = len(layout)
            parts[-1] = {name: row for row, name in enumerate(capacities.amounts, first)}
            layout += ((f"/{number}", name) for name in capacities.amounts)
            limits += (each.limit for each in capacities.amounts.values())
    firsts = [set_of[counters[0][0]] if counters else -1 for counters, _ in devices]
    fractions = [sum(drawn / limits[row] for row, drawn in each if limits[row]) for each in draws]
    rows = list(map(slice, [0, *ends], ends))
    return PoolStock(tuple(layout), tuple(limits), tuple(draws), tuple(parts), firsts, fractions, rows, local)


class Stock:
    """The rows of all pools that have any."""

    def __init__(self, pools: Iterable[tuple[int, PoolStock]], devices: int) -> None:
        """Pools with the rows of their first devices, in order, and the number of devices."""
        self._pools = list(pools)
        self._offsets = [0, *accumulate(len(pool.limits) for _, pool in self._pools)]
        self.limits: Amounts = [limit for _, pool in self._pools for limit in pool.limits]
        #: the pool of each device that draws on anything, -1 for others, shape (devices + 1,)
        self.pool: Rows = np.full(devices + 1, -1)
        #: its position in the pool
        self.place: Rows = np.zeros(devices + 1, np.intp)
        #: the counter set of each device, -1 for none, and the sum of the fractions that it draws of counters
        self.counter_set: Rows = np.full(devices + 1, -1)
        self.fraction: Vector = np.zeros(devices + 1)
        self._sets: list[slice] = []
        for number, (begin, pool) in enumerate(self._pools):
            place = np.arange(len(pool.counters))
            draws = [bool(drawn) or parts is not None for drawn, parts in zip(pool.counters, pool.parts, strict=True)]
            self.pool[begin + place[draws]] = number
            self.place[begin + place] = place
            sets = np.array(pool.sets, np.intp)
            self.counter_set[begin + place] = np.where(sets < 0, -1, sets + len(self._sets))
            self.fraction[begin + place] = pool.fractions
            offset = self._offsets[number]
            self._sets += (slice(offset + rows.start, offset + rows.stop) for rows in pool.rows)

    def __bool__(self) -> bool:
        return bool(self._pools)

    def is_local(self, device: int) -> bool:
        """Whether only devices of one node draw on the same rows."""
        _, pool = self._pools[int(self.pool[device])]
        return pool.local

    def is_shared(self, device: int) -> bool:
        """Whether a device allows multiple allocations."""
        number = int(self.pool[device])
        return number >= 0 and self._pools[number][1].parts[self.place[device]] is not None

    def counters(self, device: int) -> Draws:
        """Counters that a device draws on while allocated, and amounts."""
        number = int(self.pool[device])
        if number < 0:
            return ()
        offset = self._offsets[number]
        return [(offset + row, drawn) for row, drawn in self._pools[number][1].counters[self.place[device]]]

    def share(self, device: int, consumed: Mapping[str, Amount]) -> Draws:
        """Amounts that a share of a device draws in addition; unknown capacities are ignored."""
        number = int(self.pool[device])
        parts = self._pools[number][1].parts[self.place[device]] if number >= 0 else None
        if parts is None:
            return ()
        offset = self._offsets[number]
        return [(offset + parts[name], each.consumed) for name, each in consumed.items() if name in parts]

    def left(self, counter_set: int, drawn: Amounts) -> float:
        """The mean fraction that is left of the counters of a set, 0 for no set."""
        if counter_set < 0:
            return 0.0
        rows = self._sets[counter_set]
        fractions = [(limit - of) / limit for limit, of in zip(self.limits[rows], drawn[rows], strict=True) if limit]
        return sum(fractions) / max(1, len(fractions))

    def states(self, drawn: Amounts, pools: Rows) -> Rows:
        """Equal numbers for pools with equal remaining amounts and meanings of rows, shape (all pools + 1,)."""
        out, numbers = np.full(len(self._pools) + 1, -1), dict[tuple[object, ...], int]()
        for number in pools.tolist():
            rows = slice(*self._offsets[number : number + 2])
            left = tuple(map(sub, self.limits[rows], drawn[rows]))
            out[number] = numbers.setdefault((self._pools[number][1].layout, left), len(numbers))
        return out


class Balance:
    """The amounts drawn of a stock."""

    def __init__(self, stock: Stock, drawn: Amounts | None = None, shares: Counter[int] | None = None) -> None:
        self.stock = stock
        self.drawn: Amounts = [0] * len(stock.limits) if drawn is None else drawn
        #: by the row of a device with multiple allocations: the number of its shares
        self.shares: Counter[int] = Counter() if shares is None else shares

    def copy(self) -> Balance:
        """An independent copy."""
        return Balance(self.stock, self.drawn.copy(), self.shares.copy())

    def draws(self, device: int, consumed: Mapping[str, Amount] | None) -> Draws:
        """Amounts that a device, or a share with some consumption, draws if it is allocated now."""
        if consumed is None:
            return self.stock.counters(device)
        counters = () if self.shares[device] else self.stock.counters(device)
        return (*counters, *self.stock.share(device, consumed))

    def has(self, draws: Draws) -> bool:
        """Whether enough is left."""
        return all(self.drawn[row] + amount <= self.stock.limits[row] for row, amount in draws)

    def sparing(self, devices: Rows) -> Rows:
        """Some devices in the order that leaves most to others: of the fullest counter sets first, and of one set those
        that draw least on it."""
        sets = self.stock.counter_set[devices]
        left = {each: self.stock.left(each, self.drawn) for each in set(sets.tolist())}
        fullest = np.array([left[each] for each in sets.tolist()], np.float64)
        return devices[np.lexsort((self.stock.fraction[devices], fullest))]

    def take(self, device: int, consumed: Mapping[str, Amount] | None) -> None:
        """Allocate a device or a share."""
        self._draw(self.draws(device, consumed), 1)
        if consumed is not None:
            self.shares[device] += 1

    def give_back(self, device: int, consumed: Mapping[str, Amount] | None) -> None:
        """Undo the last such allocation."""
        if consumed is not None:
            self.shares[device] -= 1
        self._draw(self.draws(device, consumed), -1)

    def _draw(self, draws: Draws, sign: int) -> None:
        for row, amount in draws:
            self.drawn[row] += sign * amount
