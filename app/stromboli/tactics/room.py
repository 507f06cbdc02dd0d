"""What room the nodes of a HyperNode have for the pods of a gang, by amounts; follows the session's operations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector, copies_that_fit
from stromboli.framework.nodes import Changes
from stromboli.framework.operation import Operation
from stromboli.framework.session import Session
from stromboli.state.pods import PodRecord


@dataclass(slots=True)
class _Kind:
    """Pods that are placed alike."""

    request: Vector
    number: int
    #: the nodes that come into question, and how many of the pods each has room for, shape (nodes,)
    possible: Mask
    copies: Vector
    #: the sum of these
    places: float = 0.0


class Room:
    """See the module's docstring."""

    def __init__(self, session: Session, pods: Sequence[PodRecord], within: Mask) -> None:
        """`within` has the shape (nodes,)."""
        self._nodes = session.view.nodes
        self._within = within
        #: whether more than amounts decides
        self._varies = any(map(session.kernel.varies, pods))
        by_class: dict[Hashable, list[PodRecord]] = {}
        for pod in () if self._varies else pods:
            by_class.setdefault(session.kernel.identity(pod), []).append(pod)
        self._kinds = [self._kind(session, alike) for alike in by_class.values()]
        #: what is free now or when terminating pods have gone, of each node in columns, and of all
        self._free = (self._nodes.idle + self._nodes.releasing) * within
        self._total: Vector = self._free.sum(axis=1)
        self._changes = Changes(self._nodes)

    def total(self) -> Vector:
        """What is free, now or when terminating pods have gone, shape (dimensions,)."""
        self._refresh()
        return self._total

    def places(self, without: Sequence[Operation] = ()) -> float:
        """For how many of the pods there is room, now or later, at most; infinite when more than amounts decides.

        `without` are evictions that are not to be.
        """
        self._refresh()
        if self._varies:
            return np.inf
        stays: dict[int, Vector] = {}
        for operation in without:
            node = operation.nodes[0]
            if node >= 0:
                stays[node] = stays.get(node, 0) + operation.request
        rows = np.array(list(stays), np.intp)
        less = np.array(list(stays.values())).reshape(len(rows), len(self._total)).T
        return sum(min(kind.places - self._lost(kind, rows, less), kind.number) for kind in self._kinds)

    def _lost(self, kind: _Kind, rows: Rows, less: Matrix) -> float:
        """How many places there are less when so much less is going to be free on some nodes."""
        if not len(rows):
            return 0.0
        less = less[:, kind.possible[rows]]
        rows = rows[kind.possible[rows]]
        return float(kind.copies[rows].sum() - self._copies(kind, rows, less).sum())

    def _kind(self, session: Session, alike: Sequence[PodRecord]) -> _Kind:
        count = len(self._nodes)
        kind = _Kind(session.view.request(alike[0]), len(alike), np.zeros(count, np.bool_), np.zeros(count))
        rows = session.kernel.possible(alike[0])
        kind.possible[rows] = self._within[rows]
        self._count(kind, np.flatnonzero(kind.possible))
        return kind

    def _count(self, kind: _Kind, rows: Rows) -> None:
        """Count anew for how many pods some nodes have room."""
        copies = self._copies(kind, rows, 0.0)
        kind.places += float(copies.sum() - kind.copies[rows].sum())
        kind.copies[rows] = copies

    def _copies(self, kind: _Kind, rows: Rows, less: Matrix | float) -> Vector:
        """For how many pods some nodes have room, when so much less is going to be free."""
        now, later = self._nodes.idle.take(rows, axis=1), self._nodes.future_idle(rows) - less
        places = (copies_that_fit(kind.request, room, self._nodes.always) for room in (now, later))
        found: Vector = np.maximum(*places)
        return found.clip(0, kind.number)

    def _refresh(self) -> None:
        """Look again at the nodes that changed."""
        nodes = self._nodes
        rows = np.array([node for node in self._changes.take() if self._within[node]], np.intp)
        if not len(rows):
            return
        free = nodes.idle[:, rows] + nodes.releasing[:, rows]
        self._total = self._total + (free - self._free[:, rows]).sum(axis=1)
        self._free[:, rows] = free
        for kind in self._kinds:
            self._count(kind, rows[kind.possible[rows]])
