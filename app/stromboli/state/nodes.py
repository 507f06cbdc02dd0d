"""Nodes as columns: one row of numbers per resource, one column per node."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from stromboli.api import objects
from stromboli.api.resources import CPU, MEMORY, Dimensions, Mask, Matrix, Vector, widened

_OVERSUBSCRIPTION = {"volcano.sh/oversubscription-cpu": CPU, "volcano.sh/oversubscription-memory": MEMORY}


class NodeRecord(Struct, frozen=True, gc=False):
    """A node's facts. A changed node gets a new record."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    taints: tuple[objects.Taint, ...]
    unschedulable: bool
    images: tuple[objects.ContainerImage, ...]
    capacity: objects.ResourceList
    allocatable: objects.ResourceList


class NodeFacts:
    """What is known of the nodes besides amounts, in order of arrival. Shared by snapshots until a node changes.

    Label values are interned as numbers: asking which of 5,000 nodes carry a label is one comparison.
    """

    __slots__ = ("_columns", "_values", "cache", "index", "records", "unschedulable")

    def __init__(self, records: list[NodeRecord]) -> None:
        self.records = records
        self.index: dict[str, int] = {record.name: i for i, record in enumerate(records)}
        self.unschedulable: Mask = np.fromiter((r.unschedulable for r in records), np.bool_, len(records))
        #: for plugins: what they derive from facts alone, by a key of their own
        self.cache: dict[object, object] = {}
        self._values: dict[str, dict[str, int]] = {}
        self._columns: dict[str, npt.NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return len(self.records)

    def label(self, key: str) -> npt.NDArray[np.int32]:
        """The number of each node's value of a label, -1 where it has none, shape (nodes,)."""
        column = self._columns.get(key)
        if column is None:
            # Sessions and whoever answers between them share the facts: what is half made must not be seen.
            values: dict[str, int] = {}
            column = np.fromiter(
                (
                    values.setdefault(record.labels[key], len(values)) if key in record.labels else -1
                    for record in self.records
                ),
                np.int32,
                len(self.records),
            )
            self._values[key] = values
            self._columns[key] = column
        return column

    def label_values(self, key: str) -> dict[str, int]:
        """value -> number, for the values that nodes have."""
        self.label(key)
        return self._values[key]


class NodeTable:
    """The rows: allocatable, used and releasing amounts, shape (dimensions, nodes); `order` is the order of arrival.

    Rows of deleted nodes are reused; they are not in `order`.
    """

    __slots__ = (
        "_dimensions",
        "_facts",
        "_free",
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
        self._free: list[int] = []
        self.records: list[NodeRecord | None] = []
        self.by_name: dict[str, int] = {}
        self.order: dict[int, None] = {}
        self.allocatable: Matrix = np.zeros((len(dimensions), 16))
        self.used: Matrix = np.zeros((len(dimensions), 16))
        self.releasing: Matrix = np.zeros((len(dimensions), 16))
        #: cpu and memory requested as kube-scheduler's scoring counts them, shape (2, nodes)
        self.scoring: Matrix = np.zeros((2, 16))

    def upsert(self, node: objects.Node) -> tuple[int, bool]:
        """Add or change a node; returns its row and whether it is new."""
        allocatable = self._dimensions.vector(node.status.allocatable)
        annotations = node.metadata.annotations or {}
        for key, column in _OVERSUBSCRIPTION.items():
            allocatable[column] += _number(annotations.get(key))
        self.widen()
        row = self.by_name.get(node.metadata.name)
        new = row is None
        if row is None:
            row = self._new_row(node.metadata.name)
        self.allocatable[:, row] = widened(allocatable, len(self.allocatable))
        record = NodeRecord(
            name=node.metadata.name,
            labels=node.metadata.labels or {},
            annotations=annotations,
            taints=tuple(node.spec.taints or ()),
            unschedulable=bool(node.spec.unschedulable),
            images=tuple(node.status.images or ()),
            capacity=node.status.capacity or {},
            allocatable=node.status.allocatable or {},
        )
        if record != self.records[row]:
            self.records[row] = record
            self._facts = None
        return row, new

    def facts(self) -> NodeFacts:
        """The facts of all nodes as they are now."""
        if self._facts is None:
            records = [self.records[row] for row in self.order]
            self._facts = NodeFacts([record for record in records if record is not None])
        return self._facts

    def delete(self, name: str) -> int | None:
        """Forget a node; returns the row that it had."""
        row = self.by_name.pop(name, None)
        if row is not None:
            self.records[row] = None
            self._facts = None
            for column in (self.allocatable, self.used, self.releasing, self.scoring):
                column[:, row] = 0
            del self.order[row]
            self._free.append(row)
        return row

    def add(self, row: int, request: Vector, scoring: tuple[float, float], sign: int, *, releasing: bool) -> None:
        """Count a pod on (sign 1) or off (sign -1) a node."""
        if len(request) > len(self.used):
            self.widen()
        self.used[: len(request), row] += request if sign > 0 else -request
        self.scoring[0, row] += sign * scoring[0]
        self.scoring[1, row] += sign * scoring[1]
        if releasing:
            self.releasing[: len(request), row] += request if sign > 0 else -request

    def widen(self) -> None:
        """Make room for dimensions that were first seen since the last call."""
        missing = len(self._dimensions) - len(self.used)
        if missing > 0:
            for name in ("allocatable", "used", "releasing"):
                matrix = getattr(self, name)
                setattr(self, name, np.concatenate([matrix, np.zeros((missing, matrix.shape[1]))]))

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


def _number(text: str | None) -> float:
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
