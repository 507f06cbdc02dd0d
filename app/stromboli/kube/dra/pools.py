"""The devices that pools offer, kept from session to session: only pools with a changed slice are read again."""

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

#: limits on cached capacities and attribute names
_KEPT = 1_000

#: domains and names
Names: TypeAlias = tuple[tuple[str, str], ...]


class Pool(NamedTuple):
    """Identifies a pool."""

    driver: str
    name: str


class DeviceId(NamedTuple):
    """Identifies a device."""

    driver: str
    pool: str
    device: str


def device_id(driver: str, pool: str, device: str) -> DeviceId:
    """Interns texts, since claims repeat the names in slices."""
    return DeviceId(intern(driver), intern(pool), intern(device))


class Place(NamedTuple):
    """The nodes that reach a device."""

    #: the only node; empty if it may be several
    node: str
    #: which nodes then; None for all
    selector: NodeSelector | None


class Binding(NamedTuple):
    """The binding conditions of a device."""

    #: conditions that must be true
    conditions: tuple[str, ...]
    #: conditions that must not be true
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A device of a pool."""

    id: DeviceId
    #: domain and name of each attribute, shared by many devices, and its value
    names: Names
    values: tuple[Any, ...]
    capacity: Domains
    #: capacities by the names in the slice, one object for all devices with equal ones
    capacities: Capacities
    #: whether multiple allocations are allowed
    multiple: bool
    taints: tuple[Taint, ...]
    #: the only node that can access it; empty if several can
    node: str
    #: the nodes that can access it then; None for all
    selector: NodeSelector | None
    #: counters that it draws on while allocated
    counters: Counters
    #: its binding conditions, None without any
    binding: Binding | None
    #: whether it is bound to the node of the pod that it was allocated for
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
        """The properties that selectors read."""
        return {
            "driver": self.id.driver,
            "allowMultipleAllocations": self.multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    def value(self, of: Domains, name: str) -> Any:
        """An attribute or capacity by name, in the driver's domain by default; None if it does not exist."""
        domain, bare = _name(self.id.driver, name)
        return of[domain].get(bare)


class _Slice(NamedTuple):
    """The fields of a slice that decide whether its pool is complete."""

    pool: Pool
    generation: int
    #: number of slices of the pool in that generation
    of: int


class Pools:
    """The complete and consistent pools of one snapshot.

    A pool that repeats a device or refers to an unknown counter offers nothing, nor does one that lacks slices.
    """

    def __init__(self, plain: PlainObjects, rules: TaintRules, before: Pools | None = None) -> None:
        """`plain` are the slices; those that are unchanged since `before` are not read again."""
        self.plain = plain
        #: taints from DeviceTaintRules
        self.rules = rules
        #: by name of the slice
        self._slices: dict[str, _Slice] = before._slices.copy() if before else {}
        #: by pool, the names of all readable slices
        self._names: dict[Pool, frozenset[str]] = before._names.copy() if before else {}
        #: by pool with devices, its devices in order of slices and lists
        self.offers: dict[Pool, tuple[Offer, ...]] = before.offers.copy() if before else {}
        #: the places of pools that are inconsistent or have missing slices
        self.unready: dict[Pool, tuple[Place, ...]] = before.unready.copy() if before else {}
        #: pools with devices that draw on counters or allow multiple allocations
        self.stocks: dict[Pool, PoolStock] = before.stocks.copy() if before else {}
        #: pools with binding conditions, which are tried last
        self.late: set[Pool] = before.late.copy() if before else set()
        #: capacities by spelling, since many devices have equal ones
        self._capacities: dict[bytes, tuple[Domains, Capacities]] = before._capacities if before else {}
        #: names of attributes by spelling
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
        #: pools with a slice or taint rule that has changed
        self.changed: list[Pool] = [*changed]
        for pool in self.changed:
            self._offer(pool)
        #: the pools with devices, by driver and name; the same list object while unchanged
        self.order: list[Pool] = (
            before.order
            if before and all((pool in self.offers) == (pool in before.offers) for pool in self.changed)
            else sorted(self.offers)
        )

    def _read(self, name: str) -> _Slice | None:
        """The decoded slice, None if it was deleted or cannot be read."""
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
        """Compute the offer of a pool: its slices of the newest generation, if they are complete and consistent."""
        for known in (self.offers, self.unready, self.stocks):
            known.pop(pool, None)
        self.late.discard(pool)
        names = sorted(self._names[pool])
        if not names:
            del self._names[pool]
            return
        newest = max(self._slices[name].generation for name in names)
        current = [name for name in names if self._slices[name].generation == newest]
        specs = [self.plain.read(name, ResourceSlice).spec for name in current]
        try:
            offers = tuple(self._offers(pool, specs))
            stock = _stock(specs, offers)
        except (KeyError, InvalidQuantityError):
            offers, stock = (), None
            self.unready[pool] = _places(specs)
        if len(current) != self._slices[current[0]].of or len({offer.id for offer in offers}) < len(offers):
            self.unready[pool] = _places(specs)
        elif offers:
            self.offers[pool] = offers
            if stock is not None:
                self.stocks[pool] = stock
            if any(offer.binding for offer in offers):
                self.late.add(pool)

    def _offers(self, pool: Pool, specs: Iterable[SliceSpec]) -> Iterator[Offer]:
        rules = self.rules.of_pool(*pool)
        for spec in specs:
            for device in spec.devices or ():
                body = device.body
                place = _place(body if spec.per_device_node_selection else spec)
                if place is None:
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
                    place.node,
                    place.selector,
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
    """The value of a key, created if absent."""
    found = known.get(key)
    if found is None:
        if len(known) >= _KEPT:
            known.clear()
        found = known[key] = make()
    return found


def _place(of: DeviceBody | SliceSpec) -> Place | None:
    """The nodes that reach a slice or a device; None if these are not known."""
    if of.node_name:
        return Place(intern(of.node_name), None)
    return Place("", of.node_selector) if of.all_nodes or of.node_selector is not None else None


def _places(specs: Iterable[SliceSpec]) -> tuple[Place, ...]:
    """The nodes that reach some slices. As in kube-scheduler, all nodes reach shared counters."""
    found: list[Place | None] = []
    for spec in specs:
        if spec.shared_counters:
            found.append(Place("", None))
        elif spec.per_device_node_selection:
            found += [_place(device.body) for device in spec.devices or ()]
        else:
            found.append(_place(spec))
    return tuple(place for place in found if place is not None)


def _stock(specs: Iterable[SliceSpec], offers: Sequence[Offer]) -> PoolStock | None:
    """Counters that the devices of a pool draw on, None for none. Raises KeyError and InvalidQuantityError."""
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
    """The consumption of a device. Raises InvalidQuantityError."""
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
    """Domain and name; the driver's domain by default."""
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
