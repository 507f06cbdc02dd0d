"""Whether some pods fit side by side on empty nodes: bin packing, tried within bounds.

A no is certain. Where the search would take too long the answer is yes, for the pods may be packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import TOLERANCE, Matrix, Rows

Amounts: TypeAlias = tuple[float, ...]

#: more pods than that are not tried, nor more placements of them
_MOST_PODS = 64
_MOST_STEPS = 2_000


def may_fit(requests: Matrix, numbers: Rows, nodes: Matrix, copies: Rows) -> bool:
    """Whether pods may fit on nodes, all of them at once.

    `requests` has shape (kinds of pods, dimensions), `nodes` (dimensions, kinds of nodes); `numbers` and `copies` say
    how many of each kind there are.
    """
    if int(numbers.sum()) > _MOST_PODS:
        return True
    asked = requests > 0
    largest = np.maximum(nodes.max(axis=1), 1)
    # Large pods have few places, so that what cannot be is found out soon.
    order = np.argsort(-(requests / largest).max(axis=1), kind="stable")
    pods = [tuple(requests[kind].tolist()) for kind in order for _ in range(int(numbers[kind]))]
    used = np.flatnonzero(reduce(np.logical_or, asked))
    shapes = [tuple(shape) for shape in nodes.T.tolist()]
    return _Search([_of(pod, used) for pod in pods], [_of(shape, used) for shape in shapes], copies.tolist()).possible()


def _of(amounts: Amounts, columns: Rows) -> Amounts:
    return tuple(amounts[column] for column in columns.tolist())


class _Search:
    """Places pods in order, each on every node that differs from the others, until all have a place."""

    def __init__(self, pods: Sequence[Amounts], shapes: Sequence[Amounts], copies: Sequence[int]) -> None:
        self._pods = pods
        self._shapes = shapes
        self._copies = list(copies)
        self._steps = 0
        self._failed: set[tuple[int, tuple[Amounts, ...]]] = set()

    def possible(self) -> bool:
        """Whether all have a place, or it takes too long to find out."""
        return self._place(0, ()) or self._steps > _MOST_STEPS

    def _place(self, at: int, begun: tuple[Amounts, ...]) -> bool:
        """Whether the pods from one on have places; `begun` is what is left of nodes that have pods, in order."""
        if at == len(self._pods):
            return True
        self._steps += 1
        if self._steps > _MOST_STEPS or (at, begun) in self._failed:
            return False
        pod = self._pods[at]
        for free in dict.fromkeys(begun):
            if _fits(pod, free):
                rest = list(begun)
                rest.remove(free)
                if self._place(at + 1, _with(rest, free, pod)):
                    return True
        for number, shape in enumerate(self._shapes):
            if self._copies[number] and _fits(pod, shape):
                self._copies[number] -= 1
                found = self._place(at + 1, _with(begun, shape, pod))
                self._copies[number] += 1
                if found:
                    return True
        self._failed.add((at, begun))
        return False


def _fits(pod: Amounts, free: Amounts) -> bool:
    return all(asked < left + TOLERANCE for asked, left in zip(pod, free, strict=True) if asked)


def _with(begun: Sequence[Amounts], free: Amounts, pod: Amounts) -> tuple[Amounts, ...]:
    """Nodes with another one, on which a pod was placed."""
    return tuple(sorted((*begun, tuple(left - asked for left, asked in zip(free, pod, strict=True)))))
