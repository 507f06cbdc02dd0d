"""The devices that pools offer, kept from session to session: only pools of which a slice changed are read anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

import msgspec

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import NodeSelector, Taint
from stromboli.kube.dra.cel.values import CelError, Domains, Quantity, Version
from stromboli.kube.dra.objects import Attribute, DeviceBody, ResourceSlice, SliceSpec
from stromboli.state.plain import NO_OBJECTS, PlainObjects

#: different capacities that are kept
_CAPACITIES = 1_000


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
    attributes: Domains
    capacity: Domains
    multiple: bool
    taints: tuple[Taint, ...]
    #: the node that has it; empty when several reach it
    node: str
    #: which nodes reach it then; None for all
    selector: NodeSelector | None

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
        domain, _, bare = name.rpartition("/")
        return of[domain or self.id.driver].get(bare)


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
                    _attributes(pool.driver, body),
                    self._capacity(pool.driver, body),
                    bool(body.allow_multiple_allocations),
                    tuple(body.taints or ()),
                    intern(place.node_name or ""),
                    None if place.node_name else place.node_selector,
                )

    def _capacity(self, driver: str, body: DeviceBody) -> Domains:
        written = msgspec.msgpack.encode((driver, body.capacity))
        known = self._capacities.get(written)
        if known is None:
            if len(self._capacities) >= _CAPACITIES:
                self._capacities.clear()
            known = self._capacities[written] = _amounts(driver, body)
        return known


def _attributes(driver: str, body: DeviceBody) -> Domains:
    found = Domains()
    for name, attribute in (body.attributes or {}).items():
        _put(found, driver, name, _value(attribute))
    return found


def _amounts(driver: str, body: DeviceBody) -> Domains:
    found = Domains()
    for name, amount in (body.capacity or {}).items():
        try:
            _put(found, driver, name, Quantity(quantity.parse(amount.value)))
        except InvalidQuantityError:
            continue
    return found


def _put(domains: Domains, driver: str, name: str, value: Any) -> None:
    domain, _, bare = name.rpartition("/")
    fields: Any = domains.setdefault(intern(domain or driver), {})
    fields[intern(bare)] = value


def _value(attribute: Attribute) -> Any:
    if attribute.version is not None:
        try:
            return Version(attribute.version)
        except CelError:
            return None
    values = (attribute.string, attribute.integer, attribute.boolean)
    return next((value for value in values if value is not None), None)
