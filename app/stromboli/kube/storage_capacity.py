"""CSIStorageCapacity: the nodes where a driver that publishes its capacity can provision a volume of some size."""

from __future__ import annotations

import math
from typing import cast

import msgspec
import numpy as np

from stromboli.api import objects, quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.resources import Mask, Rows
from stromboli.kube.storage import CSIStorageCapacity, Storage
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.selectors import label_selector
from stromboli.state.snapshot import Snapshot

_KIND = CSIStorageCapacity.__name__


def published_capacities(snapshot: Snapshot) -> PublishedCapacities:
    """The CSIStorageCapacities of a snapshot, kept from session to session."""
    before = cast("PublishedCapacities | None", snapshot.derived.get(PublishedCapacities))
    plain = snapshot.objects.get(_KIND, NO_OBJECTS)
    if before is not None and not plain.changed_since(before.plain):
        return before
    found = snapshot.derived[PublishedCapacities] = PublishedCapacities(plain, before)
    return found


class PublishedCapacities:
    """All objects of a snapshot by class; those that are unchanged since `before` are not read again."""

    def __init__(self, plain: PlainObjects, before: PublishedCapacities | None) -> None:
        self.plain = plain
        self._objects: dict[str, CSIStorageCapacity] = {} if before is None else before._objects.copy()
        for key in plain.changed_since(NO_OBJECTS if before is None else before.plain):
            self._objects.pop(key, None)
            if key in plain:
                self._objects[key] = plain.read(key, CSIStorageCapacity)

    def of_class(self, storage_class: str) -> list[CSIStorageCapacity]:
        """The objects of one class."""
        return [each for each in self._objects.values() if each.storage_class_name == storage_class]


class _Segments:
    """The capacities of one class in columns of shape (objects,), and the nodes that can access them."""

    def __init__(self, published: PublishedCapacities, storage_class: str, facts: NodeFacts) -> None:
        self.published = published
        found = published.of_class(storage_class)
        #: the maximum size of a volume, NaN if unknown, which never fits; and the free capacity, which kube-scheduler
        #: compares only where there is no maximum size
        self.most = np.array([_bytes(each.maximum_volume_size, _bytes(each.capacity, math.nan)) for each in found])
        self.left = np.array([_bytes(each.capacity, math.inf) for each in found])
        rows = [_nodes_of(each, facts) for each in found]
        #: pairs of a node and an object whose capacity it can access
        self.node = np.concatenate([np.zeros(0, np.intp), *rows])
        self.segment = np.repeat(np.arange(len(found)), [len(each) for each in rows])


class StorageCapacity:
    """The filter in one session, which subtracts the volumes of pods placed so far."""

    def __init__(self, snapshot: Snapshot, storage: Storage) -> None:
        self._facts = snapshot.nodes.facts
        self._storage = storage
        self._snapshot = snapshot
        #: by class, the bytes promised to the session's pods, by node
        self._promised: dict[str, dict[int, float]] = {}

    def sufficient(self, provisioner: str, storage_class: str, size: int) -> Mask | None:
        """The nodes where a volume of this size can be provisioned, shape (nodes,); None if capacity is not
        published."""
        driver = self._storage.driver(provisioner)
        if not size or driver is None or not driver.spec.storage_capacity:
            return None
        segments = self._segments(storage_class)
        # A comparison with NaN is false.
        enough = segments.most >= size
        promised = self._promised.get(storage_class)
        if promised:
            amounts = np.zeros(len(self._facts))
            amounts[list(promised)] = list(promised.values())
            taken = np.bincount(segments.segment, amounts[segments.node], len(enough))
            enough &= (taken == 0) | (segments.left - taken >= size)
        out: Mask = np.zeros(len(self._facts), np.bool_)
        out[segments.node[enough[segments.segment]]] = True
        return out

    def promise(self, storage_class: str, node: int, size: float) -> None:
        """Subtract a volume that will be provisioned for a node; a negative size undoes that."""
        promised = self._promised.setdefault(storage_class, {})
        promised[node] = promised.get(node, 0.0) + size
        if not promised[node]:
            del promised[node]

    def _segments(self, storage_class: str) -> _Segments:
        published = published_capacities(self._snapshot)
        key = (_Segments, storage_class)
        known = cast("_Segments | None", self._facts.cache.get(key))
        if known is None or known.published is not published:
            known = self._facts.cache[key] = _Segments(published, storage_class, self._facts)
        return known


def _nodes_of(capacity: CSIStorageCapacity, facts: NodeFacts) -> Rows:
    """The nodes that can access each capacity, kept until a node changes."""
    known = cast("dict[bytes, Rows]", facts.cache.setdefault(_nodes_of, {}))
    key = msgspec.msgpack.encode(capacity.node_topology)
    if key not in known:
        known[key] = np.flatnonzero(label_selector(capacity.node_topology).mask(facts))
    return known[key]


def _bytes(amount: objects.Quantity | None, otherwise: float) -> float:
    """An amount in bytes; NaN for an invalid quantity."""
    if amount is None:
        return otherwise
    try:
        return float(quantity.units(amount))
    except InvalidQuantityError:
        return math.nan
