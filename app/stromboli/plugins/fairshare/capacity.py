"""Hard bounds: nobody goes above a limit, and jobs that are never evicted stay within the quota.

Both hold for a queue and all its ancestors. Only resources that are asked for count: a queue that is above its limit of
one may still take another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.plugins.fairshare.tree import QueueTree


@dataclass(frozen=True, slots=True)
class Violation:
    """The first queue, from the leaf upwards, that has no room."""

    row: int
    #: the resources in which it has none
    columns: list[int]
    #: what it holds and may hold, shape (resources,)
    held: Vector
    bound: Vector
    #: whether the bound is the quota and not the limit
    is_quota: bool


def over_limit(tree: QueueTree, path: Rows, requested: Vector) -> Violation | None:
    """The first queue on a path that would go above its limit."""
    return _first(path, tree.allocated, tree.limit, requested, is_quota=False)


def over_quota(tree: QueueTree, path: Rows, requested: Vector) -> Violation | None:
    """The first queue on a path whose non-preemptible jobs would go above its quota."""
    return _first(path, tree.non_preemptible, tree.quota, requested, is_quota=True)


def over_capacity(tree: QueueTree, path: Rows, requested: Vector, *, preemptible: bool) -> Violation | None:
    """The first limit, then the first quota, that stands against what a job asks for."""
    violation = over_limit(tree, path, requested)
    if violation is None and not preemptible:
        violation = over_quota(tree, path, requested)
    return violation


def is_bounded(tree: QueueTree, path: Rows, *, preemptible: bool) -> bool:
    """Whether anything on a path limits a job."""
    limited = bool(np.isfinite(tree.limit[path]).any())
    return limited or (not preemptible and bool(np.isfinite(tree.quota[path]).any()))


def copies(tree: QueueTree, path: Rows, request: Vector, count: int, *, preemptible: bool) -> int:
    """How many pods of `count` that request the same a job may have more."""
    asked = request > 0
    room = tree.limit[path] - tree.allocated[path]
    if not preemptible:
        room = np.minimum(room, tree.quota[path] - tree.non_preemptible[path])
    if not asked.any():
        return count
    return int(np.clip(np.floor(room[:, asked] / request[asked]).min(), 0, count))


def _first(path: Rows, held: Matrix, bound: Matrix, requested: Vector, *, is_quota: bool) -> Violation | None:
    over: Mask = (bound[path] < held[path] + requested) & (requested != 0)
    violated = np.flatnonzero(over.any(axis=1))
    if not len(violated):
        return None
    at = violated[0]
    row = int(path[at])
    return Violation(row, np.flatnonzero(over[at]).tolist(), held[row], bound[row], is_quota)
