"""Limits on what queues hold, borrow and lend. Amounts have shape (dimensions,)."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Vector
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View


def own(view: View, queue: Queue) -> Vector:
    """What a queue holds without borrowing: what it says that it deserves, or its guarantee where that is more."""
    owned: Vector = np.maximum(view.vector(shares.entitled(queue)), view.vector(queue.spec.guarantee.resource))
    return owned


def most(view: View, queue: Queue) -> Vector:
    """What a queue may hold by its `borrowingLimit`, infinite where that says nothing."""
    return own(view, queue) + view.vector(queue.spec.borrowing_limit, np.inf)


def ceiling(view: View, queue: Queue) -> Vector:
    """What the spec of a queue limits it to, infinite where it says nothing."""
    capability = shares.capability(view, queue)
    return np.minimum(capability, most(view, queue)) if queue.spec.borrowing_limit else capability


def unlent(view: View, queue: Queue) -> Vector:
    """What a queue keeps of what it deserves, used or not, by its `lendingLimit`."""
    lent = view.vector(queue.spec.lending_limit, np.inf)
    kept: Vector = np.maximum(view.vector(shares.entitled(queue)) - lent, 0)
    return kept
