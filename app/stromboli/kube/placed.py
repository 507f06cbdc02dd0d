"""Where pods are in this session: counts per node of the pods that a rule asks about.

Rules between pods (affinity, spread, host ports) ask "how many pods like these are on each node?". Such a count is
taken over all pods when it is first asked for and kept up from the session's placements afterwards. Nobody asks,
nothing is done but to remember the placements.

A pod is on a node when the snapshot has it there or this session gave it the node, now or later; a pod that this
session evicts is no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stromboli.api.pod_state import ON_NODE_STATES, STATES, PodState
from stromboli.api.resources import Rows, Vector
from stromboli.framework.session import Session
from stromboli.framework.statement import Kind, Placement
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

T = TypeVar("T", bound=Hashable)

_ON_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))

#: what a rule wants to know of a pod class; None when it has nothing to do with the class
Trait = Callable[[PodClass], T | None]


@dataclass(slots=True)
class _Matching:
    selects: Callable[[PodRecord], bool]
    counts: Vector
    #: how many placements are counted
    seen: int


@dataclass(frozen=True, slots=True)
class Traits(Generic[T]):
    """A trait of all classes."""

    #: the distinct values, numbered
    values: dict[T, int] = field(default_factory=dict)
    #: the number of each class's value by class id, -1 for None
    of_class: list[int] = field(default_factory=list)

    def extended(self, classes: Sequence[PodClass], trait: Trait[T]) -> Traits[T]:
        """These and the classes that are new; numbers stay."""
        values, of_class = self.values.copy(), self.of_class.copy()
        for pod_class in classes[len(of_class) :]:
            value = trait(pod_class)
            of_class.append(-1 if value is None else values.setdefault(value, len(values)))
        return Traits(values, of_class)


@dataclass(slots=True)
class _ByTrait:
    #: counts by the number of the value
    counts: dict[int, Vector]
    seen: int


_NO_TRAITS: Traits[Any] = Traits()


class PlacedPods:
    """See the module's docstring. Vectors have shape (nodes,) and must not be changed."""

    def __init__(self, session: Session) -> None:
        self._classes = session.snapshot.classes
        self._pods = session.pods
        self._facts = session.nodes.facts
        self._moves: list[tuple[Placement, int]] = []
        self._evicted: set[int] = set()
        self._matching: dict[Hashable, _Matching] = {}
        self._by_trait: dict[object, _ByTrait] = {}

    # -- kept up by the plugin that owns it ----------------------------------------------------------------------

    def add(self, placement: Placement) -> None:
        """Pods got a node, or were not evicted after all."""
        self._moves.append((placement, 1))
        if placement.kind is Kind.Evict:
            self._evicted.difference_update(pod.row for pod in placement.pods)

    def remove(self, placement: Placement) -> None:
        """Pods lost their node, or are evicted."""
        self._moves.append((placement, -1))
        if placement.kind is Kind.Evict:
            self._evicted.update(pod.row for pod in placement.pods)

    # -- asked by rules ------------------------------------------------------------------------------------------

    def matching(self, key: Hashable, selects: Callable[[PodRecord], bool], *, terminating: bool = True) -> Vector:
        """How many pods that `selects` accepts are on each node; `key` identifies the question.

        Without `terminating`, pods that were being deleted before the session do not count.
        """
        found = self._matching.get(key)
        if found is None:
            rows = self._rows()
            if not terminating:
                rows = rows[self._pods.state[rows] != PodState.Releasing]
            records = cast("list[PodRecord]", self._pods.records)
            chosen = [row for row in rows.tolist() if selects(records[row])]
            nodes = self._pods.node[chosen]
            counts = np.bincount(nodes, minlength=len(self._facts)).astype(np.float64)
            found = self._matching[key] = _Matching(selects, counts, len(self._moves))
        for placement, sign in self._moves[found.seen :]:
            for pod, node in zip(placement.pods, placement.nodes, strict=True):
                if found.selects(pod):
                    found.counts[node] += sign
        found.seen = len(self._moves)
        return found.counts

    def traits(self, trait: Trait[T]) -> Traits[T]:
        """A trait of all classes, whether pods of them are placed or not."""
        known = cast("Traits[T]", self._facts.cache.get(trait, _NO_TRAITS))
        if len(known.of_class) < len(self._classes):
            # kept with the facts: while they live, classes are only ever added
            known = self._facts.cache[trait] = known.extended(self._classes, trait)
        return known

    def by_trait(self, trait: Trait[T]) -> dict[int, Vector]:
        """How many pods with each value of a trait are on each node, by the value's number; unused ones are absent."""
        traits = self.traits(trait)
        found = self._by_trait.get(trait)
        if found is None:
            counts = self._count(traits.of_class) if traits.values else {}
            found = self._by_trait[trait] = _ByTrait(counts, len(self._moves))
        for placement, sign in self._moves[found.seen :] if traits.values else ():
            index = traits.of_class[placement.pods[0].pod_class.id]
            if index >= 0:
                counts_of_value = found.counts.setdefault(index, np.zeros(len(self._facts)))
                np.add.at(counts_of_value, list(placement.nodes), sign)
        found.seen = len(self._moves)
        return found.counts

    # -- counting ------------------------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        rows = np.flatnonzero(_ON_NODE[self._pods.state] & (self._pods.node >= 0))
        return rows[~np.isin(rows, list(self._evicted))] if self._evicted else rows

    def _count(self, of_class: list[int]) -> dict[int, Vector]:
        rows = self._rows()
        index: npt.NDArray[np.intp] = np.array(of_class, np.intp)[self._pods.pod_class[rows]]
        rows, index = rows[index >= 0], index[index >= 0]
        nodes = self._pods.node[rows]
        return {
            int(value): np.bincount(nodes[index == value], minlength=len(self._facts)).astype(np.float64)
            for value in np.unique(index)
        }
