"""Where pods are in this session: counts per node of the pods that a rule asks about.

Rules between pods (affinity, spread, host ports) ask "how many pods like these are on each node?". Such a count is taken
over all pods when it is first asked for and kept up from the session's placements afterwards. Nobody asks, nothing is
done but to remember the placements.

A pod is on a node when the snapshot has it there or this session gave it the node, now or later; a pod that this session
evicts is no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.api.status import ON_NODE_STATES, STATES, PodState
from stromboli.framework.session import Session
from stromboli.framework.statement import Kind, Placement
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord

_ON_NODE = np.isin(np.arange(STATES), (*ON_NODE_STATES, PodState.Pipelined))

#: tells the pod classes that a rule is about
ClassFilter = Callable[[PodClass], bool]


@dataclass(slots=True)
class _Matching:
    counts: Vector
    selects: Callable[[PodRecord], bool]
    #: how many placements it has seen
    seen: int


@dataclass(slots=True)
class _OfClasses:
    counts: dict[int, Vector]
    seen: int


@dataclass(slots=True)
class _Scan:
    """The classes that a filter chose, of those that existed when it last looked."""

    looked_at: int
    chosen: list[int]


class PlacedPods:
    """See the module's docstring. Vectors have shape (nodes,) and must not be changed."""

    def __init__(self, session: Session) -> None:
        self._classes = session.snapshot.classes
        self._pods = session.pods
        self._facts = session.nodes.facts
        self._moves: list[tuple[Placement, int]] = []
        self._evicted: set[int] = set()
        self._matching: dict[Hashable, _Matching] = {}
        self._of_classes: dict[ClassFilter, _OfClasses] = {}

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

    def matching(
        self, key: Hashable, selects: Callable[[PodRecord], bool], *, terminating: bool = True
    ) -> Vector:
        """How many pods that `selects` accepts are on each node; `key` identifies the question.

        Without `terminating`, pods that were being deleted before the session do not count.
        """
        found = self._matching.get(key)
        if found is None:
            rows = self._rows()
            if not terminating:
                rows = rows[self._pods.state[rows] != PodState.Releasing]
            chosen = [row for row in rows.tolist() if selects(self._record(row))]
            counts = self._per_node(np.array(chosen, np.intp))
            found = self._matching[key] = _Matching(counts, selects, len(self._moves))
        for placement, sign in self._moves[found.seen :]:
            for pod, node in zip(placement.pods, placement.nodes, strict=True):
                if found.selects(pod):
                    found.counts[node] += sign
        found.seen = len(self._moves)
        return found.counts

    def classes(self, chosen: ClassFilter) -> list[int]:
        """The ids of the classes that a filter accepts, whether pods of them are placed or not."""
        # classes are only ever added while the facts live, so earlier answers hold
        scan = self._facts.cache.setdefault(chosen, _Scan(0, []))
        assert isinstance(scan, _Scan)
        if scan.looked_at < len(self._classes):
            scan.chosen += [c.id for c in self._classes[scan.looked_at :] if chosen(c)]
            scan.looked_at = len(self._classes)
        return scan.chosen

    def of_classes(self, chosen: ClassFilter) -> dict[int, Vector]:
        """How many pods of each class that a filter accepts are on each node, by class id; classes without are left out."""
        found = self._of_classes.get(chosen)
        if found is None:
            found = self._of_classes[chosen] = _OfClasses(self._count_classes(self.classes(chosen)), len(self._moves))
        for placement, sign in self._moves[found.seen :]:
            pod_class = placement.pods[0].pod_class
            if chosen(pod_class):
                counts = found.counts.setdefault(pod_class.id, np.zeros(len(self._facts)))
                np.add.at(counts, list(placement.nodes), sign)
        found.seen = len(self._moves)
        return found.counts

    # -- counting ------------------------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        rows = np.flatnonzero(_ON_NODE[self._pods.state] & (self._pods.node >= 0))
        return rows[~np.isin(rows, list(self._evicted))] if self._evicted else rows

    def _record(self, row: int) -> PodRecord:
        record = self._pods.records[row]
        assert record is not None
        return record

    def _per_node(self, rows: Rows) -> Vector:
        return np.bincount(self._pods.node[rows], minlength=len(self._facts)).astype(np.float64)

    def _count_classes(self, ids: list[int]) -> dict[int, Vector]:
        if not ids:
            return {}
        wanted = np.zeros(len(self._classes), np.bool_)
        wanted[ids] = True
        rows = self._rows()
        rows = rows[wanted[self._pods.pod_class[rows]]]
        classes = self._pods.pod_class[rows]
        return {int(id_): self._per_node(rows[classes == id_]) for id_ in np.unique(classes)}
