"""The devices of a cluster as rows, and what selectors read of them as columns of numbers.

Slices seldom change, so what was made of them is kept from session to session. Selectors and searches work on distinct
devices: those that agree in what is asked about count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import NodeSelector, Taint
from stromboli.api.resources import Mask, Rows
from stromboli.kube.dra.cel.device import Path, value_at
from stromboli.kube.dra.cel.values import CelError, Domains, Quantity, Version
from stromboli.kube.dra.objects import Attribute, DeviceBody, DeviceObjects, ResourceSlice, SliceSpec
from stromboli.kube.node_affinity import selected_nodes
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.snapshot import Snapshot

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

#: columns, groupings and answers that are kept
_KEPT = 256
#: numbers beyond this are made smaller before others are joined to them
_LARGEST = 2**40
#: so many numbers may have gaps
_FEW = 2**10


class DeviceId(NamedTuple):
    """What tells a device from all others."""

    driver: str
    pool: str
    device: str


def device_id(driver: str, pool: str, device: str) -> DeviceId:
    """The same texts are the same objects: claims name what slices name."""
    return DeviceId(intern(driver), intern(pool), intern(device))


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One device."""

    id: DeviceId
    #: what selectors read of it
    device: Mapping[str, Any]
    taints: tuple[Taint, ...]
    #: the node that has it; empty when several reach it
    node: str
    #: which nodes reach it then; None for all
    selector: NodeSelector | None

    def value(self, what: str, name: str) -> Any:
        """An attribute or a capacity by its name, which has the driver's domain when it names none; None without it."""
        domain, _, bare = name.rpartition("/")
        return self.device[what][domain or self.id.driver].get(bare)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows with equal numbers are alike."""

    #: shape (rows,), less than count
    of: Rows
    count: int

    def first(self, rows: Rows) -> Rows:
        """Of some rows the first of each group that they are in, in order of the groups."""
        found = np.full(self.count, -1)
        found[self.of[rows[::-1]]] = rows[::-1]
        return found[found >= 0]


def joined(columns: Iterable[Groups], size: int) -> Groups:
    """Rows that are alike in all columns; some numbers may have no row."""
    out, count = np.zeros(size, np.int64), 1
    for column in columns:
        out = column.of if count == 1 else out * column.count + column.of
        count *= column.count
        if count > _LARGEST:
            out, count = _renumbered(out, count)
    return Groups(*(_renumbered(out, count) if count > _FEW else (out, count)))


def _renumbered(numbers: Rows, count: int) -> tuple[Rows, int]:
    """The same without gaps, in the same order."""
    if count > 8 * len(numbers):
        used, out = np.unique(numbers, return_inverse=True)
        return out, len(used)
    present = np.zeros(count, np.bool_)
    present[numbers] = True
    index = np.cumsum(present) - 1
    return index[numbers], int(index[-1]) + 1


def numbered(values: Iterable[Hashable]) -> Groups:
    """Rows with equal values are alike."""
    numbers: dict[Hashable, int] = {}
    of = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
    return Groups(of, max(1, len(numbers)))


class Devices:
    """All devices of some slices, in order. The last row stands for no device.

    Devices that share counters with others are not offered: nobody counts them. Nor are those that are made ready after
    they were allocated: nobody waits for that.
    """

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self.offers: list[Offer] = []
        #: the row of each
        self.numbers: dict[DeviceId, int] = {}
        #: by the name of a node: the rows of the devices of it alone
        self.of_node: dict[str, list[int]] = {}
        #: rows of devices that several nodes reach, and which; None for all
        self.shared: list[tuple[int, NodeSelector | None]] = []
        self._kept: dict[Hashable, Any] = {}
        #: capacities by what is written: many devices have the same
        capacities: dict[bytes, Domains] = {}
        for resource_slice in slices:
            self._add(resource_slice, capacities)

    def __len__(self) -> int:
        return len(self.offers)

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made of the devices, made once while it is asked for now and then."""
        found: T | None = self._kept.pop(key, None)
        if found is None:
            found = make()
        self._kept[key] = found
        for unused in list(self._kept)[:-_KEPT]:
            self._kept.pop(unused, None)
        return found

    def column(self, key: Hashable, read: Callable[[Offer], Hashable]) -> Groups:
        """Devices of which the same is read; `key` says what that is."""
        return self.kept(("column", key), lambda: numbered([*map(read, self.offers), None]))

    def where(self, key: Hashable, read: Callable[[Offer], H], holds: Callable[[H], bool]) -> Mask:
        """Devices of which something holds that depends on what is read, shape (devices + 1,)."""
        groups = self.column(key, read)
        answers: Mask = np.zeros(groups.count, np.bool_)
        for row in groups.first(np.arange(len(self))).tolist():
            answers[groups.of[row]] = holds(read(self.offers[row]))
        mask: Mask = answers[groups.of]
        mask[-1] = False
        return mask

    def alike(self, paths: Iterable[Path]) -> Groups:
        """Devices that agree in what some paths lead to."""
        varying = tuple(sorted(path for path in paths if len(path) != 3 or path in self._paths))
        return self.kept(("alike", varying), lambda: joined(map(self._values, varying), len(self) + 1))

    def _values(self, path: Path) -> Groups:
        return self.column(path, lambda offer: value_at(offer.device, path))

    @cached_property
    def _paths(self) -> frozenset[Path]:
        """The paths to attributes and capacities that any device has."""
        return frozenset(
            (what, domain, name)
            for offer in self.offers
            for what in ("attributes", "capacity")
            for domain, named in offer.device[what].items()
            for name in named
        )

    def _add(self, resource_slice: ResourceSlice, capacities: dict[bytes, Domains]) -> None:
        spec = resource_slice.spec
        for device in spec.devices or ():
            body, number = device.body, device_id(spec.driver, spec.pool.name, device.name)
            place = body if spec.per_device_node_selection else spec
            if body.consumes_counters or body.binding_conditions or number in self.numbers:
                continue
            row = len(self.offers)
            if place.node_name:
                self.of_node.setdefault(place.node_name, []).append(row)
            elif place.all_nodes or place.node_selector is not None:
                self.shared.append((row, place.node_selector))
            else:
                continue
            self.numbers[number] = row
            written = msgspec.msgpack.encode((number.driver, body.capacity))
            if written not in capacities:
                capacities[written] = _capacity(number.driver, body)
            self.offers.append(_offer(number, body, place, capacities[written]))


def devices_of(snapshot: Snapshot, objects: DeviceObjects) -> Devices:
    """The devices of a snapshot, those from before while their slices are the same."""
    plain = snapshot.objects.get("ResourceSlice", NO_OBJECTS)
    known: Any = snapshot.derived.get(Devices)
    if known is None or plain.changed_since(known[0]):
        known = snapshot.derived[Devices] = plain, Devices(objects.slices())
    found: Devices = known[1]
    return found


def inventory(devices: Devices, facts: NodeFacts) -> Inventory:
    """Which nodes reach which devices, kept until one of them changes."""
    known = facts.cache.get(Inventory)
    if not isinstance(known, Inventory) or known.devices is not devices:
        known = facts.cache[Inventory] = Inventory(devices, facts)
    return known


class Inventory:
    """See `inventory`."""

    def __init__(self, devices: Devices, facts: NodeFacts) -> None:
        self.devices = devices
        self._facts = facts
        self._shared_rows = np.array([row for row, _ in devices.shared], np.int64)
        #: which of the shared devices each node reaches, shape (shared, nodes)
        self._reached: npt.NDArray[np.bool_] = np.array(
            [self._reaching(selector) for _, selector in devices.shared], np.bool_
        ).reshape(-1, len(facts))

    def on(self, node: int) -> Rows:
        """The devices that pods on a node can use, in order; those of the node alone come first."""
        local = self.local[node]
        return np.concatenate([local[local < len(self.devices)], self._shared_rows[self._reached[:, node]]])

    def is_shared(self, device: int) -> bool:
        """Whether several nodes reach a device."""
        return device in self._shared_rows

    @cached_property
    def local(self) -> Rows:
        """The devices of each node alone, filled up with the row for none, shape (nodes, most)."""
        index = self._facts.index
        placed = [(index[name], rows) for name, rows in self.devices.of_node.items() if name in index]
        out = np.full((len(self._facts), max((len(rows) for _, rows in placed), default=0)), len(self.devices))
        for node, rows in placed:
            out[node, : len(rows)] = rows
        return out

    @cached_property
    def nodes(self) -> Rows:
        """The nodes with any device."""
        some = (self.local < len(self.devices)).any(axis=1) | self.reaching_shared
        return np.flatnonzero(some)

    @cached_property
    def reach(self) -> Groups:
        """Nodes that reach the same shared devices."""
        packed = np.ascontiguousarray(np.packbits(self._reached, axis=0).T)
        return numbered(map(bytes, packed)) if len(self._shared_rows) else Groups(np.zeros(len(self._facts), int), 1)

    @cached_property
    def reaching_shared(self) -> Mask:
        """The nodes that reach shared devices, shape (nodes,)."""
        return np.asarray(self._reached.any(axis=0), np.bool_)

    def _reaching(self, selector: NodeSelector | None) -> Mask:
        return np.ones(len(self._facts), np.bool_) if selector is None else selected_nodes(selector, self._facts)


def _offer(number: DeviceId, device: DeviceBody, place: DeviceBody | SliceSpec, capacity: Domains) -> Offer:
    attributes = Domains()
    for name, attribute in (device.attributes or {}).items():
        _put(attributes, number.driver, name, _attribute(attribute))
    known: Mapping[str, Any] = {
        "driver": number.driver,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        "attributes": attributes,
        "capacity": capacity,
    }
    return Offer(number, known, tuple(device.taints or ()), place.node_name or "", place.node_selector)


def _capacity(driver: str, device: DeviceBody) -> Domains:
    found = Domains()
    for name, amount in (device.capacity or {}).items():
        try:
            _put(found, driver, name, Quantity(quantity.parse(amount.value)))
        except InvalidQuantityError:
            continue
    return found


def _put(domains: Domains, driver: str, name: str, value: Any) -> None:
    domain, _, bare = name.rpartition("/")
    fields: Any = domains.setdefault(domain or driver, {})
    fields[bare] = value


def _attribute(attribute: Attribute) -> Any:
    if attribute.version is not None:
        try:
            return Version(attribute.version)
        except CelError:
            return None
    values = (attribute.string, attribute.integer, attribute.boolean)
    return next((value for value in values if value is not None), None)
