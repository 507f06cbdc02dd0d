"""Where pods are in this session: counts per node of the pods that a rule asks about, where there are any.

Rules between pods (affinity, spread, host ports) ask "how many pods like these are on each node?". Which pods are like
these is a mask over the columns of `PodFacts`. The count is taken when it is first asked for and kept up from the
session's placements while it is in use. Nobody asks, nothing is done but to remember the placements.

A pod is on a node when the snapshot has it there or this session gave it the node, now or later; a pod that this
session evicts is no longer there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from stromboli.api.pod_state import ON_NODE_STATES, STATES, PodState
from stromboli.api.resources import Rows, Vector
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.view import View
from stromboli.state.classes import PodClass
from stromboli.state.columns import Column
from stromboli.state.pods import IntColumn

T = TypeVar("T", bound=Hashable)

_ON_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))
#: so many pods are sooner counted one by one
_FEW = 8
#: counts that are kept, and the pods that they count in all; one that was dropped is taken anew
_MOST_COUNTS, _MOST_ROWS = 64, 1_000_000


class Scope(IntEnum):
    """Where the pods are on which it depends what a rule says of a node."""

    Nowhere = 0
    OnNode = 1
    Anywhere = 2


#: rows of pods, ascending, and for how many each counts where that is not 1
Selected = Rows | tuple[Rows, Vector]

#: what a rule wants to know of a pod class; None when it has nothing to do with the class
Trait = Callable[[PodClass], T | None]


@dataclass(slots=True)
class _Count:
    #: the rows of the pods that are counted, ascending, and for how many each counts; None for 1
    rows: Rows
    weights: Vector | None
    #: how many of them are placed
    total: int
    #: shape (nodes,); None as long as none of them was
    counts: Vector | None
    #: how many placements are counted
    seen: int

    def change(self, operation: Operation, sign: int, nodes: int) -> None:
        """Pods come to a node (1) or leave it (-1); there are so many nodes."""
        if len(operation.pods) > _FEW:
            self._change_many(operation, sign, nodes)
            return
        last = len(self.rows) - 1
        for pod, node in zip(operation.pods, operation.nodes, strict=True):
            at = min(int(self.rows.searchsorted(pod.row)), last)
            if node >= 0 and self.rows.item(at) == pod.row:
                if self.counts is None:
                    self.counts = np.zeros(nodes)
                self.counts[node] += sign if self.weights is None else sign * self.weights.item(at)
                self.total += sign

    def _change_many(self, operation: Operation, sign: int, nodes: int) -> None:
        rows, where = np.array([pod.row for pod in operation.pods]), np.array(operation.nodes)
        at = np.minimum(self.rows.searchsorted(rows), len(self.rows) - 1)
        known = (self.rows[at] == rows) & (where >= 0)
        if known.any():
            if self.counts is None:
                self.counts = np.zeros(nodes)
            np.add.at(self.counts, where[known], sign if self.weights is None else sign * self.weights[at[known]])
            self.total += sign * int(np.count_nonzero(known))


class PlacedPods:
    """See the module's docstring. Vectors have shape (nodes,) and must not be changed; None is one of zeros."""

    def __init__(self, view: View) -> None:
        self._pods = view.pods
        self._nodes = len(view.nodes)
        #: what is known of pods, by row
        self.pod_facts = view.snapshot.pod_facts
        self._traits: dict[Trait[Any], Column[Any]] = {}
        self._moves: list[tuple[Operation, int]] = []
        self._evicted = np.zeros(len(view.pods.state), np.bool_)
        self._counts: OrderedDict[Hashable, _Count] = OrderedDict()
        #: rows of all of them
        self._rows = 0

    # -- kept up by the plugin that owns it ----------------------------------------------------------------------

    def add(self, operation: Operation) -> None:
        """Pods got a node, or were not evicted after all."""
        self._moves.append((operation, 1))
        if operation.kind is Kind.Evict or operation.origin >= 0:
            self._evicted[operation.rows] = False

    def remove(self, operation: Operation) -> None:
        """Pods lost their node, or are evicted."""
        self._moves.append((operation, -1))
        if operation.kind is Kind.Evict or operation.origin >= 0:
            self._evicted[operation.rows] = True

    @property
    def changes(self) -> int:
        """How many times pods came or went: while that is the same, all answers are."""
        return len(self._moves)

    # -- asked by rules ------------------------------------------------------------------------------------------

    def count(self, key: Hashable, select: Callable[[], Selected], *, terminating: bool = True) -> Vector | None:
        """How many of the pods that `select` finds, by row, are on each node; `key` identifies the question.

        With weights beside the rows each pod counts for so many, but not for 0. Without `terminating`, pods that were
        being deleted before the session do not count.
        """
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = self._taken(select(), terminating=terminating)
            self._rows += len(found.rows)
            while len(self._counts) > _MOST_COUNTS or (self._rows > _MOST_ROWS and len(self._counts) > 1):
                self._rows -= len(self._counts.popitem(last=False)[1].rows)
        else:
            self._counts.move_to_end(key)
            if found.seen < len(self._moves):
                self._catch_up(found)
        return found.counts if found.total else None

    def traits(self, trait: Trait[T]) -> Column[T]:
        """A trait of all pods, whether they are placed or not."""
        found = self._traits.get(trait)
        if found is None:
            found = self._traits[trait] = self.pod_facts.column(trait, lambda pod: trait(pod.pod_class))
        return found

    def with_traits(self, trait: Trait[T], key: Hashable, weights: Callable[[], tuple[Rows, Vector]]) -> Vector | None:
        """How many pods are on each node, of which each counts for the weight of its value of a trait.

        `weights` has numbers of values, each once, and what they weigh; `key` says which they are.
        """

        def selected() -> Selected:
            column, (values, weighing) = self.traits(trait), weights()
            if len(values) == 1:
                rows, weight = column.rows(int(values[0])), float(weighing[0])
                return rows if weight == 1 else (rows, np.full(len(rows), weight))
            if not weighing.all():
                values, weighing = values[weighing != 0], weighing[weighing != 0]
            rows, of = column.rows_of_any(values)
            return rows, weighing[of]

        return self.count((trait, key), selected)

    def counted(self) -> tuple[Rows, IntColumn, int]:
        """The rows and nodes of all pods that are placed now, and from where on `moves` tells what is new."""
        rows = np.flatnonzero(_ON_NODE.take(self._pods.state) & (self._pods.node >= 0) & ~self._evicted)
        return rows, self._pods.node[rows], len(self._moves)

    def moves(self, seen: int) -> Sequence[tuple[Operation, int]]:
        """Operations that were made (1) or taken back (-1) after so many others."""
        return self._moves[seen:]

    # -- counting ------------------------------------------------------------------------------------------------

    def _taken(self, found: Selected, *, terminating: bool) -> _Count:
        rows, weights = found if isinstance(found, tuple) else (found, None)
        out = _Count(rows, weights, 0, None, len(self._moves))
        if not len(rows):
            return out
        if len(rows) <= _FEW:
            self._take_few(out, terminating=terminating)
            return out
        states, nodes = self._pods.state.take(rows), self._pods.node.take(rows)
        there = _ON_NODE.take(states) & (nodes >= 0) & ~self._evicted.take(rows)
        if not terminating:
            there &= states != PodState.Releasing
        out.total = int(np.count_nonzero(there))
        if out.total:
            nodes, of = nodes[there], None if weights is None else weights[there]
            out.counts = np.bincount(nodes, weights=of, minlength=self._nodes).astype(np.float64, copy=False)
        return out

    def _take_few(self, out: _Count, *, terminating: bool) -> None:
        """The same one by one: most values of a trait are those of one pod."""
        weights = None if out.weights is None else out.weights.tolist()
        for at, row in enumerate(out.rows.tolist()):
            state, node = self._pods.state.item(row), self._pods.node.item(row)
            gone = self._evicted.item(row) or (not terminating and state == PodState.Releasing)
            if node >= 0 and _ON_NODE.item(state) and not gone:
                if out.counts is None:
                    out.counts = np.zeros(self._nodes)
                out.counts[node] += 1 if weights is None else weights[at]
                out.total += 1

    def _catch_up(self, found: _Count) -> None:
        """Count what was placed or evicted since."""
        if len(found.rows):
            for operation, sign in self._moves[found.seen :]:
                found.change(operation, sign, self._nodes)
        found.seen = len(self._moves)
