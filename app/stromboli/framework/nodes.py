"""The nodes of a session: amounts that operations change, and the views of them that plugins get."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from stromboli.api.resources import Mask, Matrix, Rows, Vector, fits
from stromboli.framework.alike import Kinds
from stromboli.state.nodes import NodeFacts
from stromboli.state.snapshot import NodeColumns

Array = TypeVar("Array", bound=np.ndarray)

#: questions about all nodes until it is worth sorting them by what they have
_KINDS_AFTER = 12


def read_only(array: Array) -> Array:
    """The same memory, not to be written through."""
    shown = array.view()
    shown.flags.writeable = False
    return shown


class Amounts(Protocol):
    """Amounts of some nodes, as `NodeView` has them."""

    @property
    def allocatable(self) -> Matrix: ...

    @property
    def used(self) -> Matrix: ...

    @property
    def scoring(self) -> Matrix: ...


class NodeView:
    """Some nodes as plugins see them. Amounts have shape (dimensions, n), `rows` gives their index in `facts`.

    A view may also show nodes as they would be with copies of a pod on them; plugins need not care. Amounts are taken
    from the session's columns when they are first read, and must not be changed.
    """

    __slots__ = ("_allocatable", "_nodes", "_scoring", "_used", "facts", "rows")

    def __init__(self, nodes: Nodes, rows: Rows) -> None:
        self._nodes = nodes
        #: labels, taints, names of all nodes; index it with `rows`
        self.facts: NodeFacts = nodes.facts
        self.rows = rows
        self._allocatable: Matrix | None = None
        self._used: Matrix | None = None
        self._scoring: Matrix | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def allocatable(self) -> Matrix:
        """What pods can request in all."""
        if self._allocatable is None:
            self._allocatable = self._nodes.allocatable.take(self.rows, axis=1)
        return self._allocatable

    @property
    def used(self) -> Matrix:
        """Requested by pods that hold a place."""
        if self._used is None:
            self._used = self._nodes.used.take(self.rows, axis=1)
        return self._used

    @property
    def scoring(self) -> Matrix:
        """cpu and memory, shape (2, n), with kube-scheduler's defaults for containers that request none."""
        if self._scoring is None:
            self._scoring = self._nodes.scoring.take(self.rows, axis=1)
        return self._scoring

    def label(self, key: str, value: str) -> Mask:
        """Which of these nodes carry a label with this value, shape (n,)."""
        number = self.facts.label_values(key).get(value)
        if number is None:
            return np.zeros(len(self.rows), np.bool_)
        found: Mask = self.facts.label(key)[self.rows] == number
        return found

    def by_amounts(self, score: Callable[[Amounts], Vector | None]) -> Vector | None:
        """What a function of amounts alone says of each node, shape (n,). Nodes that have the same are asked once."""
        kinds = self._nodes.kinds(len(self.rows))
        if kinds is None:
            return score(self)
        of_kinds = score(_OfKinds(*kinds.amounts[:3]))
        return None if of_kinds is None else of_kinds.take(_kind_of(self.rows, kinds))

    def with_copies(self, copies: Vector, request: Vector, scoring: tuple[float, float]) -> NodeView:
        """The nodes as they would be with `copies[i]` more pods of one request on the i-th; rows may repeat."""
        view = _WithCopies(self._nodes, self.rows)
        view._used = self.used + request[:, None] * copies
        view._scoring = self.scoring + np.array(scoring)[:, None] * copies
        return view


class _WithCopies(NodeView):
    """Nodes that are not as the session has them."""

    __slots__ = ()

    def by_amounts(self, score: Callable[[Amounts], Vector | None]) -> Vector | None:
        return score(self)


class _OfKinds(NamedTuple):
    """Amounts of the kinds of nodes."""

    allocatable: Matrix
    used: Matrix
    scoring: Matrix


class _AllNodes(NodeView):
    """The view of all nodes shows the columns themselves."""

    __slots__ = ()

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(nodes, nodes.rows)
        self._allocatable, self._used, self._scoring = nodes.allocatable, nodes.used, nodes.scoring


class Nodes:
    """The amounts of a session as they are now, shape (dimensions, nodes), to be read.

    `log` lists the nodes in the order in which they changed, so that whoever caches something about nodes can catch
    up with what is new.
    """

    __slots__ = (
        "_all",
        "_asked",
        "_kinds",
        "_promised",
        "_sorted",
        "allocatable",
        "facts",
        "idle",
        "log",
        "pipelined",
        "releasing",
        "rows",
        "scoring",
        "used",
    )

    def __init__(self, facts: NodeFacts, allocatable: Matrix) -> None:
        self.facts = facts
        self.allocatable: Matrix = read_only(allocatable)
        self.used: Matrix
        self.idle: Matrix
        self.releasing: Matrix
        self.pipelined: Matrix
        self.scoring: Matrix
        self.rows: Rows = read_only(np.arange(len(facts)))
        self.log: list[int] = []
        self._promised = False
        #: by what they have, once that was asked so often, and how much of the log is in it
        self._kinds: Kinds | None = None
        self._all: NodeView | None = None
        self._sorted = 0
        self._asked = 0

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """The name of a node."""
        return self.facts.records[row].name

    def future_idle(self, rows: Rows | int | slice = slice(None)) -> Matrix:
        """What is idle now or will be when terminating pods have gone and pipelined ones have come."""
        out: Matrix = self.idle[:, rows] + self.releasing[:, rows] - self.pipelined[:, rows]
        return out

    def room(self, rows: Rows) -> Matrix:
        """What pods can have now: what is idle, less what others were promised beyond what terminating pods leave."""
        idle: Matrix = self.idle.take(rows, axis=1)
        return np.minimum(idle, self.future_idle(rows)) if self._promised else idle

    def fitting(self, request: Vector, rows: Rows) -> Mask:
        """Which of some nodes have room for a request now, shape (rows,)."""
        kinds = None if self._promised else self.kinds(len(rows))
        if kinds is None:
            return fits(request, self.room(rows))
        found: Mask = fits(request, kinds.amounts[3]).take(_kind_of(rows, kinds))
        return found

    def kinds(self, count: int) -> Kinds | None:
        """The nodes by what they have; None when it takes less to look at `count` of them."""
        kinds = self._kinds
        if (kinds is not None and not kinds.few) or 2 * count < len(self.rows):
            return None
        if kinds is None:
            self._asked += 1
            if self._asked <= _KINDS_AFTER:
                return None
            kinds = self._kinds = Kinds((self.allocatable, self.used, self.scoring, self.idle))
            self._sorted = len(self.log)
        elif self._sorted != len(self.log):
            kinds.update(self.log[self._sorted :])
            self._sorted = len(self.log)
        return kinds if kinds.few else None

    def view(self, rows: Rows) -> NodeView:
        """Some nodes as they are now."""
        if rows is not self.rows and len(rows) != len(self.rows):
            return NodeView(self, rows)
        if self._all is None:
            self._all = _AllNodes(self)
        return self._all


def _kind_of(rows: Rows, kinds: Kinds) -> Rows:
    """The kind of some nodes, shape (rows,)."""
    of_node = kinds.of_node
    return of_node if len(rows) == len(of_node) else of_node.take(rows)


class NodeLedger:
    """The same amounts for whoever may change them: copies that operations change and take back."""

    __slots__ = ("_idle", "_pipelined", "_releasing", "_scoring", "_used", "nodes")

    def __init__(self, columns: NodeColumns) -> None:
        self._used = columns.used
        self._idle: Matrix = columns.allocatable - columns.used
        self._releasing = columns.releasing
        self._pipelined: Matrix = np.zeros_like(columns.used)
        self._scoring = columns.scoring
        #: what everybody may read
        self.nodes = nodes = Nodes(columns.facts, columns.allocatable)
        nodes.used, nodes.idle = read_only(self._used), read_only(self._idle)
        nodes.releasing, nodes.pipelined = read_only(self._releasing), read_only(self._pipelined)
        nodes.scoring = read_only(self._scoring)

    def occupy(self, row: int, request: Vector, scoring: tuple[float, float], count: int) -> None:
        """Put `count` pods on a node; a negative count takes them off."""
        amount = request if count == 1 else request * count
        self._idle[:, row] -= amount
        self._used[:, row] += amount
        self._scoring[0, row] += scoring[0] * count
        self._scoring[1, row] += scoring[1] * count
        self.nodes.log.append(row)

    def promise(self, row: int, request: Vector, scoring: tuple[float, float], count: int) -> None:
        """Reserve what terminating pods leave on a node; a negative count gives it back."""
        self.nodes._promised = True
        self._pipelined[:, row] += request * count
        self._scoring[0, row] += scoring[0] * count
        self._scoring[1, row] += scoring[1] * count
        self.nodes.log.append(row)

    def release(self, row: int, request: Vector, count: int) -> None:
        """Mark pods on a node as terminating; a negative count takes that back."""
        self._releasing[:, row] += request * count
        self.nodes.log.append(row)


def first_best(scores: Vector, among: Mask) -> int | None:
    """The index of the highest score, the first of equals; None when there is nothing to choose from."""
    if not len(scores):
        return None
    best = int(np.argmax(scores if among.all() else np.where(among, scores, -np.inf)))
    if among[best]:
        return best
    # no score is higher than minus infinity
    candidates = np.flatnonzero(among)
    return int(candidates[0]) if len(candidates) else None
