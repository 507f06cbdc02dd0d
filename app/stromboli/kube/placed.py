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
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.operation import Kind, Operation
from stromboli.framework.view import View
from stromboli.state.classes import PodClass
from stromboli.state.columns import Column
from stromboli.state.pods import IntColumn

T = TypeVar("T", bound=Hashable)

_ON_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))
#: counts that are kept; one that was dropped is taken anew
_MOST_COUNTS = 64


class Scope(IntEnum):
    """Where the pods are on which it depends what a rule says of a node."""

    Nowhere = 0
    OnNode = 1
    Anywhere = 2


#: what a rule wants to know of a pod class; None when it has nothing to do with the class
Trait = Callable[[PodClass], T | None]


@dataclass(slots=True)
class _Count:
    #: the rows of the pods that are counted
    rows: Rows
    #: how many of them are placed
    total: int
    #: shape (nodes,); None as long as none of them was
    counts: Vector | None
    #: how many placements are counted
    seen: int
    #: the same as `rows`, shape (pods,), once placements are looked through
    selected: Mask | None = None


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

    # -- asked by rules ------------------------------------------------------------------------------------------

    def count(self, key: Hashable, select: Callable[[], Rows], *, terminating: bool = True) -> Vector | None:
        """How many of the pods that `select` finds, by row, are on each node; `key` identifies the question.

        Without `terminating`, pods that were being deleted before the session do not count.
        """
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = self._taken(select(), terminating=terminating)
            if len(self._counts) > _MOST_COUNTS:
                self._counts.popitem(last=False)
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

    def with_trait(self, trait: Trait[T], number: int) -> Vector | None:
        """How many pods with one value of a trait, by its number, are on each node."""
        return self.count((trait, number), lambda: self.traits(trait).rows(number))

    def counted(self) -> tuple[Rows, IntColumn, int]:
        """The rows and nodes of all pods that are placed now, and from where on `moves` tells what is new."""
        rows = self._placed(np.arange(len(self._evicted)))
        return rows, self._pods.node[rows], len(self._moves)

    def moves(self, seen: int) -> Sequence[tuple[Operation, int]]:
        """Operations that were made (1) or taken back (-1) after so many others."""
        return self._moves[seen:]

    # -- counting ------------------------------------------------------------------------------------------------

    def _placed(self, rows: Rows) -> Rows:
        """Those of some pods that are placed."""
        placed: Rows = rows[_ON_NODE[self._pods.state[rows]] & (self._pods.node[rows] >= 0) & ~self._evicted[rows]]
        return placed

    def _taken(self, found: Rows, *, terminating: bool) -> _Count:
        rows = self._placed(found) if len(found) else found
        if not terminating and len(rows):
            rows = rows[self._pods.state[rows] != PodState.Releasing]
        counts = None
        if len(rows):
            counts = np.bincount(self._pods.node[rows], minlength=self._nodes).astype(np.float64)
        return _Count(found, len(rows), counts, len(self._moves))

    def _catch_up(self, found: _Count) -> None:
        """Count what was placed or evicted since."""
        if found.selected is None:
            found.selected = np.zeros(len(self._evicted), np.bool_)
            found.selected[found.rows] = True
        for operation, sign in self._moves[found.seen :]:
            chosen = found.selected[operation.rows]
            if chosen.any():
                if found.counts is None:
                    found.counts = np.zeros(self._nodes)
                np.add.at(found.counts, np.array(operation.nodes)[chosen], sign)
                found.total += sign * int(np.count_nonzero(chosen))
        found.seen = len(self._moves)
