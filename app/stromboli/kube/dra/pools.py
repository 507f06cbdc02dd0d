"""The devices that pools offer, kept from session to session: only pools of which a slice changed are read anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import NodeSelector, Taint
from stromboli.kube.dra.cel.values import CelError, Domains, Quantity, Version
from stromboli.kube.dra.objects import Attribute, DeviceBody, ResourceSlice, SliceSpec
from stromboli.state.plain import NO_OBJECTS, PlainObjects

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

#: different capacities, and names of attributes, that are kept
_KEPT = 1_000

#: domains and names
Names: TypeAlias = tuple[tuple[str, str], ...]


class Pool(NamedTuple):
    """What tells a pool from all others."""

    driver: str
    name: str


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
    #: domain and name of each attribute, which many devices share, and its value
    names: Names
    values: tuple[Any, ...]
    capacity: Domains
    multiple: bool
    taints: tuple[Taint, ...]
    #: the node that has it; empty when several reach it
    node: str
    #: which nodes reach it then; None for all
    selector: NodeSelector | None

    @property
    def attributes(self) -> Domains:
        """Its attributes by domain and name."""
        found = Domains()
        for (domain, name), value in zip(self.names, self.values, strict=True):
            fields: Any = found.setdefault(domain, {})
            fields[name] = value
        return found

    @property
    def device(self) -> dict[str, Any]:
        """What selectors read of it."""
        return {
            "driver": self.id.driver,
            "allowMultipleAllocations": self.multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    def value(self, of: Domains, name: str) -> Any:
        """An attribute or a capacity by its name, which has the driver's domain when it names none; None without it."""
        domain, bare = _name(self.id.driver, name)
        return of[domain].get(bare)


class _Slice(NamedTuple):
    """What of a slice decides whether its pool is complete."""

    pool: Pool
    generation: int
    #: slices that the pool has in that generation
    of: int


class Pools:
    """The pools of one snapshot that are complete.

    Devices that share counters with others are not offered: nobody counts them. Nor are those that are made ready after
    they were allocated: nobody waits for that.
    """

    def __init__(self, plain: PlainObjects, before: Pools | None = None) -> None:
        """`plain` are the slices; those that are as they were `before` are not read."""
        self.plain = plain
        #: by name of the slice
        self._slices: dict[str, _Slice] = before._slices.copy() if before else {}
        #: of each pool the names of all slices that can be read
        self._names: dict[Pool, frozenset[str]] = before._names.copy() if before else {}
        #: the devices of each pool that has any, in order of the slices and their lists
        self.offers: dict[Pool, tuple[Offer, ...]] = before.offers.copy() if before else {}
        #: the name of the first slice of each of these
        self._first: dict[Pool, str] = before._first.copy() if before else {}
        #: capacities by what is written: many devices have the same
        self._capacities: dict[bytes, Domains] = before._capacities if before else {}
        #: names of attributes by what is written
        self._attributes: dict[tuple[str, ...], Names] = before._attributes if before else {}
        #: pools of which a slice is another one than before
        self.changed: list[Pool] = []
        gone, come = defaultdict[Pool, list[str]](list), defaultdict[Pool, list[str]](list)
        for name in plain.changed_since(before.plain if before else NO_OBJECTS):
            known, found = self._slices.pop(name, None), self._read(name)
            if known is not None:
                gone[known.pool].append(name)
            if found is not None:
                self._slices[name] = found
                come[found.pool].append(name)
        for pool in gone | come:
            self._names[pool] = self._names.get(pool, frozenset()).difference(gone[pool]).union(come[pool])
            self.changed.append(pool)
            self._offer(pool)
        #: the pools with devices, by the names of their first slices; the same list while they are the same
        self.order: list[Pool] = (
            before.order
            if before and all(self._first.get(pool) == before._first.get(pool) for pool in self.changed)
            else sorted(self._first, key=self._first.__getitem__)
        )

    def _read(self, name: str) -> _Slice | None:
        """What is known of a slice, None when it is gone or cannot be read."""
        try:
            spec = self.plain.read(name, ResourceSlice).spec if name in self.plain else None
        except msgspec.ValidationError:
            return None
        if spec is None:
            return None
        return _Slice(
            Pool(intern(spec.driver), intern(spec.pool.name)), spec.pool.generation, spec.pool.resource_slice_count
        )

    def _offer(self, pool: Pool) -> None:
        """Set what a pool offers: of all its slices those of the newest generation, if there are as many as it has."""
        self.offers.pop(pool, None)
        self._first.pop(pool, None)
        names = sorted(self._names[pool])
        if not names:
            del self._names[pool]
            return
        newest = max(self._slices[name].generation for name in names)
        current = [name for name in names if self._slices[name].generation == newest]
        if len(current) == self._slices[current[0]].of:
            slices = (self.plain.read(name, ResourceSlice) for name in current)
            offers = tuple(self._offers(pool, slices))
            if offers:
                self.offers[pool], self._first[pool] = offers, names[0]

    def _offers(self, pool: Pool, slices: Iterable[ResourceSlice]) -> Iterator[Offer]:
        seen = set[str]()
        for spec in (each.spec for each in slices):
            for device in spec.devices or ():
                body = device.body
                place: DeviceBody | SliceSpec = body if spec.per_device_node_selection else spec
                reached = place.node_name or place.all_nodes or place.node_selector is not None
                if body.consumes_counters or body.binding_conditions or device.name in seen or not reached:
                    continue
                seen.add(device.name)
                yield Offer(
                    device_id(*pool, device.name),
                    self._names_of(pool.driver, body.attributes or {}),
                    tuple(map(_value, (body.attributes or {}).values())),
                    self._capacity(pool.driver, body),
                    bool(body.allow_multiple_allocations),
                    tuple(body.taints or ()),
                    intern(place.node_name or ""),
                    None if place.node_name else place.node_selector,
                )

    def _names_of(self, driver: str, attributes: Iterable[str]) -> Names:
        return _kept(self._attributes, (driver, *attributes), lambda: tuple(_name(driver, each) for each in attributes))

    def _capacity(self, driver: str, body: DeviceBody) -> Domains:
        written = msgspec.msgpack.encode((driver, body.capacity))
        return _kept(self._capacities, written, lambda: _amounts(driver, body))


def _kept(known: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """What is known by a key; what is made for it from now on, where nothing is."""
    found = known.get(key)
    if found is None:
        if len(known) >= _KEPT:
            known.clear()
        found = known[key] = make()
    return found


def _amounts(driver: str, body: DeviceBody) -> Domains:
    found = Domains()
    for name, amount in (body.capacity or {}).items():
        try:
            value = Quantity(quantity.parse(amount.value))
        except InvalidQuantityError:
            continue
        domain, bare = _name(driver, name)
        fields: Any = found.setdefault(domain, {})
        fields[bare] = value
    return found


def _name(driver: str, name: str) -> tuple[str, str]:
    """Domain and name, which has the driver's domain when it names none."""
    domain, _, bare = name.rpartition("/")
    return intern(domain or driver), intern(bare)


def _value(attribute: Attribute) -> Any:
    if attribute.version is not None:
        try:
            return Version(attribute.version)
        except CelError:
            return None
    values = (attribute.string, attribute.integer, attribute.boolean)
    return next((value for value in values if value is not None), None)
