"""Nodes as columns: one row of numbers per resource, one column per node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from stromboli.api import objects, readers
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.quantity import parse
from stromboli.api.resources import CPU, EXACT, MEMORY, Dimensions, Mask, Matrix, Rows, Vector, amounts
from stromboli.state.columns import Column, Numbers

T = TypeVar("T", bound=Hashable)

#: the status of the condition Ready of nodes that count as ready; those of tests and simulations often say nothing
READY = frozenset(("", "True"))
_OVERSUBSCRIPTION = {"volcano.sh/oversubscription-cpu": CPU, "volcano.sh/oversubscription-memory": MEMORY}


class NodeRecord(Struct, frozen=True, gc=False):
    """A node's facts. A changed node gets a new record."""

    name: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]
    taints: tuple[objects.Taint, ...]
    unschedulable: bool
    #: the status of the condition Ready; empty where the node does not say
    ready: str
    images: tuple[objects.ContainerImage, ...]
    capacity: objects.ResourceList
    allocatable: objects.ResourceList
    declared_features: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet reports it ready; a node without that condition counts as ready."""
        return self.ready in READY

    @classmethod
    def of(cls, node: objects.Node) -> NodeRecord:
        """The facts of a node that sessions see."""
        return cls(
            name=node.metadata.name,
            uid=node.metadata.uid or "",
            labels=node.metadata.labels or {},
            annotations=node.metadata.annotations or {},
            taints=tuple(node.spec.taints or ()),
            unschedulable=bool(node.spec.unschedulable),
            ready=next((each.status or "" for each in node.status.conditions or () if each.type == "Ready"), ""),
            images=tuple(node.status.images or ()),
            capacity=node.status.capacity or {},
            allocatable=node.status.allocatable or {},
            declared_features=tuple(node.status.declared_features or ()),
        )


def devices_lost(record: NodeRecord, resource: str) -> str:
    """Number of devices that a node has, and that it can allocate, in words."""
    there, left = _count(record.capacity, resource), _count(record.allocatable, resource)
    return f"{there:g}, {left:g} of them allocatable" if left else f"{there:g}, none allocatable"


def _count(listed: objects.ResourceList, resource: str) -> float:
    try:
        return float(parse(listed.get(resource, 0)))
    except InvalidQuantityError:
        return 0.0


class NodeFacts:
    """The facts about nodes besides amounts, in order of arrival. Shared by snapshots until a node changes.

    Label values are interned as numbers: asking which of 5,000 nodes carry a label is one comparison.
    """

    __slots__ = ("_before", "_columns", "_keys", "_origin", "cache", "index", "records", "unschedulable")

    def __init__(
        self, records: list[NodeRecord], before: NodeFacts | None = None, changed: list[int] | None = None
    ) -> None:
        """Values read `before` are reused for unchanged nodes.

        `changed` are rows: all other nodes are those from before, in the same order.
        """
        self.records = records
        self.index: dict[str, int]
        self.unschedulable: Mask
        if before is None or changed is None:
            self.index = {record.name: i for i, record in enumerate(records)}
            self.unschedulable = np.fromiter((r.unschedulable for r in records), np.bool_, len(records))
            origin = np.full(len(records), -1) if before is None else _origins(records, before)
        else:
            self.index, self.unschedulable, origin = before.index, before.unschedulable.copy(), np.arange(len(records))
            self.unschedulable[changed] = [records[row].unschedulable for row in changed]
            origin[changed] = -1
        #: for plugins: what they derive from facts alone, by a key of their own
        self.cache: dict[object, object] = {}
        self._columns: dict[Hashable, Column[Any]] = {}
        self._before: dict[Hashable, Column[Any]] = {} if before is None else before._columns.copy()
        #: the row that each node had in `_before`, -1 for a changed node, shape (nodes,)
        self._origin: Rows = origin
        #: the labels that any node has: what is kept of others that pods ask for is one column for all of them
        self._keys: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self.records)

    def record(self, name: str) -> NodeRecord | None:
        """The facts of one node, None when it is not known."""
        at = self.index.get(name)
        return None if at is None else self.records[at]

    def label(self, key: str) -> Numbers:
        """The number of each node's value of a label, -1 where it has none, shape (nodes,)."""
        return self.labels(key).numbers

    def label_values(self, key: str) -> Mapping[str, int]:
        """value -> number, at least for the values that nodes have."""
        return self.labels(key).by_value

    def column(self, key: Hashable, read: Callable[[NodeRecord], T | None]) -> Column[T]:
        """The values that a function reads from each node; `key` identifies the function."""
        found = self._columns.get(key)
        if found is None:
            # Sessions and answers between them share the facts: what is half made must not be seen.
            found = self._columns[key] = Column.read(self.records, read, self._before.get(key), self._origin)
        return found

    def labels(self, key: str) -> Column[str]:
        """The values of a label; labels that no node has share one column."""
        if not self.any_has(key):
            key = ""
        return self.column(("label", key), lambda record: record.labels.get(key))

    def any_has(self, key: str) -> bool:
        """Whether any node has a label."""
        if self._keys is None:
            self._keys = frozenset().union(*(record.labels for record in self.records))
        return key in self._keys

    def without_devices(self, resource: str) -> Sequence[NodeRecord]:
        """The nodes that have more devices of a resource than can be allocated."""
        if "/" not in resource:
            return []
        lost = self.column("devices that cannot be allocated", _lost)
        numbers = [number for number, names in enumerate(lost.values) if resource in names]
        return [self.records[row] for row in np.flatnonzero(np.isin(lost.numbers, numbers)).tolist()]


def _lost(record: NodeRecord) -> frozenset[str] | None:
    """The resources whose devices on a node are more than can be allocated; None without any."""
    there, left = record.capacity, record.allocatable
    # The amounts of most nodes are written alike, and need not be parsed.
    differ = [name for name, amount in there.items() if "/" in name and left.get(name) != amount]
    return frozenset(name for name in differ if _count(left, name) < _count(there, name)) or None


def _origins(records: list[NodeRecord], before: NodeFacts) -> Rows:
    rows = [before.index.get(record.name, -1) for record in records]
    same = (
        row if row >= 0 and before.records[row] is record else -1 for row, record in zip(rows, records, strict=True)
    )
    return np.fromiter(same, np.intp, len(records))


class NodeTable:
    """The rows: allocatable, used and releasing amounts, shape (dimensions, nodes); `order` is the order of arrival.

    Rows of deleted nodes are reused; they are not in `order`.
    """

    __slots__ = (
        "_dimensions",
        "_facts",
        "_free",
        "_in_order",
        "_last",
        "_touched",
        "allocatable",
        "by_name",
        "order",
        "records",
        "releasing",
        "scoring",
        "used",
    )

    def __init__(self, dimensions: Dimensions) -> None:
        self._dimensions = dimensions
        self._facts: NodeFacts | None = None
        #: those of the last snapshot
        self._last: NodeFacts | None = None
        #: names of nodes that changed since; None when some came or went
        self._touched: dict[str, None] | None = None
        self._free: list[int] = []
        self.records: list[NodeRecord | None] = []
        self.by_name: dict[str, int] = {}
        self.order: dict[int, None] = {}
        self._in_order: Rows | None = None
        self.allocatable: Matrix = np.zeros((len(dimensions), 16))
        self.used: Matrix = np.zeros((len(dimensions), 16))
        self.releasing: Matrix = np.zeros((len(dimensions), 16))
        #: cpu and memory requested as kube-scheduler's scoring counts them, shape (2, nodes)
        self.scoring: Matrix = np.zeros((2, 16))

    def copy(self) -> NodeTable:
        """An independent copy."""
        out = NodeTable(self._dimensions)
        out._facts, out._last, out._free = self._facts, self._last, self._free.copy()
        out._touched = None if self._touched is None else self._touched.copy()
        out.records, out.by_name, out.order = self.records.copy(), self.by_name.copy(), self.order.copy()
        for matrix in ("allocatable", "used", "releasing", "scoring"):
            setattr(out, matrix, getattr(self, matrix).copy())
        return out

    def upsert(self, record: NodeRecord) -> tuple[int, bool]:
        """Add or change a node; returns its row and whether it is new."""
        allocatable = self._dimensions.vector(amounts(record.allocatable))
        for key, column in _OVERSUBSCRIPTION.items():
            allocatable[column] += readers.surplus(record.annotations.get(key)) or 0.0
        row = self.by_name.get(record.name)
        new = row is None
        if row is None:
            row, self._touched, self._in_order = self._new_row(record.name), None, None
        elif self._touched is not None:
            self._touched[record.name] = None
        self.allocatable[:, row] = allocatable
        self.records[row] = record
        self._facts = None
        return row, new

    def record(self, name: str) -> NodeRecord | None:
        """The facts of one node as it is now, None when it is not known."""
        row = self.by_name.get(name)
        return None if row is None else self.records[row]

    def facts(self) -> NodeFacts:
        """The facts of all nodes as they are now."""
        if self._facts is None:
            self._facts = self._last = self._changed_facts() or self._all_facts()
            self._touched = {}
        return self._facts

    def in_order(self) -> Rows:
        """The rows in order of arrival."""
        if self._in_order is None:
            self._in_order = np.fromiter(self.order, np.intp, len(self.order))
        return self._in_order

    def _changed_facts(self) -> NodeFacts | None:
        """The last facts with the nodes that changed since; None when there are other nodes."""
        last = self._last
        if last is None or self._touched is None:
            return None
        rows, records = [last.index[name] for name in self._touched], last.records.copy()
        for row, name in zip(rows, self._touched, strict=True):
            record = self.records[self.by_name[name]]
            assert record is not None
            records[row] = record
        return NodeFacts(records, last, rows)

    def _all_facts(self) -> NodeFacts:
        records = [self.records[row] for row in self.order]
        return NodeFacts([record for record in records if record is not None], self._last)

    def delete(self, name: str) -> int | None:
        """Forget a node; returns the row that it had."""
        row = self.by_name.pop(name, None)
        if row is not None:
            self.records[row] = None
            self._facts = self._touched = self._in_order = None
            for column in (self.allocatable, self.used, self.releasing, self.scoring):
                column[:, row] = 0
            del self.order[row]
            self._free.append(row)
        return row

    def add(self, row: int, request: Vector, scoring: tuple[float, float], sign: int, *, releasing: bool) -> None:
        """Count a pod on (sign 1) or off (sign -1) a node."""
        self.used[:, row] += request if sign > 0 else -request
        self.scoring[0, row] += sign * scoring[0]
        self.scoring[1, row] += sign * scoring[1]
        if releasing:
            self.releasing[:, row] += request if sign > 0 else -request

    def is_exact(self, row: int) -> bool:
        """Whether sums on a node are so small that amounts can be taken off again."""
        return bool(self.used[:, row].max() < EXACT)

    def recount(self, rows: Rows, nodes: Rows, held: Matrix, scoring: Matrix, releasing: Mask) -> None:
        """Recompute the amounts that pods on some nodes hold.

        `nodes` has the row of each pod's node, `held` has shape (pods, dimensions), `scoring` (pods, 2), and
        `releasing` says which pods leave.
        """
        sums = ((self.used, held), (self.releasing, held * releasing[:, None]), (self.scoring, scoring))
        for matrix, parts in sums:
            for column, part in enumerate(parts.T):
                matrix[column, rows] = np.bincount(nodes, part, matrix.shape[1])[rows]

    def reshape(self, dimensions: Dimensions) -> None:
        """Take over other dimensions; amounts of those that are new are zero, and `recount` is to follow."""
        before, self._dimensions = self._dimensions, dimensions
        allocatable = np.zeros((len(dimensions), self.used.shape[1]))
        for column, name in enumerate(dimensions.names):
            if name in before.index:
                allocatable[column] = self.allocatable[before.index[name]]
        self.allocatable, self.used, self.releasing = (
            allocatable,
            np.zeros_like(allocatable),
            np.zeros_like(allocatable),
        )

    def _new_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.records)
            self.records.append(None)
            if row == self.used.shape[1]:
                for column in ("allocatable", "used", "releasing", "scoring"):
                    matrix = getattr(self, column)
                    setattr(self, column, np.concatenate([matrix, np.zeros_like(matrix)], axis=1))
        self.by_name[name] = row
        self.order[row] = None
        return row
