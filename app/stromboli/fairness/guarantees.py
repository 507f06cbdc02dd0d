"""Guarantees that cannot be kept: above the cluster, above the limit of the queue or its parent, or too large in sum.

They are clipped to what exists, and reserved only as far as the queue requests them, so that a mistake in one queue
costs others no more than its jobs would. A `Pool` has what is left once all guarantees are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stromboli.api.crds import Condition
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector, amounts
from stromboli.fairness import shares
from stromboli.fairness.limits import Excess, Tried
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.report import Report


def clip(guarantee: Matrix, own: Matrix, whole: Vector, asked: Matrix) -> tuple[Matrix, Mask]:
    """The reserved amounts of queues that share `whole`, and where these are less than the guarantees.

    `own` is the limit of each queue, `asked` what it uses and requests. Shapes are (queues, dimensions) and
    (dimensions,).
    """
    possible = np.minimum(np.minimum(guarantee, own), whole)
    sums = possible.sum(axis=0)
    possible = possible * np.divide(whole, sums, out=np.ones_like(sums), where=sums > whole + TOLERANCE)
    clipped: Mask = possible < guarantee - TOLERANCE
    kept: Matrix = np.where(clipped, np.minimum(possible, asked), possible)
    return kept, clipped


def report_clipped(report: Report, view: View, queue: Queue, clipped: Mask) -> None:
    """Report the part of a queue's guarantee that cannot be kept; `clipped` is true for its dimensions."""
    guaranteed = queue.spec.guarantee.resource
    if not guaranteed:
        return
    less = {name for name, is_less in zip(view.dimensions, clipped.tolist(), strict=True) if is_less}
    # A resource that no node has is no dimension.
    less |= {name for name, amount in amounts(guaranteed).items() if amount and name not in view.dimensions}
    named = [f"{name} {amount}" for name, amount in guaranteed.items() if name in less]
    if named:
        message = f"spec.guarantee is more than can be kept: {', '.join(named)}"
        said = Condition(type="GuaranteeClipped", status="True", reason="MoreThanThereIs", message=message)
        report.queue_condition(queue.name, said)


@dataclass(slots=True, eq=False)
class Pool:
    """A queue, or the cluster, with its children's usage and reserves. Shapes are (dimensions,)."""

    #: amounts reserved for it, used or not
    kept: Vector
    #: its limit; infinite where the limit is enforced elsewhere
    limit: Vector
    #: amounts that it uses; with children, that they use or have reserved
    taken: Vector
    above: Pool | None = None
    #: whether the number of pods counts
    pods: bool = False

    @classmethod
    def cluster(cls, total: Vector, guaranteed: Vector, pods: bool = False) -> Pool:
        """The whole cluster, limited in dimensions with any guarantee."""
        nothing = np.zeros_like(total)
        return cls(nothing, np.where(guaranteed > 0, total, np.inf), nothing, pods=pods)

    def part(self, kept: Vector, limit: Vector | float = np.inf) -> Pool:
        """The pool of a child."""
        self.change(kept)
        nothing = np.zeros_like(kept)
        return Pool(kept, nothing + limit, nothing, self, self.pods)

    def change(self, amount: Vector) -> None:
        """Add to its usage; negative amounts subtract."""
        at: Pool | None = self
        while at is not None:
            before = np.maximum(at.kept, at.taken)
            at.taken = at.taken + amount
            amount, at = np.maximum(at.kept, at.taken) - before, at.above

    def left(self) -> Vector:
        """Amounts that it may still use: its own reserve, and what is reserved for no queue."""
        left = self.limit - self.taken
        if self.above is not None:
            left = np.minimum(left, np.maximum(self.kept - self.taken, 0) + np.maximum(self.above.left(), 0))
        return left

    def copies(self, request: Vector, count: int) -> int:
        """Number of copies of a request, `count` at most, that it may use."""
        return shares.copies_within(self.bound, self.taken, request, count, self.pods)

    @property
    def bound(self) -> Vector:
        """The most that it may use."""
        return self.taken + np.maximum(self.left(), 0)

    def excess(
        self,
        queue: str,
        held: Vector,
        request: Vector,
        count: int = 1,
        tried: Tried | None = None,
        terminating: Vector | None = None,
    ) -> Excess:
        """Whether a number of copies would exceed it."""
        bound = self.bound
        columns = shares.exceeded(self.taken + count * request, bound, request, self.pods)
        return Excess(queue, held, request, bound, columns, tried=tried, terminating=terminating, for_others=True)
