"""The nodes of a session: amounts that placements change, and the views of them that plugins get."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector
from stromboli.state.nodes import NodeFacts
from stromboli.state.snapshot import NodeColumns


class NodeView:
    """Some nodes as plugins see them. Amounts have shape (dimensions, n), `rows` gives their index in `facts`.

    A view may also show nodes as they would be with copies of a pod on them; plugins need not care.
    """

    __slots__ = ("allocatable", "facts", "rows", "scoring", "used")

    def __init__(self, facts: NodeFacts, rows: Rows, allocatable: Matrix, used: Matrix, scoring: Matrix) -> None:
        #: labels, taints, names of all nodes; index it with `rows`
        self.facts = facts
        self.rows = rows
        self.allocatable = allocatable
        #: requested by pods that hold a place
        self.used = used
        #: cpu and memory, shape (2, n), with kube-scheduler's defaults for containers that request none
        self.scoring = scoring

    def __len__(self) -> int:
        return len(self.rows)


class SessionNodes:
    """The amounts of a session, shape (dimensions, nodes): copies that statements change and take back.

    `log` lists the nodes in the order in which they changed, so that whoever caches something about nodes can catch
    up with what is new.
    """

    __slots__ = ("allocatable", "facts", "idle", "log", "pipelined", "releasing", "rows", "scoring", "used")

    def __init__(self, columns: NodeColumns) -> None:
        self.facts = columns.facts
        self.allocatable = columns.allocatable
        self.used = columns.used
        self.idle: Matrix = columns.allocatable - columns.used
        self.releasing = columns.releasing
        self.pipelined: Matrix = np.zeros_like(columns.used)
        self.scoring = columns.scoring
        self.rows: Rows = np.arange(len(columns.facts))
        self.log: list[int] = []

    def __len__(self) -> int:
        return len(self.facts)

    def name(self, row: int) -> str:
        """The name of a node."""
        return self.facts.records[row].name

    def future_idle(self, rows: Rows | int | slice = slice(None)) -> Matrix:
        """What is idle now or will be when terminating pods have gone and pipelined ones have come."""
        out: Matrix = self.idle[:, rows] + self.releasing[:, rows] - self.pipelined[:, rows]
        return out

    def view(self, rows: Rows) -> NodeView:
        """Some nodes as they are now."""
        if len(rows) == len(self.rows):
            return NodeView(self.facts, self.rows, self.allocatable, self.used, self.scoring)
        return NodeView(self.facts, rows, self.allocatable[:, rows], self.used[:, rows], self.scoring[:, rows])

    def view_with_copies(self, rows: Rows, copies: Vector, request: Vector, scoring: tuple[float, float]) -> NodeView:
        """Nodes as they would be with more pods: `copies[i]` of one request on `rows[i]`; rows may repeat."""
        more = np.array(scoring)[:, None] * copies
        return NodeView(
            self.facts,
            rows,
            self.allocatable[:, rows],
            self.used[:, rows] + request[:, None] * copies,
            self.scoring[:, rows] + more,
        )

    def occupy(self, row: int, request: Vector, scoring: tuple[float, float], count: int) -> None:
        """Put `count` pods on a node; a negative count takes them off."""
        amount = request if count == 1 else request * count
        self.idle[:, row] -= amount
        self.used[:, row] += amount
        self.scoring[0, row] += scoring[0] * count
        self.scoring[1, row] += scoring[1] * count
        self.log.append(row)

    def promise(self, row: int, request: Vector, scoring: tuple[float, float], count: int) -> None:
        """Reserve what terminating pods leave on a node; a negative count gives it back."""
        self.pipelined[:, row] += request * count
        self.scoring[0, row] += scoring[0] * count
        self.scoring[1, row] += scoring[1] * count
        self.log.append(row)

    def release(self, row: int, request: Vector, count: int) -> None:
        """Mark pods on a node as terminating; a negative count takes that back."""
        self.releasing[:, row] += request * count
        self.log.append(row)


def first_best(scores: Vector, among: Mask) -> int | None:
    """The index of the highest score, the first of equals; None when there is nothing to choose from."""
    candidates = np.flatnonzero(among)
    return int(candidates[np.argmax(scores[candidates])]) if len(candidates) else None
