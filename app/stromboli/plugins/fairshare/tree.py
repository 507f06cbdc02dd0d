"""A tree of queues in columns: limits, requests and holdings of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from stromboli.api.resources import Matrix, Vector
from stromboli.fairness.queue_tree import QueueTree

_MATRICES = ("quota", "limit", "weight", "usage", "request", "allocated", "non_preemptible")


@dataclass(slots=True, eq=False)
class DivisionTree(QueueTree):
    """Vectors have shape (queues,), matrices shape (queues, resources). Unbounded values are infinite.

    Rows are sorted by name, so that sums do not depend on the order in which queues arrived. A queue without children
    is a leaf; what a leaf requests and holds counts for its ancestors as well.
    """

    #: a larger one goes first
    priority: Vector
    #: seconds since the epoch
    created: Vector
    #: given before anything else is divided
    quota: Matrix
    #: hard limit of a queue
    limit: Matrix
    #: its part of the rest beyond quotas, relative to its siblings
    weight: Matrix
    #: past usage of the queue, as a fraction of the cluster
    usage: Matrix
    #: amounts that it holds or waits for
    request: Matrix
    #: amounts that it holds
    allocated: Matrix
    #: the part of this held by jobs that are never evicted
    non_preemptible: Matrix
    #: unit in which each resource is divided: a milli-CPU, a byte, a card; shape (resources,)
    unit: Vector
    fair_share: Matrix = field(init=False)

    def __post_init__(self) -> None:
        # A class with slots is made anew, which `super()` without arguments does not know.
        QueueTree.__post_init__(self)
        self.fair_share = np.zeros_like(self.quota)

    def requestable(self) -> Matrix:
        """Amounts that queues could use."""
        return np.minimum(self.limit, self.request)

    def allocatable(self, row: int) -> Vector:
        """The amount that a queue may hold before others can reclaim it; infinite without a quota or limit."""
        allocatable: Vector = np.minimum(self.limit[row], np.maximum(self.quota[row], self.fair_share[row]))
        return allocatable

    def first(self, resources: int) -> DivisionTree:
        """A tree of these queues with the first resources only. Matrices are views: changes show in both."""
        narrow = {name: getattr(self, name)[:, :resources] for name in _MATRICES}
        return replace(self, unit=self.unit[:resources], **narrow)


def saturation(held: Matrix, fair_share: Matrix) -> Matrix:
    """held / fair share: infinite for a queue that holds something and has no share, 0 for one that holds nothing."""
    out = np.where(held > 0, np.inf, 0.0)
    bounded = np.isfinite(fair_share)
    out[~bounded] = 0.0
    np.divide(held, fair_share, out=out, where=bounded & (fair_share != 0))
    return out


def parting(tree: DivisionTree, left: int, right: int) -> tuple[int, int]:
    """The first rows in which the paths of two queues differ, from the top; the last common ones when none do."""
    mine, theirs = tree.path(left)[::-1], tree.path(right)[::-1]
    both = min(len(mine), len(theirs))
    differing = np.flatnonzero(mine[:both] != theirs[:both])
    at = int(differing[0]) if len(differing) else both - 1
    return int(mine[at]), int(theirs[at])
