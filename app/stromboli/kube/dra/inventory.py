"""The devices of each node, as selectors see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.objects import NodeSelector, Taint
from stromboli.api.resources import Mask
from stromboli.kube.dra.cel import Variables
from stromboli.kube.dra.cel.values import CelError, Domains, Quantity, Version
from stromboli.kube.dra.objects import Attribute, Device, DeviceObjects, ResourceSlice
from stromboli.kube.node_affinity import selected_nodes
from stromboli.state.nodes import NodeFacts


class DeviceId(NamedTuple):
    """What tells a device from all others."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One device."""

    id: DeviceId
    #: what selectors read
    variables: Variables
    taints: tuple[Taint, ...]

    def value(self, what: str, name: str) -> Any:
        """An attribute or a capacity by its name, which has the driver's domain when it names none; None without it."""
        domain, _, bare = name.rpartition("/")
        return self.variables["device"][what][domain or self.id.driver].get(bare)


class Inventory:
    """All devices of one session. Those that share counters with others are not offered: nobody counts them."""

    def __init__(self, objects: DeviceObjects, facts: NodeFacts) -> None:
        self._facts = facts
        self._local: dict[int, list[Offer]] = {}
        #: devices that several nodes reach, and which
        self._shared: dict[DeviceId, tuple[Offer, Mask]] = {}
        for resource_slice in objects.slices():
            self._add(resource_slice)

    def on(self, row: int) -> Iterator[Offer]:
        """The devices that pods on a node can use, in order; those of the node alone come first."""
        yield from self._local.get(row, ())
        for offer, nodes in self._shared.values():
            if nodes[row]:
                yield offer

    @property
    def nodes(self) -> Mask:
        """The nodes with any device, shape (nodes,)."""
        out = np.zeros(len(self._facts), np.bool_)
        out[list(self._local)] = True
        for _, nodes in self._shared.values():
            out |= nodes
        return out

    def alike(self, rows: Sequence[int]) -> Iterator[list[int]]:
        """Nodes in groups that have the same devices: only those without devices of their own can be alike."""
        groups: dict[bytes, list[int]] = {}
        for row in rows:
            if row in self._local:
                yield [row]
            else:
                groups.setdefault(self._reached[row].tobytes(), []).append(row)
        yield from groups.values()

    @cached_property
    def _reached(self) -> npt.NDArray[np.uint8]:
        """Which of the shared devices each node reaches, as bits, shape (nodes, bytes)."""
        reached = np.array([nodes for _, nodes in self._shared.values()], np.bool_).reshape(-1, len(self._facts))
        return np.ascontiguousarray(np.packbits(reached, axis=0).T)

    def is_shared(self, device: DeviceId) -> bool:
        """Whether several nodes reach a device."""
        return device in self._shared

    def _add(self, resource_slice: ResourceSlice) -> None:
        spec = resource_slice.spec
        for device in spec.devices or ():
            place: Any = device if spec.per_device_node_selection else spec
            if device.consumes_counters:
                continue
            offer = _offer(spec.driver, spec.pool.name, device)
            if place.node_name:
                row = self._facts.index.get(place.node_name)
                if row is not None:
                    self._local.setdefault(row, []).append(offer)
            elif place.all_nodes or place.node_selector is not None:
                self._shared[offer.id] = offer, self._reaching(place.node_selector)

    def _reaching(self, selector: NodeSelector | None) -> Mask:
        return np.ones(len(self._facts), np.bool_) if selector is None else selected_nodes(selector, self._facts)


def _offer(driver: str, pool: str, device: Device) -> Offer:
    attributes, capacity = Domains(), Domains()
    for name, attribute in (device.attributes or {}).items():
        _put(attributes, driver, name, _attribute(attribute))
    for name, amount in (device.capacity or {}).items():
        try:
            _put(capacity, driver, name, Quantity(quantity.parse(amount.value)))
        except InvalidQuantityError:
            continue
    known = {
        "driver": driver,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        "attributes": attributes,
        "capacity": capacity,
    }
    return Offer(DeviceId(driver, pool, device.name), {"device": known}, tuple(device.taints or ()))


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
