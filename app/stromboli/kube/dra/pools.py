"""The devices that pools offer, kept from session to session: only pools of which a slice changed are read anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import NodeSelector, Taint
from stromboli.kube.dra.capacity import Capacities, amount
from stromboli.kube.dra.cel.values import CelError, Domains, Quantity, Version
from stromboli.kube.dra.objects import Attribute, DeviceBody, ResourceSlice, SliceSpec
from stromboli.kube.dra.stock import Counters, PoolStock, pool_stock
from stromboli.kube.dra.taint_rules import TaintRules, concerns, taints
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


class Binding(NamedTuple):
    """What is waited for between the allocation of a device and the binding of its pod."""

    #: conditions that must be true
    conditions: tuple[str, ...]
    #: those of which none may be
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One device."""

    id: DeviceId
    #: domain and name of each attribute, which many devices share, and its value
    names: Names
    values: tuple[Any, ...]
    capacity: Domains
    #: the same by the names that the slice gives them, one object for devices that have the same
    capacities: Capacities
    #: whether it may be allocated several times
    multiple: bool
    taints: tuple[Taint, ...]
    #: the node that has it; empty when several reach it
    node: str
    #: which nodes reach it then; None for all
    selector: NodeSelector | None
    #: what it draws on while it is allocated
    counters: Counters
    #: what the driver has to say of it before its pod is bound; None when there is nothing to wait for
    binding: Binding | None
    #: whether it is for the node alone of the pod that it was allocated for, wherever else it could have been used
    binds_to_node: bool

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
    """The pools of one snapshot that are complete and consistent.

    A pool that names a device twice, or counters that it has not, offers nothing.
    """

    def __init__(self, plain: PlainObjects, rules: TaintRules, before: Pools | None = None) -> None:
        """`plain` are the slices; those that are as they were `before` are not read."""
        self.plain = plain
        #: taints beside those in slices
        self.rules = rules
        #: by name of the slice
        self._slices: dict[str, _Slice] = before._slices.copy() if before else {}
        #: of each pool the names of all slices that can be read
        self._names: dict[Pool, frozenset[str]] = before._names.copy() if before else {}
        #: the devices of each pool that has any, in order of the slices and their lists
        self.offers: dict[Pool, tuple[Offer, ...]] = before.offers.copy() if before else {}
        #: the name of the first slice of each of these
        self._first: dict[Pool, str] = before._first.copy() if before else {}
        #: pools of which devices draw on counters or are given in parts
        self.stocks: dict[Pool, PoolStock] = before.stocks.copy() if before else {}
        #: pools with devices that are waited for: they are asked last
        self.late: set[Pool] = before.late.copy() if before else set()
        #: capacities by what is written: many devices have the same
        self._capacities: dict[bytes, tuple[Domains, Capacities]] = before._capacities if before else {}
        #: names of attributes by what is written
        self._attributes: dict[tuple[str, ...], Names] = before._attributes if before else {}
        gone, come = defaultdict[Pool, list[str]](list), defaultdict[Pool, list[str]](list)
        for name in plain.changed_since(before.plain if before else NO_OBJECTS):
            known, found = self._slices.pop(name, None), self._read(name)
            if known is not None:
                gone[known.pool].append(name)
            if found is not None:
                self._slices[name] = found
                come[found.pool].append(name)
        changed = dict.fromkeys(gone | come)
        for pool in changed:
            self._names[pool] = self._names.get(pool, frozenset()).difference(gone[pool]).union(come[pool])
        for rule in rules.changed:
            changed |= dict.fromkeys(pool for pool in self._names if concerns(rule, *pool))
        #: pools of which a slice, or a rule about their taints, is another one than before
        self.changed: list[Pool] = [*changed]
        for pool in self.changed:
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
        for known in (self.offers, self._first, self.stocks):
            known.pop(pool, None)
        self.late.discard(pool)
        names = sorted(self._names[pool])
        if not names:
            del self._names[pool]
            return
        newest = max(self._slices[name].generation for name in names)
        current = [name for name in names if self._slices[name].generation == newest]
        if len(current) == self._slices[current[0]].of:
            specs = [self.plain.read(name, ResourceSlice).spec for name in current]
            try:
                offers = tuple(self._offers(pool, specs))
                stock = _stock(specs, offers)
            except (KeyError, InvalidQuantityError):
                return
            if len({offer.id for offer in offers}) < len(offers):
                return
            if offers:
                self.offers[pool], self._first[pool] = offers, names[0]
                if stock is not None:
                    self.stocks[pool] = stock
                if any(offer.binding for offer in offers):
                    self.late.add(pool)

    def _offers(self, pool: Pool, specs: Iterable[SliceSpec]) -> Iterator[Offer]:
        rules = self.rules.of_pool(*pool)
        for spec in specs:
            for device in spec.devices or ():
                body = device.body
                place: DeviceBody | SliceSpec = body if spec.per_device_node_selection else spec
                if not (place.node_name or place.all_nodes or place.node_selector is not None):
                    continue
                capacity, capacities = self._capacity(pool.driver, body)
                yield Offer(
                    device_id(*pool, device.name),
                    self._names_of(pool.driver, body.attributes or {}),
                    tuple(map(_value, (body.attributes or {}).values())),
                    capacity,
                    capacities,
                    bool(body.allow_multiple_allocations),
                    (*(body.taints or ()), *taints(rules, device.name)),
                    intern(place.node_name or ""),
                    None if place.node_name else place.node_selector,
                    _counters(body) if body.consumes_counters else (),
                    _binding(body) if body.binding_conditions else None,
                    bool(body.binds_to_node),
                )

    def _names_of(self, driver: str, attributes: Iterable[str]) -> Names:
        return _kept(self._attributes, (driver, *attributes), lambda: tuple(_name(driver, each) for each in attributes))

    def _capacity(self, driver: str, body: DeviceBody) -> tuple[Domains, Capacities]:
        written = msgspec.msgpack.encode((driver, body.capacity))
        return _kept(self._capacities, written, lambda: (_amounts(driver, body), Capacities(body.capacity or {})))


def _kept(known: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """What is known by a key; what is made for it from now on, where nothing is."""
    found = known.get(key)
    if found is None:
        if len(known) >= _KEPT:
            known.clear()
        found = known[key] = make()
    return found


def _stock(specs: Iterable[SliceSpec], offers: Sequence[Offer]) -> PoolStock | None:
    """What the devices of a pool draw on, None for nothing. Raises KeyError and InvalidQuantityError."""
    if not any(offer.counters or offer.multiple for offer in offers):
        return None
    sets: dict[str, dict[str, int]] = {}
    for each in (each for spec in specs for each in spec.shared_counters or ()):
        if each.name in sets:
            raise KeyError(each.name)
        sets[each.name] = {name: amount(counter.value).limit for name, counter in (each.counters or {}).items()}
    devices = [(offer.counters, offer.capacities if offer.multiple else None) for offer in offers]
    nodes = {offer.node for offer in offers}
    return pool_stock(sets, devices, local=len(nodes) == 1 and "" not in nodes)


def _counters(body: DeviceBody) -> Counters:
    """What a device consumes. Raises InvalidQuantityError."""
    return tuple(
        (intern(each.counter_set), intern(name), amount(counter.value).consumed)
        for each in body.consumes_counters or ()
        for name, counter in (each.counters or {}).items()
    )


def _binding(body: DeviceBody) -> Binding:
    return Binding(tuple(body.binding_conditions or ()), tuple(body.binding_failure_conditions or ()))


def _amounts(driver: str, body: DeviceBody) -> Domains:
    found = Domains()
    for name, each in (body.capacity or {}).items():
        try:
            value = Quantity(quantity.parse(each.value))
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
