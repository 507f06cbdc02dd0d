"""Counts of placed pods per node, for the pods that a rule between pods asks about.

Affinity, spread and host ports ask how many pods of some kind are on each node, where the kind is a mask over the
columns of `PodFacts`. A count is computed when it is first asked for and then updated with the session's placements. As
long as no rule asks, placements are only logged.

A pod is on a node if the snapshot has it there or this session placed it there, now or later; a pod that this session
evicts is not.
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
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.operation import Kind, Operation
from stromboli.state.classes import PodClass
from stromboli.state.columns import Column
from stromboli.state.pods import IntColumn, PodRecord

T = TypeVar("T", bound=Hashable)

_ON_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))
#: up to this many pods are counted one by one
_FEW = 8
#: limits on the number of cached counts, and on their pods in all; a dropped count is taken again
_MOST_COUNTS, _MOST_ROWS = 64, 1_000_000


class Scope(IntEnum):
    """The pods that a rule's answer about a node depends on."""

    Nowhere = 0
    OnNode = 1
    Anywhere = 2


#: rows of pods, ascending, and the weight of each unless it is 1
Selected = Rows | tuple[Rows, Vector]

#: reads the relevant part of a pod class; None for classes that do not matter
Trait = Callable[[PodClass], T | None]


@dataclass(slots=True)
class _Count:
    #: rows of the counted pods, ascending, and the weight of each; None for 1
    rows: Rows
    weights: Vector | None
    #: number of pods that are placed
    total: int
    #: the count, shape (nodes,); None while it is zero everywhere
    counts: Vector | None
    #: number of log entries that are included
    seen: int

    def change(self, operation: Operation, sign: int, nodes: int) -> None:
        """Add pods to their nodes (1) or remove them (-1); `nodes` is the number of nodes."""
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
    """The counts in one session. Vectors have shape (nodes,) and must not be changed; None stands for zeros."""

    def __init__(self, view: View) -> None:
        self._pods = view.pods
        self._nodes = len(view.nodes)
        #: values of pods by row
        self.pod_facts = view.snapshot.pod_facts
        self._traits: dict[Trait[Any], Column[Any]] = {}
        self._moves: list[tuple[Operation, int]] = []
        self._evicted = np.zeros(len(view.pods.state), np.bool_)
        self._counts: OrderedDict[Hashable, _Count] = OrderedDict()
        #: rows of all pods
        self._rows = 0

    # -- kept up by the plugin that owns it ----------------------------------------------------------------------

    def add(self, operation: Operation) -> None:
        """Pods were placed, or their eviction was undone."""
        self._moves.append((operation, 1))
        if operation.kind is Kind.Evict or operation.origin >= 0:
            self._evicted[operation.rows] = False

    def remove(self, operation: Operation) -> None:
        """Pods were unplaced, or evicted."""
        self._moves.append((operation, -1))
        if operation.kind is Kind.Evict or operation.origin >= 0:
            self._evicted[operation.rows] = True

    @property
    def changes(self) -> int:
        """The number of changes so far; all answers stay valid while it is unchanged."""
        return len(self._moves)

    # -- asked by rules ------------------------------------------------------------------------------------------

    def count(self, key: Hashable, select: Callable[[], Selected], *, terminating: bool = True) -> Vector | None:
        """The number of pods on each node that `select` finds by row; `key` identifies the question for the cache.

        If `select` returns weights beside the rows, each pod counts with its weight. Without `terminating`, pods that
        were being deleted before the session do not count.
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

    def of_job(self, pod: PodRecord) -> Vector | None:
        """The number of pods on each node of a pod's job, without those that were being deleted."""
        column = self.pod_facts.column("job", lambda each: each.job or None)
        number = column.by_value[pod.job]
        return self.count(("job", pod.job), lambda: column.rows(number), terminating=False)

    def traits(self, trait: Trait[T]) -> Column[T]:
        """A property of all pods, placed or not."""
        found = self._traits.get(trait)
        if found is None:
            found = self._traits[trait] = self.pod_facts.column(trait, lambda pod: trait(pod.pod_class))
        return found

    def with_traits(self, trait: Trait[T], key: Hashable, weights: Callable[[], tuple[Rows, Vector]]) -> Vector | None:
        """The sum over the pods of each node of the weights of their values of a trait.

        `weights` are numbers of values, each once, and their weights; `key` identifies them for the cache.
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
        """The rows and nodes of all placed pods, and the position from which `moves` reports changes."""
        rows = np.flatnonzero(_ON_NODE.take(self._pods.state) & (self._pods.node >= 0) & ~self._evicted)
        return rows, self._pods.node[rows], len(self._moves)

    def moves(self, seen: int) -> Sequence[tuple[Operation, int]]:
        """Operations that were made (1) or undone (-1) after a position."""
        return self._moves[seen:]

    def on_first_node(self, rows: Rows) -> Rows:
        """The pods in `rows` on the first node that has any of them."""
        there = rows[_ON_NODE.take(self._pods.state.take(rows)) & ~self._evicted.take(rows)]
        there = there[self._pods.node[there] >= 0]
        first: Rows = there[self._pods.node[there] == self._pods.node[there].min(initial=self._nodes)]
        return first

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
        """The update pod by pod, since most values of a trait belong to one pod."""
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
        """Apply the placements and evictions since the last count."""
        if len(found.rows):
            for operation, sign in self._moves[found.seen :]:
                found.change(operation, sign, self._nodes)
        found.seen = len(self._moves)
