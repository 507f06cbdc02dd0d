"""Hard bounds: no queue exceeds a limit, and jobs that are never evicted stay within the quota.

Both hold for a queue and all its ancestors. Only requested resources count: a queue above its limit of one resource may
still take another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.plugins.fairshare.tree import DivisionTree


@dataclass(frozen=True, slots=True)
class Violation:
    """The first queue, from the leaf upwards, that has no capacity left."""

    row: int
    #: the resources in which it has none
    columns: list[int]
    #: amounts that it holds and may hold, shape (resources,)
    held: Vector
    bound: Vector
    #: whether the bound is the quota and not the limit
    is_quota: bool


def over_limit(tree: DivisionTree, path: Rows, requested: Vector) -> Violation | None:
    """The first queue on a path that would go above its limit."""
    return _first(path, tree.allocated[path], tree.limit[path], requested, is_quota=False)


def over_quota(tree: DivisionTree, path: Rows, requested: Vector) -> Violation | None:
    """The first queue on a path whose non-preemptible jobs would go above its quota."""
    return _first(path, tree.non_preemptible[path], tree.quota[path], requested, is_quota=True)


def over_capacity(
    tree: DivisionTree,
    path: Rows,
    requested: Vector,
    *,
    preemptible: bool,
    more: tuple[Matrix, Matrix] | None = None,
) -> Violation | None:
    """The first limit, then the first quota, that a job's request would exceed, from the leaf upwards.

    `more` is added to what queues hold, in all and by jobs that are never evicted: with what terminating pods hold, the
    answer is about what may start now.
    """
    held, fixed = _now(tree, path, more)
    violation = _first(path, held, tree.limit[path], requested, is_quota=False)
    if violation is None and not preemptible:
        violation = _first(path, fixed, tree.quota[path], requested, is_quota=True)
    return violation


def is_bounded(tree: DivisionTree, path: Rows, *, preemptible: bool) -> bool:
    """Whether anything on a path limits a job."""
    limited = bool(np.isfinite(tree.limit[path]).any())
    return limited or (not preemptible and bool(np.isfinite(tree.quota[path]).any()))


def copies(
    tree: DivisionTree,
    path: Rows,
    request: Vector,
    count: int,
    *,
    preemptible: bool,
    more: tuple[Matrix, Matrix] | None = None,
) -> int:
    """Number of pods with the same request, `count` at most, that a job may have more; `more` as in `over_capacity`."""
    asked = request > 0
    held, fixed = _now(tree, path, more)
    left = tree.limit[path] - held
    if not preemptible:
        left = np.minimum(left, tree.quota[path] - fixed)
    if not asked.any():
        return count
    return int(np.clip(np.floor(left[:, asked] / request[asked]).min(), 0, count))


def _now(tree: DivisionTree, path: Rows, more: tuple[Matrix, Matrix] | None) -> tuple[Matrix, Matrix]:
    """The amounts that the queues on a path hold, and the never evicted part of them, shape (queues, resources)."""
    held, fixed = tree.allocated[path], tree.non_preemptible[path]
    if more is None:
        return held, fixed
    return held + np.maximum(more[0][path], 0), fixed + np.maximum(more[1][path], 0)


def _first(path: Rows, held: Matrix, bound: Matrix, requested: Vector, *, is_quota: bool) -> Violation | None:
    over: Mask = (bound < held + requested) & (requested != 0)
    violated = np.flatnonzero(over.any(axis=1))
    if not len(violated):
        return None
    at = violated[0]
    return Violation(int(path[at]), np.flatnonzero(over[at]).tolist(), held[at], bound[at], is_quota)
