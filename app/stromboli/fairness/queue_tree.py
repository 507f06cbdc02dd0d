"""The queues of a session as a tree: the one that plugins divide the cluster along, and that answers and lists show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stromboli.api.reasons import Reason
from stromboli.api.resources import Rows
from stromboli.fairness.obstacles import ROOT, detached
from stromboli.framework.cluster.job import Queue

T = TypeVar("T", bound="QueueTree")

#: in `parent`, a queue at the top
TOP = -1


@dataclass(slots=True, eq=False)
class QueueTree:
    """Queues by row; those whose parents do not exist are at the top, and parents may lead in a circle."""

    names: Sequence[str]
    #: row of the parent, TOP for none
    parent: Rows
    _paths: dict[int, Rows] = field(init=False, default_factory=dict)
    _children: dict[int, list[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for row in np.flatnonzero(self.parent != TOP).tolist():
            self._children.setdefault(int(self.parent[row]), []).append(row)

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls: type[T], parents: Mapping[str, str]) -> T:
        """The tree of queues whose parents are given by name, "" for none."""
        names = list(parents)
        row = {name: at for at, name in enumerate(names)}
        return cls(names, np.array([row.get(parent, TOP) for parent in parents.values()], np.intp))

    def path(self, row: int) -> Rows:
        """The rows of a queue and its ancestors, upwards, each once."""
        found = self._paths.get(row)
        if found is None:
            rows: list[int] = []
            above = row
            while above != TOP and above not in rows:
                rows.append(above)
                above = int(self.parent[above])
            found = self._paths[row] = np.array(rows, np.intp)
        return found

    def children(self, row: int) -> list[int]:
        """The rows of a queue's children; none for a leaf."""
        return self._children.get(row, [])

    def below(self, row: int) -> list[int]:
        """The rows of a queue and of all queues below it."""
        found, left = dict[int, None](), [row]
        while left:
            at = left.pop()
            if at not in found:
                found[at] = None
                left += reversed(self.children(at))
        return list(found)

    def levels(self) -> Iterator[Rows]:
        """The rows of each level, the top first; rows that hang in a circle are in none."""
        level = np.flatnonzero(self.parent == TOP)
        while len(level):
            yield level
            level = np.flatnonzero(np.isin(self.parent, level))

    def in_order(self) -> Iterator[tuple[int, int]]:
        """Each row after its parent's, with the number of rows above it; those in a circle come last, with 0."""
        shown = set[int]()
        left = [(row, 0) for row in reversed(np.flatnonzero(self.parent == TOP).tolist())]
        while left:
            row, depth = left.pop()
            shown.add(row)
            yield row, depth
            left += ((each, depth + 1) for each in reversed(self.children(row)))
        yield from ((row, 0) for row in range(len(self)) if row not in shown)


def linked(
    queues: Mapping[str, Queue], names: Sequence[str], *, with_root: bool
) -> tuple[QueueTree, dict[str, Reason]]:
    """The tree of some queues in order, and why the parents of some do not lead to the root: these are at the top.

    Without `with_root` queues right below the root are at the top, too.
    """
    row, broken = {name: at for at, name in enumerate(names)}, dict[str, Reason]()
    parent = np.full(len(names), TOP, np.intp)
    for at, name in enumerate(names):
        why = detached(queues[name], queues) if name != ROOT else None
        if why is not None:
            broken[name] = why
        elif (above := queues[name].parent) and (with_root or above != ROOT):
            parent[at] = row[above]
    return QueueTree(names, parent), broken
