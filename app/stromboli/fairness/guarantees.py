"""Guarantees that cannot be kept: above the cluster, above what the queue or its parent may have, or too much together.

They are clipped to what exists, and that is held back only as far as the queue asks for it: a mistake in one queue
costs the others no more than its own jobs would. A `Pool` says what is left once all of them are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.api.crds import Condition
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector, amounts
from stromboli.fairness import shares
from stromboli.fairness.limits import Excess
from stromboli.framework.job import Queue
from stromboli.framework.report import Report
from stromboli.framework.view import View


def clip(guarantee: Matrix, own: Matrix, whole: Vector, asked: Matrix) -> tuple[Matrix, Mask]:
    """What is kept for the queues that share `whole`, and where that is less than they are guaranteed.

    `own` is what each may have at most, `asked` what it holds and requests. Shapes are (queues, dimensions) and
    (dimensions,).
    """
    possible = np.minimum(np.minimum(guarantee, own), whole)
    sums = possible.sum(axis=0)
    possible = possible * np.divide(whole, sums, out=np.ones_like(sums), where=sums > whole + TOLERANCE)
    clipped: Mask = possible < guarantee - TOLERANCE
    kept: Matrix = np.where(clipped, np.minimum(possible, asked), possible)
    return kept, clipped


def report_clipped(report: Report, view: View, queue: Queue, clipped: Mask) -> None:
    """Tell a queue which part of its guarantee cannot be kept; `clipped` says so of each dimension."""
    guaranteed = queue.spec.guarantee.resource
    if not guaranteed:
        return
    less = {name for name, is_less in zip(view.dimensions, clipped.tolist(), strict=True) if is_less}
    # What nobody offers has no dimension.
    less |= {name for name, amount in amounts(guaranteed).items() if amount and name not in view.dimensions}
    named = [f"{name} {amount}" for name, amount in guaranteed.items() if name in less]
    if named:
        message = f"spec.guarantee is more than can be kept: {', '.join(named)}"
        said = Condition(type="GuaranteeClipped", status="True", reason="MoreThanThereIs", message=message)
        report.queue_condition(queue.name, said)


@dataclass(slots=True, eq=False)
class Pool:
    """A queue, or the cluster, of which the queues below it hold some and more is kept. Shapes are (dimensions,)."""

    #: what is kept for it, held or not
    kept: Vector
    #: what it may have at most; infinite where somebody else sees to that
    limit: Vector
    #: what it holds; with queues below it, what these hold or are kept
    taken: Vector
    above: Pool | None = None
    #: whether the number of pods counts
    pods: bool = False

    @classmethod
    def cluster(cls, total: Vector, guaranteed: Vector, pods: bool = False) -> Pool:
        """All there is, limited where anything is guaranteed to anybody."""
        nothing = np.zeros_like(total)
        return cls(nothing, np.where(guaranteed > 0, total, np.inf), nothing, pods=pods)

    def part(self, kept: Vector, limit: Vector | float = np.inf) -> Pool:
        """The pool of a queue below it."""
        self.change(kept)
        nothing = np.zeros_like(kept)
        return Pool(kept, nothing + limit, nothing, self, self.pods)

    def change(self, amount: Vector) -> None:
        """It holds so much more, or less."""
        at: Pool | None = self
        while at is not None:
            before = np.maximum(at.kept, at.taken)
            at.taken = at.taken + amount
            amount, at = np.maximum(at.kept, at.taken) - before, at.above

    def left(self) -> Vector:
        """How much more it may take: what is kept for it, and what is kept for nobody."""
        left = self.limit - self.taken
        if self.above is not None:
            left = np.minimum(left, np.maximum(self.kept - self.taken, 0) + np.maximum(self.above.left(), 0))
        return left

    def copies(self, request: Vector, count: int) -> int:
        """How many of some copies of a request it may take."""
        return shares.copies_within(self.bound, self.taken, request, count, self.pods)

    @property
    def bound(self) -> Vector:
        """How much it may hold in the end."""
        return self.taken + np.maximum(self.left(), 0)

    def excess(
        self,
        queue: str,
        held: Vector,
        request: Vector,
        count: int = 1,
        tried: Vector | None = None,
        terminating: Vector | None = None,
    ) -> Excess:
        """That so many copies would be too many."""
        bound = self.bound
        columns = shares.exceeded(self.taken + count * request, bound, request, self.pods)
        return Excess(queue, held, request, bound, columns, tried=tried, terminating=terminating, for_others=True)
