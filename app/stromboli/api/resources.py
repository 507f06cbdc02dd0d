"""Resource vectors: amounts of every dimension that the cluster knows, in one float64 array.

Units: milli for cpu and for every extended resource (one GPU is 1000), bytes for memory, plain numbers for pods.
All amounts are integers, which float64 holds exactly up to 2**53; only shares and deserved amounts are fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.api import quantity

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]

#: a Kubernetes resource list
ResourceAmounts: TypeAlias = Mapping[str, str | int | float]

CPU, MEMORY, PODS = 0, 1, 2
_NATIVE = frozenset(("cpu", "memory", "pods", "ephemeral-storage"))

#: up to so many nodes plain Python is faster than NumPy
_FEW = 8
#: compared even when nothing of them is requested
_ALWAYS = frozenset((CPU, MEMORY))
#: Two amounts closer than this count as equal: a tenth of the smallest unit.
TOLERANCE = 0.1


def amount(resource: str, value: str | int | float) -> int:
    """An amount in the unit of its dimension. Raises InvalidQuantityError."""
    if resource in ("memory", "pods"):
        return quantity.units(value)
    return quantity.milli(value)


def is_scheduled(resource: str) -> bool:
    """Whether a name in a resource list is something that nodes have, and not a quota of counts or limits."""
    return resource in _NATIVE or (
        not resource.startswith(("requests.", "limits.", "count/"))
        and ("/" in resource or resource.startswith(("hugepages-", "attachable-volumes-")))
    )


class Dimensions:
    """The names of the dimensions, in column order. Grows as resources are first seen and never shrinks."""

    __slots__ = ("index", "names")

    def __init__(self) -> None:
        self.names: list[str] = ["cpu", "memory", "pods"]
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, resource: str) -> int:
        """The column of a resource, added when it is new."""
        found = self.index.get(resource)
        if found is None:
            found = self.index[resource] = len(self.names)
            self.names.append(resource)
        return found

    def vector(self, resources: ResourceAmounts | None, unset: float = 0.0) -> Vector:
        """The vector of a Kubernetes resource list; dimensions that it does not name get `unset`."""
        amounts = {
            self.column(name): amount(name, value) for name, value in (resources or {}).items() if is_scheduled(name)
        }
        vector = np.full(len(self.names), unset)
        for column, value in amounts.items():
            vector[column] = value
        return vector

    def quantities(self, vector: Vector) -> dict[str, str]:
        """A vector as a Kubernetes resource list, dimensions of zero left out except cpu and memory."""
        out = {}
        for name, value in zip(self.names, vector.tolist(), strict=False):
            if name == "memory":
                out[name] = quantity.format_bytes(value)
            elif name == "pods":
                if value:
                    out[name] = str(round(value))
            elif value or name == "cpu":
                out[name] = quantity.format_milli(value)
        return out


def widened(vector: Vector, width: int, unset: float = 0.0) -> Vector:
    """The vector with at least `width` dimensions; vectors made before a resource was first seen are shorter."""
    missing = width - len(vector)
    return vector if missing <= 0 else np.concatenate([vector, np.full(missing, unset)])


def fits(request: Vector, room: npt.NDArray[np.float64]) -> Mask:
    """Whether `request` (R,) fits into `room` (R,) or (R, n), in every dimension, within the tolerance.

    cpu and memory are compared even when nothing of them is requested: a node that is overcommitted takes nobody.
    """
    if room.ndim == 1:
        return np.bool_(_fits_one(request.tolist(), room.tolist()))  # type: ignore[return-value]
    if room.shape[1] <= _FEW:
        wanted = request.tolist()
        return np.array([_fits_one(wanted, node) for node in room.T.tolist()], np.bool_)
    asked = request > 0
    asked[CPU] = asked[MEMORY] = True
    out: Mask = np.ones(room.shape[1], np.bool_)
    for column in np.flatnonzero(asked):
        out &= room[column] > request[column] - TOLERANCE
    return out


def _fits_one(request: list[float], room: list[float]) -> bool:
    for column, want in enumerate(request):
        if (want > 0 or column in _ALWAYS) and room[column] <= want - TOLERANCE:
            return False
    return True


def is_empty(request: Vector) -> bool:
    """Whether nothing is requested (the pod itself does not count): such a pod is best-effort."""
    counted = request >= TOLERANCE
    counted[PODS] = False
    return not counted.any()
