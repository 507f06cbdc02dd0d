"""The division queue by queue, as it is described: slow, and plain to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from stromboli.api.resources import Matrix, Vector
from stromboli.fairness.queue_tree import TOP
from stromboli.plugins.fairshare.tree import DivisionTree


@dataclass
class Queue:
    """What a queue wants of one resource."""

    row: int
    quota: float
    requestable: float
    weight: float
    usage: float
    priority: float
    age: tuple[float, str]
    share: float = 0.0
    cut_short: float = 0.0

    @property
    def need(self) -> float:
        """What it lacks."""
        return self.requestable - self.share


def divide_tree(tree: DivisionTree, total: Vector, k: float) -> None:
    """Set the fair share of every queue."""
    _divide_children(tree, TOP, total.tolist(), k)


def _divide_children(tree: DivisionTree, parent: int, available: list[float], k: float) -> None:
    rows = [row for row in range(len(tree)) if tree.parent[row] == parent]
    for column, amount in enumerate(available):
        for queue in divide([_queue(tree, row, column) for row in rows], amount, k, float(tree.unit[column])):
            tree.fair_share[queue.row, column] = queue.share
    if len(rows) < len(tree):
        for row in rows:
            _divide_children(tree, row, tree.fair_share[row].tolist(), k)


def _queue(tree: DivisionTree, row: int, column: int) -> Queue:
    return Queue(
        row,
        quota=float(tree.quota[row, column]),
        requestable=float(min(tree.limit[row, column], tree.request[row, column])),
        weight=float(tree.weight[row, column]),
        usage=float(tree.usage[row, column]),
        priority=float(tree.priority[row]),
        age=(float(tree.created[row]), tree.names[row]),
    )


def divide(queues: list[Queue], total: float, k: float, unit: float) -> list[Queue]:
    """Divide one resource among siblings."""
    rest = total
    for queue in queues:
        queue.share = min(total if math.isinf(queue.quota) else queue.quota, queue.requestable)
        rest -= queue.share
    if rest <= 0:
        return queues
    by_priority = sorted(queues, key=lambda queue: -queue.priority)
    for _, equals in groupby(by_priority, key=lambda queue: queue.priority):
        rest = _rounds(list(equals), rest, k, unit)
    for queue in sorted(queues, key=lambda queue: (-queue.priority, -queue.cut_short, queue.age)):
        if queue.cut_short > 0 and rest > 0:
            given = min(unit, rest)
            queue.share += given
            rest -= given
    return queues


def _rounds(queues: list[Queue], rest: float, k: float, unit: float) -> float:
    again = True
    while again and rest > 0:
        again = False
        hungry = [queue for queue in queues if queue.need > 0]
        weights = sum(queue.weight for queue in hungry)
        if weights == 0:
            break
        parts = [queue.weight / weights for queue in hungry]
        parts = [max(0.0, n + k * (n - queue.usage)) for n, queue in zip(parts, hungry, strict=True)]
        if sum(parts) == 0:
            break
        offered = [rest * (part / sum(parts)) for part in parts]
        for queue, offer in zip(hungry, offered, strict=True):
            if queue.need <= offer:
                again |= queue.need < offer
                given, queue.cut_short = queue.need, 0.0
            else:
                given = math.floor(offer / unit) * unit
                queue.cut_short = (offer - given) / unit or queue.cut_short
            queue.share += given
            rest -= given
    return rest


def random_tree(count: int, seed: int = 1) -> tuple[DivisionTree, Vector]:
    """Queues side by side that want three times what there is, in three priorities; and what there is."""
    random = np.random.default_rng(seed)
    each = np.array([4_000.0, 16e9, 2_000.0])
    unit = np.array([1.0, 1.0, 1_000.0])

    def amounts(most: float) -> Matrix:
        out: Matrix = np.floor(random.random((count, 3)) * each * most / unit) * unit
        return out

    tree = DivisionTree(
        names=[f"queue-{number:05}" for number in range(count)],
        parent=np.full(count, TOP),
        priority=random.integers(0, 3, count).astype(np.float64),
        created=random.integers(0, 10**6, count).astype(np.float64),
        quota=amounts(0.7),
        limit=np.where(random.random((count, 3)) < 0.3, amounts(2.0), np.inf),
        weight=random.integers(1, 10, (count, 3)).astype(np.float64),
        usage=random.random((count, 3)) / count,
        request=amounts(3.0),
        allocated=np.zeros((count, 3)),
        non_preemptible=np.zeros((count, 3)),
        unit=unit,
    )
    return tree, each * count
