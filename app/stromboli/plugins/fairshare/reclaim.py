"""Rules for what a queue may reclaim from others, victim by victim.

A queue that stays within its fair share may reclaim. Each victim must come from a queue that has more than its due, at
the level where the paths of the two queues part. With all victims gone, no queue on the reclaimer's path may be above
its fair share and as saturated as a sibling that lost something: otherwise they would reclaim from each other in turns.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.plugins.fairshare.tree import DivisionTree, parting, saturation


def can_reclaim(tree: DivisionTree, leaf: int, required: Vector, *, preemptible: bool) -> bool:
    """Whether a queue may reclaim what a job requires: it has to stay within its fair share with it.

    A job that is never evicted must stay within the quota as well.
    """
    if not (tree.allocated[leaf] + required <= tree.fair_share[leaf]).all():
        return False
    return preemptible or bool((tree.non_preemptible[leaf] + required <= tree.quota[leaf]).all())


def exceeds_fair_share(tree: DivisionTree, giver: int, remaining: Vector) -> bool:
    """Whether a queue holds more than it may keep: then it gives, to keep shares fair."""
    return not bool((remaining <= tree.allocatable(giver)).all())


def exceeds_quota_of_the_deprived(
    tree: DivisionTree, taker: int, giver: int, required: Vector, remaining: Vector
) -> bool:
    """Whether a queue holds more than its quota while the other one, with what it requires, is within its own."""
    entitled = (tree.allocated[taker] + required <= tree.quota[taker]).all()
    return bool(entitled) and not bool((remaining <= tree.quota[giver]).all())


class Reclaim:
    """The amounts that one job takes from other queues, each of shape (resources,)."""

    def __init__(
        self, tree: DivisionTree, leaf: int, required: Vector, *, preemptible: bool, multiplier: float = 1.0
    ) -> None:
        """`required` is for the queue in row `leaf`; a larger `multiplier`, of at least 1, makes it harder to take."""
        self._tree = tree
        self._leaf = leaf
        self._required = required
        self._preemptible = preemptible
        self._multiplier = max(1.0, multiplier)
        #: amounts taken below each queue, by row, and in which resources
        self._taken: dict[int, Vector] = {}

    def remaining(self, row: int) -> Vector:
        """The amount that a queue has left."""
        held: Vector = self._tree.allocated[row]
        taken = self._taken.get(row)
        return held if taken is None else held - taken

    def may_take(self, victims_queue: int, gone: Vector | float = 0.0) -> bool:
        """Whether a queue has more than its due; `gone` is what the same victim gave already, which still counts."""
        taker, giver = parting(self._tree, self._leaf, victims_queue)
        remaining = self.remaining(giver) + gone
        return exceeds_fair_share(self._tree, giver, remaining) or exceeds_quota_of_the_deprived(
            self._tree, taker, giver, self._required, remaining
        )

    def take(self, victims_queue: int, amount: Vector) -> None:
        """Count a victim; a negative amount is given back."""
        for row in self._tree.path(victims_queue).tolist():
            self._taken[row] = self._taken[row] + amount if row in self._taken else amount

    def within_boundaries(self) -> bool:
        """Whether the queues on the reclaimer's path may keep their holdings then."""
        path = self._tree.path(self._leaf).tolist()
        if any(self._oversaturated(row) for row in path):
            return False
        if self._preemptible:
            return True
        return bool((self._tree.non_preemptible[path] + self._required <= self._tree.quota[path]).all())

    def _oversaturated(self, row: int) -> bool:
        """Whether a queue ends above its fair share, and not clearly less so than a sibling that gave something."""
        tree = self._tree
        ours = saturation(self.remaining(row) + self._required, tree.fair_share[row])
        if not (ours > 1).any():
            return False
        for sibling, taken in self._taken.items():
            if sibling == row or tree.parent[sibling] != tree.parent[row]:
                continue
            theirs = saturation(self.remaining(sibling), tree.fair_share[sibling])
            entitled: Mask = (tree.fair_share[sibling] > 0) & np.isfinite(tree.fair_share[sibling])
            involved = (taken > 0) | (self._required > 0)
            if (involved & entitled & (ours > 1) & (ours * self._multiplier >= theirs)).any():
                return True
        return False
