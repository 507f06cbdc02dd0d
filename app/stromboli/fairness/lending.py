"""Limits on what queues hold, borrow and lend. Amounts have shape (dimensions,)."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Vector
from stromboli.fairness import shares
from stromboli.framework.cluster.job import Queue
from stromboli.framework.cluster.view import View


def own(view: View, queue: Queue) -> Vector:
    """The queue's share without borrowed capacity: its `deserved`, or its guarantee if larger."""
    owned: Vector = np.maximum(view.vector(shares.entitled(queue)), view.vector(queue.spec.guarantee.resource))
    return owned


def most(view: View, queue: Queue) -> Vector:
    """The most that a queue may hold by its `borrowingLimit`; infinite where unset."""
    return own(view, queue) + view.vector(queue.spec.borrowing_limit, np.inf)


def ceiling(view: View, queue: Queue) -> Vector:
    """The limit in the spec of a queue; infinite where unset."""
    capability = shares.capability(view, queue)
    return np.minimum(capability, most(view, queue)) if queue.spec.borrowing_limit else capability


def unlent(view: View, queue: Queue) -> Vector:
    """The part of its deserved amount that a queue keeps, used or not, by its `lendingLimit`."""
    lent = view.vector(queue.spec.lending_limit, np.inf)
    kept: Vector = np.maximum(view.vector(shares.entitled(queue)) - lent, 0)
    return kept
