"""Resource vectors: amounts of every resource dimension of the cluster, in one float64 array.

Units: milli for cpu and every extended resource (one GPU is 1000), bytes for memory, plain numbers for pods. All
amounts are integers, which float64 represents exactly up to 2**53; only shares and deserved amounts are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.readers import INT64
from stromboli.api.words import measured

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]

#: a Kubernetes resource list
ResourceAmounts: TypeAlias = Mapping[str, str | int | float]

CPU, MEMORY, PODS = 0, 1, 2
#: dimension of all requested resources that no node has
UNKNOWN: Final = "unoffered-resources"
NATIVE = frozenset(("cpu", "memory", "pods", "ephemeral-storage"))
#: resources whose unit is one instead of a thousandth
_WHOLE = frozenset(("memory", "pods"))
_BYTES = frozenset(("memory", "ephemeral-storage", "storage"))

#: up to this many nodes plain Python is faster than NumPy
FEW = 8
#: Two amounts closer than this are equal: a tenth of the smallest unit.
TOLERANCE = 0.1
#: integers from here on are not exact in float64
EXACT = 2.0**53


def amount(resource: str, value: str | int | float) -> int:
    """An amount in the unit of its dimension, at most 2^63 - 1 as in Kubernetes. Raises InvalidQuantityError."""
    read = quantity.units if resource in _WHOLE else quantity.milli
    return min(read(value), INT64)


def in_bytes(resource: str) -> bool:
    """Whether amounts of a resource, or of a quota for it, are in bytes."""
    name = resource.rpartition("/")[2].removeprefix("requests.").removeprefix("limits.")
    return name in _BYTES or name.startswith("hugepages-")


def exact(resource: str, value: float) -> str:
    """An amount in the unit of its dimension as a Kubernetes quantity; `unlimited` for an infinite one."""
    if not np.isfinite(value):
        return "unlimited"
    if resource == "memory":
        return quantity.format_bytes(value)
    return str(round(value)) if resource == "pods" else quantity.format_milli(value)


# Sessions compare the same few amounts again and again, and tell them in every reason.
@lru_cache(4_096)
def told(resource: str, value: float) -> str:
    """An amount in the unit of its dimension, for messages."""
    return quantity.in_words(value if resource in _WHOLE else value / 1000, binary=in_bytes(resource))


def told_quantity(resource: str, written: str | int | float) -> str:
    """A quantity for messages; an invalid one is unchanged."""
    try:
        return quantity.in_words(float(quantity.parse(written)), binary=in_bytes(resource))
    except InvalidQuantityError:
        return str(written)


def listed(some: ResourceAmounts) -> str:
    """Quantities by resource in a sentence."""
    return ", ".join(measured(told_quantity(name, value), name) for name, value in some.items()) or "nothing"


def is_scheduled(resource: str) -> bool:
    """Whether a name in a resource list is a resource of nodes, not a quota of counts or limits."""
    return resource in NATIVE or (
        not resource.startswith(("requests.", "limits.", "count/"))
        and ("/" in resource or resource.startswith(("hugepages-", "attachable-volumes-")))
    )


def amounts(listed: ResourceAmounts | None) -> dict[str, int]:
    """A Kubernetes resource list in the units of the dimensions, by name.

    Invalid amounts, which `gate` reports, are ignored, and names that are no resources of nodes.
    """
    out = {}
    for name, value in (listed or {}).items():
        try:
            found = amount(name, value) if is_scheduled(name) else -1
        except InvalidQuantityError:
            continue
        if found >= 0:
            out[name] = found
    return out


def is_device(resource: str) -> bool:
    """Whether a resource is one of devices, such as cards: an extended one, none of bytes or of Kubernetes' own."""
    return "/" in resource and not in_bytes(resource)


class Dimensions:
    """The names of the dimensions, in column order: cpu, memory and pods, followed by the given ones.

    UNKNOWN among them stands for all resources without a column of their own.
    """

    __slots__ = ("index", "names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = list(dict.fromkeys(("cpu", "memory", "pods", *names)))
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def cover(self, resources: Collection[str]) -> bool:
        """Whether each of some resources has a column."""
        return UNKNOWN in self.index or all(name in self.index for name in resources)

    def vector(self, amounts: Mapping[str, float]) -> Vector:
        """Amounts by name as a vector, without resources that have no column."""
        vector = np.zeros(len(self.names))
        unknown = self.index.get(UNKNOWN)
        for name, value in amounts.items():
            column = self.index.get(name, unknown)
            if column is not None:
                vector[column] += value
        return vector

    def quantities(self, vector: Vector) -> dict[str, str]:
        """A vector as a Kubernetes resource list, without zeros except cpu and memory.

        Resources that no node has any longer are omitted too.
        """
        out = {}
        for name, value in zip(self.names, vector.tolist(), strict=False):
            if (value or name in ("cpu", "memory")) and name != UNKNOWN:
                out[name] = exact(name, value)
        return out


def fits(request: Vector, free: npt.NDArray[np.float64], always: Collection[int] = ()) -> Mask:
    """Whether `request` (R,) fits into `free` (R,) or (R, n), in every dimension, within the tolerance.

    Dimensions with a request of zero are not compared, unless they are in `always`: no request fits a node that is
    overcommitted there.
    """
    if free.ndim == 1:
        return np.bool_(_fits_one(request.tolist(), free.tolist(), always))  # type: ignore[return-value]
    wanted = request.tolist()
    if free.shape[1] <= FEW:
        return np.array([_fits_one(wanted, node, always) for node in free.T.tolist()], np.bool_)
    out: Mask | None = None
    for column, want in enumerate(wanted):
        if want > 0 or column in always:
            enough = free[column] > want - TOLERANCE
            out = enough if out is None else np.logical_and(out, enough, out=out)
    return np.ones(free.shape[1], np.bool_) if out is None else out


def copies_on(wanted: Sequence[tuple[int, float]], idle: Sequence[float], always: Collection[int]) -> float:
    """`copies_that_fit` on one node, of a request as pairs of a dimension and the amount that is wanted of it."""
    if not wanted:
        return math.inf
    for column in always:
        if idle[column] <= -TOLERANCE:
            return 0.0
    return float(min([math.ceil((idle[column] + TOLERANCE) / want) for column, want in wanted]) - 1)


def copies_that_fit(request: Vector, idle: Vector, always: Collection[int] = ()) -> Vector:
    """Number of copies of a request that fit on each node, shape (nodes,), compared as in `fits`."""
    if idle.shape[1] <= FEW:
        wanted = [(column, want) for column, want in enumerate(request.tolist()) if want > 0]
        return np.array([copies_on(wanted, node, always) for node in idle.T.tolist()])
    asked = np.flatnonzero(request > 0)
    if not len(asked):
        return np.full(idle.shape[1], np.inf)
    copies = np.ceil((idle[asked] + TOLERANCE) / request[asked][:, None]) - 1
    lowest: Vector = copies.min(axis=0)
    for column in always:
        lowest[idle[column] <= -TOLERANCE] = 0
    return lowest


def compared(request: Vector, always: Collection[int] = ()) -> Mask:
    """The dimensions that `fits` compares, shape (R,)."""
    out: Mask = request > 0
    for column in always:
        out[column] = True
    return out


def _fits_one(request: list[float], free: list[float], always: Collection[int]) -> bool:
    for column, want in enumerate(request):
        if (want > 0 or column in always) and free[column] <= want - TOLERANCE:
            return False
    return True
