"""The order of sibling queues: which is served next.

The criteria, in order: not above the fair share in every resource; within the quota with the job that would be placed
next; priority; no demand for a resource that the queue may hold nothing of; the smaller dominant share with that job,
then without it; the smaller allocatable amounts. Age breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import total_ordering
from typing import Any, TypeAlias

import numpy as np

from stromboli.api.resources import Vector
from stromboli.plugins.fairshare.tree import DivisionTree, parting

#: value of an amount where a queue may hold nothing
_FORBIDDEN = 1000.0
#: the steps of a key, by their place in it
STEPS = (
    "underFairShare",
    "underQuotaWithJob",
    "priority",
    "zeroShare",
    "dominantShareWithJob",
    "dominantShare",
    "allocatableShare",
)


@total_ordering
class Smaller:
    """Sorts by amounts: one that is smaller in a resource and larger in none goes first; all else is a tie."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Vector) -> None:
        self._amounts: list[float] = amounts.tolist()

    def __lt__(self, other: Smaller) -> bool:
        return self._amounts != other._amounts and all(
            mine <= theirs for mine, theirs in zip(self._amounts, other._amounts, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Smaller) and not (self < other or other < self)

    __hash__ = None  # type: ignore[assignment]


#: smaller goes first
Key: TypeAlias = tuple[bool, bool, float, bool, float, float, Smaller]


def key(
    tree: DivisionTree,
    row: int,
    total: Vector,
    job: Vector,
    victims: Vector | float = 0.0,
    held: Vector | None = None,
) -> Key:
    """A queue's place among its siblings, criterion by criterion.

    `job` is the current request of its next job, `victims` what others are about to take of its holdings, `held` its
    holdings if they are not those of the tree; all of shape (resources,), like `total`, the cluster's resources.
    """
    held, allocatable = tree.allocated[row] if held is None else held, tree.allocatable(row)
    with_job = held + job
    share = np.where(np.isinf(allocatable), total, allocatable)
    return (
        bool((tree.fair_share[row] < held).all()),
        bool((with_job > tree.quota[row]).any()),
        -float(tree.priority[row]),
        bool(((allocatable == 0) & (with_job > 0)).any()),
        dominant_share(with_job - victims, share, tree.unit),
        dominant_share(held, share, tree.unit),
        Smaller(allocatable),
    )


def dominant_share(held: Vector, share: Vector, unit: Vector) -> float:
    """The largest part of its share that a queue holds, over all resources; at least 0."""
    parts = held / unit * _FORBIDDEN
    np.divide(held, share, out=parts, where=share != 0)
    return float(max(0.0, parts.max()))


@total_ordering
class PlaceInTree:
    """Sorts queues by their places at the level where their paths part, as they are when compared."""

    __slots__ = ("_place", "_row", "_tree")

    def __init__(self, tree: DivisionTree, row: int, place: Callable[[int], tuple[Any, ...]]) -> None:
        """`place` says where a queue stands among its siblings."""
        self._tree = tree
        self._row = row
        self._place = place

    def __lt__(self, other: PlaceInTree) -> bool:
        mine, theirs = parting(self._tree, self._row, other._row)
        return self._place(mine) < self._place(theirs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlaceInTree) and self._row == other._row

    def __hash__(self) -> int:
        return self._row
