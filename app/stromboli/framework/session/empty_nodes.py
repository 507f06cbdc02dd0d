"""Capacity of the cluster if no pod ran: which requests fit on some node, how often, and which side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import numpy as np

from stromboli.api.resources import TOLERANCE, Mask, Matrix, Rows, Vector, copies_that_fit, fits
from stromboli.framework.cluster.view import View

Amounts: TypeAlias = tuple[float, ...]

#: kinds of nodes on which gangs are tried in columns
_COMMON = 4
#: the most pods that are packed, and the most placements tried for them
_MOST_PODS = 64
_MOST_STEPS = 2_000


class EmptyNodes:
    """The kinds of nodes that there are, empty."""

    def __init__(self, view: View) -> None:
        allocatable, derived = view.nodes.allocatable, view.snapshot.derived
        known = derived.get(EmptyNodes)
        if not (isinstance(known, tuple) and np.array_equal(known[0], allocatable)):
            known = derived[EmptyNodes] = (allocatable, *_kinds(allocatable))
        #: shape (dimensions, kinds)
        self.amounts: Matrix = known[1]
        self._counts: Rows = known[2]

    def holds(self, requests: Matrix) -> Mask:
        """Mask of requests, shape (requests, dimensions), that fit on some node."""
        held = np.zeros(len(requests), np.bool_)
        for shape in np.unique(self.amounts.argmax(axis=1)):
            held |= (requests < self.amounts[:, shape] + TOLERANCE).all(axis=1)
        for row in np.flatnonzero(~held):
            held[row] = fits(requests[row], self.amounts).any()
        return held

    def hold(self, requests: Matrix, numbers: Rows) -> Mask:
        """Mask of requests, shape (requests, dimensions), that surely fit `numbers` times on nodes of a common kind."""
        held = np.zeros(len(requests), np.bool_)
        for shape in np.argsort(-self._counts, kind="stable")[:_COMMON].tolist():
            of_shape = self.amounts[:, shape]
            with np.errstate(divide="ignore", invalid="ignore"):
                copies = np.where(requests > 0, of_shape // requests, np.inf).min(axis=1, initial=np.inf)
            held |= copies * self._counts[shape] >= numbers
        return held

    def pack(self, requests: Matrix, numbers: Rows) -> bool:
        """Whether `numbers` pods with each request, shape (requests, dimensions), may fit side by side."""
        return fit_side_by_side(requests, numbers, self.amounts, self._counts)

    def copies(self, request: Vector) -> float:
        """Number of pods of one request that fit on all nodes together."""
        return float(np.maximum(copies_that_fit(request, self.amounts), 0) @ self._counts)


def _kinds(amounts: Matrix) -> tuple[Matrix, Rows]:
    """The distinct columns, in order of appearance, and the number of each.

    Columns are compared as bytes: sorting them costs the more, the more dimensions there are.
    """
    counts = Counter(row.tobytes() for row in np.ascontiguousarray(amounts.T))
    kinds = np.frombuffer(b"".join(counts), amounts.dtype).reshape(len(counts), len(amounts)).T
    return kinds, np.fromiter(counts.values(), np.intp, len(counts))


def fit_side_by_side(requests: Matrix, numbers: Rows, nodes: Matrix, copies: Rows) -> bool:
    """Whether pods may all fit on nodes at the same time: bin packing with bounded effort.

    A no is certain. If the search would take too long, the answer is yes.

    `requests` has shape (kinds of pods, dimensions), `nodes` (dimensions, kinds of nodes); `numbers` and `copies` are
    the number of pods and nodes of each kind.
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
    return _Packing(
        [_of(pod, used) for pod in pods], [_of(shape, used) for shape in shapes], copies.tolist()
    ).possible()


def _of(amounts: Amounts, columns: Rows) -> Amounts:
    return tuple(amounts[column] for column in columns.tolist())


class _Packing:
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
