"""The devices of a cluster as rows, and what selectors read of them as columns of numbers.

Slices seldom change, so derived columns are kept from session to session. Selectors and searches run on distinct
devices: devices with equal relevant properties count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.cel.device import Path, value_at
from stromboli.kube.dra.pools import DeviceId, Offer, Pool, Pools
from stromboli.kube.dra.stock import Stock
from stromboli.kube.dra.taint_rules import TaintRules
from stromboli.kube.node_affinity import selected_nodes
from stromboli.state.columns import Column
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.snapshot import Snapshot

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

#: limits on cached groupings and results, and on columns that are updated when devices change
_KEPT, _COLUMNS = 256, 64
#: larger numbers are compacted before they are joined with others
_LARGEST = 2**40
#: numbers are compacted by sorting if their range is this many times larger than their count
_MOST_GAPS = 8
#: a removed row
_GONE = -1
#: an update is incremental while the new devices are at most this fraction
_FEW_NEW = 16
#: gaps in numbers that are tolerated
_FEW = 2**10


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A grouping of rows: equal numbers mean the same group."""

    #: shape (rows,), less than count
    of: Rows
    count: int

    def first(self, rows: Rows) -> Rows:
        """The first of some rows in each group, in order of the groups."""
        # the copy takes less time than iterating backwards twice
        found, backwards = np.full(self.count, -1), np.ascontiguousarray(rows[::-1])
        found[self.of.take(backwards)] = backwards
        return found[found >= 0]


def joined(columns: Iterable[Groups], size: int) -> Groups:
    """The common refinement of several groupings; some numbers may be unused."""
    out, count = np.zeros(size, np.int64), 1
    for column in columns:
        # Compact at the last step that needs no sorting, or before numbers get too large.
        if count <= _MOST_GAPS * size < count * column.count or count > _LARGEST:
            out, count = _renumbered(out, count)
        out = column.of if count == 1 else out * column.count + column.of
        count *= column.count
    return Groups(*(_renumbered(out, count) if count > _FEW else (out, count)))


def _renumbered(numbers: Rows, count: int) -> tuple[Rows, int]:
    """The grouping without gaps in numbers, in the same order."""
    if count > _MOST_GAPS * len(numbers):
        used, out = np.unique(numbers, return_inverse=True)
        return out, len(used)
    present = np.zeros(count, np.bool_)
    present[numbers] = True
    used, index = np.flatnonzero(present), np.zeros(count, np.int64)
    index[used] = np.arange(len(used))
    return index.take(numbers), len(used)


def numbered(values: Iterable[Hashable]) -> Groups:
    """The grouping of rows by equal values."""
    numbers: dict[Hashable, int] = {}
    of = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
    return Groups(of, max(1, len(numbers)))


class Devices:
    """All devices of some pools, in order. The last row stands for no device."""

    def __init__(self, pools: Pools, before: Devices | None = None) -> None:
        """Columns of `before` are taken over for unchanged pools."""
        self.pools = pools
        of_pool, order = pools.offers, pools.order
        sizes = np.fromiter(map(len, map(of_pool.__getitem__, order)), np.intp, len(order))
        self.offers: list[Offer] = list(chain.from_iterable(map(of_pool.__getitem__, order)))
        same = before is not None and before.pools.order is order
        #: the position of each pool, and its first row
        self._places: dict[Pool, int] = (
            before._places if before is not None and same else dict(zip(order, range(len(order)), strict=True))
        )
        self._begins: Rows = np.cumsum(sizes) - sizes
        #: identities of this version, and of the version that it was made from
        self.version = object()
        self.before = before.version if before is not None else None
        #: the row of each device in the earlier version, -1 for a new one, shape (devices,)
        self.origin: Rows = np.full(len(self.offers), -1)
        self._columns: dict[Hashable, tuple[Callable[[Offer], Any], Column[Any]]] = {}
        self._kept: dict[Hashable, Any] = {}
        #: paths to attributes and capacities that any device has or had
        self._paths: frozenset[Path] = frozenset()
        if before is not None:
            was = before._begins.copy() if same else before._where(order)
            was[[self._places[pool] for pool in pools.changed if pool in self._places]] = -1
            self.origin = np.repeat(was - self._begins, sizes) + np.arange(len(self.offers))
            self.origin[np.repeat(was < 0, sizes)] = -1
            self._paths = before._paths
            self._columns = {
                key: (read, Column.read(self.offers, read, column, self.origin))
                for key, (read, column) in list(before._columns.items())
            }
        self._paths |= self._paths_of(self.new)

    def __len__(self) -> int:
        return len(self.offers)

    @cached_property
    def stock(self) -> Stock:
        """The shared counters and capacities that devices draw on."""
        pools = self.pools.stocks
        begins = sorted((int(self._begins[self._places[pool]]), pool) for pool in pools)
        return Stock([(begin, pools[pool]) for begin, pool in begins], len(self))

    @cached_property
    def late(self) -> Mask:
        """The devices of pools that are tried last, shape (devices,)."""
        out: Mask = np.zeros(len(self), np.bool_)
        for pool in self.pools.late:
            begin = self._begins[self._places[pool]]
            out[begin : begin + len(self.pools.offers[pool])] = True
        return out

    def late_last(self, rows: Rows) -> Rows:
        """Some devices, those of pools that are tried last behind the others, else in the same order."""
        return rows[np.argsort(self.late[rows], kind="stable")] if self.pools.late else rows

    @cached_property
    def new(self) -> Rows:
        """The rows of devices that are not in the earlier version."""
        return np.flatnonzero(self.origin < 0)

    def row(self, device: DeviceId) -> int:
        """The row of a device, -1 if it is not offered."""
        pool = Pool(device.driver, device.pool)
        offers = self.pools.offers.get(pool, ())
        index = next((at for at, offer in enumerate(offers) if offer.id.device == device.device), None)
        return -1 if index is None else int(self._begins[self._places[pool]]) + index

    def _where(self, pools: list[Pool]) -> Rows:
        """The first row of each of some pools, -1 for absent pools."""
        return np.append(self._begins, -1)[[self._places.get(pool, -1) for pool in pools]]

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value derived from the devices, cached while it is in regular use."""
        found: T | None = self._kept.pop(key, None)
        if found is None:
            found = make()
        self._kept[key] = found
        for unused in list(self._kept)[:-_KEPT]:
            self._kept.pop(unused, None)
        return found

    def column(self, key: Hashable, read: Callable[[Offer], Hashable]) -> Groups:
        """The grouping of devices by what `read` returns; `key` identifies it. The row of no device has None."""
        return self.kept(("column", key), lambda: self._grouped(self.values(key, read)))

    def values(self, key: Hashable, read: Callable[[Offer], H | None]) -> Column[H]:
        """The value of each device."""
        known = self._columns.pop(key, None)
        found = known[1] if known else Column.read(self.offers, read, None, np.full(len(self), -1))
        self._columns[key] = read, found
        for unused in list(self._columns)[:-_COLUMNS]:
            self._columns.pop(unused, None)
        return found

    def _grouped(self, column: Column[Any]) -> Groups:
        of = np.zeros(len(self) + 1, np.int64)
        np.add(column.numbers, 1, out=of[:-1])
        return Groups(of, len(column.values) + 1)

    def where(self, key: Hashable, read: Callable[[Offer], H], holds: Callable[[H], bool]) -> Mask:
        """Whether a predicate holds for the value of `read` for each device, shape (devices + 1,)."""
        groups = self.column(key, read)
        answers: Mask = np.zeros(groups.count, np.bool_)
        for row in self.kept(("first", key), lambda: groups.first(np.arange(len(self))).tolist()):
            answers[groups.of[row]] = holds(read(self.offers[row]))
        mask: Mask = answers.take(groups.of)
        mask[-1] = False
        return mask

    def alike(self, paths: Iterable[Path]) -> Groups:
        """The grouping of devices by their values at some paths."""
        varying = tuple(sorted(path for path in paths if len(path) != 3 or path in self._paths))
        return self.kept(("alike", varying), lambda: joined(map(self._values, varying), len(self) + 1))

    def _values(self, path: Path) -> Groups:
        return self.column(path, lambda offer: value_at(offer.device, path))

    def _paths_of(self, rows: Rows) -> frozenset[Path]:
        """The paths to attributes and capacities that some devices have."""
        offers = [self.offers[row] for row in rows.tolist()]
        attributes = set(chain.from_iterable(offer.names for offer in offers))
        capacities = ((domain, name) for offer in offers for domain, named in offer.capacity.items() for name in named)
        return frozenset(
            (what, *path)
            for what, paths in (("attributes", attributes), ("capacity", set(capacities)))
            for path in paths
        )


def devices_of(snapshot: Snapshot) -> Devices:
    """The devices of a snapshot; the earlier ones while slices and taint rules are unchanged."""
    slices, rules = (snapshot.objects.get(kind, NO_OBJECTS) for kind in ("ResourceSlice", "DeviceTaintRule"))
    known = cast("Devices | None", snapshot.derived.get(Devices))
    before = known.pools if known else None
    if before is None or slices.changed_since(before.plain) or rules.changed_since(before.rules.plain):
        pools = Pools(slices, TaintRules(rules, before.rules if before else None), before)
        known = snapshot.derived[Devices] = Devices(pools, known)
    assert known is not None
    return known


def inventory(devices: Devices, facts: NodeFacts, snapshot: Snapshot) -> Inventory:
    """Devices that each node of a snapshot can access, kept until one of them changes."""
    known = cast("Inventory | None", snapshot.derived.get(Inventory))
    if known is None or known.devices is not devices or known.facts is not facts:
        known = snapshot.derived[Inventory] = Inventory(devices, facts, known)
    return known


class Inventory:
    """The devices of nodes; `inventory` makes or reuses one for a snapshot."""

    def __init__(self, devices: Devices, facts: NodeFacts, before: Inventory | None = None) -> None:
        self.devices = devices
        self.facts = facts
        self._alone = devices.values("node", lambda offer: offer.node or None)
        self._shared_rows = np.flatnonzero(self._alone.numbers < 0)
        #: the devices of each node alone, padded with the row of no device, shape (nodes, most)
        self.local: Rows = self._local_after(before) if before is not None else self._local()
        #: whether each node can access each shared device, shape (shared, nodes)
        self._reached: npt.NDArray[np.bool_] = self._reaching()

    def on(self, node: int) -> Rows:
        """The devices that pods on a node can use, in order; those of pools with binding conditions come last."""
        local = self.local[node]
        rows = np.sort(np.concatenate([local[local < len(self.devices)], self._shared_rows[self._reached[:, node]]]))
        return self.devices.late_last(rows)

    def totals(self, amounts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The sum over the devices that each node can access, of values with shape (devices + 1,), the last 0."""
        local: npt.NDArray[np.int64] = amounts[self.local].sum(axis=1)
        return local + amounts[self._shared_rows] @ self._reached

    def is_shared(self, device: int) -> bool:
        """Whether several nodes can access a device."""
        return device in self._shared_rows

    @cached_property
    def nodes(self) -> Rows:
        """The nodes with any device."""
        some = (self.local < len(self.devices)).any(axis=1) | self.reaching_shared
        return np.flatnonzero(some)

    @cached_property
    def unready(self) -> Mask:
        """The nodes that reach a pool with missing slices or an inconsistent pool, shape (nodes,)."""
        out: Mask = np.zeros(len(self.facts), np.bool_)
        for place in chain.from_iterable(self.devices.pools.unready.values()):
            if not place.node:
                out |= True if place.selector is None else selected_nodes(place.selector, self.facts)
            elif place.node in self.facts.index:
                out[self.facts.index[place.node]] = True
        return out

    @cached_property
    def reach(self) -> Groups:
        """The grouping of nodes by the shared devices that they can access."""
        packed = np.ascontiguousarray(np.packbits(self._reached, axis=0).T)
        return numbered(map(bytes, packed)) if len(self._shared_rows) else Groups(np.zeros(len(self.facts), int), 1)

    @cached_property
    def reaching_shared(self) -> Mask:
        """The nodes that can access shared devices, shape (nodes,)."""
        return np.asarray(self._reached.any(axis=0), np.bool_)

    def _local_after(self, before: Inventory) -> Rows:
        """The devices of each node alone, updated from an earlier version where they have changed."""
        mine, its, devices = self._alone, before._alone, self.devices
        if before.facts.index is not self.facts.index:
            return self._local()
        if mine.values is its.values and np.array_equal(mine.numbers, its.numbers):
            return before.local
        if devices.before is not before.devices.version or len(devices.new) * _FEW_NEW > len(devices):
            return self._local()
        none, new = len(devices), devices.new
        row_now = np.full(len(before.devices) + 1, _GONE)
        kept = np.flatnonzero(devices.origin >= 0)
        row_now[devices.origin[kept]], row_now[-1] = kept, none
        out: Rows = row_now[before.local]
        nodes = [self.facts.index.get(mine.value(row) or "", -1) for row in new.tolist()]
        where = np.array(nodes, np.intp)
        fewer = np.flatnonzero(out.ravel() == _GONE) // max(1, out.shape[1])
        for node in {*where[where >= 0].tolist(), *fewer.tolist()}:
            others = out[node][(out[node] != _GONE) & (out[node] < none)]
            rows = np.sort(np.concatenate([others, new[where == node]]))
            if len(rows) > out.shape[1]:
                out = np.pad(out, ((0, 0), (0, len(rows) - out.shape[1])), constant_values=none)
            out[node] = none
            out[node, : len(rows)] = rows
        most = out.shape[1]
        while most and (out[:, most - 1] == none).all():
            most -= 1
        return out[:, :most]

    def _local(self) -> Rows:
        names, size = self._alone.values, len(self.facts)
        nodes = np.fromiter(map(self.facts.index.get, names, repeat(-1)), np.intp, len(names))
        of_row = np.append(nodes, -1)[self._alone.numbers]
        rows = np.flatnonzero(of_row >= 0)
        of_row = of_row[rows]
        counts = np.bincount(of_row, minlength=size)
        out = np.full((size, int(counts.max(initial=0))), len(self.devices))
        # Sorting small integers takes a tenth of the time.
        order = np.argsort(of_row.astype(np.uint16) if size < 2**16 else of_row, kind="stable")
        begins = np.cumsum(counts) - counts
        out[of_row[order], np.arange(len(rows)) - np.repeat(begins, counts)] = rows[order]
        return out

    def _reaching(self) -> npt.NDArray[np.bool_]:
        selectors = [self.devices.offers[row].selector for row in self._shared_rows.tolist()]
        masks = {id(None): np.ones(len(self.facts), np.bool_)}
        for selector in selectors:
            if selector is not None and id(selector) not in masks:
                masks[id(selector)] = selected_nodes(selector, self.facts)
        return np.array([masks[id(selector)] for selector in selectors], np.bool_).reshape(-1, len(self.facts))
