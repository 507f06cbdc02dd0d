"""Guarantees that cannot be kept: above the cluster, above what the queue or its parent may have, or too much together.

They are clipped to what exists, and that is held back only as far as the queue asks for it: a mistake in one queue
costs the others no more than its own jobs would.
"""

from __future__ import annotations

import numpy as np

from stromboli.api.crds import Condition
from stromboli.api.resources import TOLERANCE, Mask, Matrix, Vector, amounts
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
