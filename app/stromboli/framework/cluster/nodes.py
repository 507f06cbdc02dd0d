"""The nodes of a session: amounts that operations change, and the views of them that plugins get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from stromboli.api.resources import CPU, MEMORY, Mask, Matrix, Rows, Vector
from stromboli.state.nodes import NodeFacts
from stromboli.state.snapshot import NodeColumns

Array = TypeVar("Array", bound=np.ndarray)


def read_only(array: Array) -> Array:
    """A view of an array, over the same memory, that cannot be written through."""
    shown = array.view()
    shown.flags.writeable = False
    return shown


class NodeView:
    """Some nodes as plugins see them. Amounts have shape (dimensions, n), `rows` gives their index in `facts`.

    A view may also show nodes as they would be with copies of a pod on them; plugins need not care. Amounts are taken
    from the session's columns when they are first read, and must not be changed.
    """

    __slots__ = ("_allocatable", "_basic", "_fullness", "_nodes", "_scoring", "_used", "facts", "rows")
    #: whether the nodes are shown with pods that are not there
    imagined = False

    def __init__(self, nodes: Nodes, rows: Rows) -> None:
        self._nodes = nodes
        #: labels, taints, names of all nodes; index it with `rows`
        self.facts: NodeFacts = nodes.facts
        self.rows = rows
        self._allocatable: Matrix | None = None
        self._basic: Matrix | None = None
        self._used: Matrix | None = None
        self._scoring: Matrix | None = None
        #: of the amounts that were asked for last
        self._fullness: tuple[float, float, Matrix] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def allocatable(self) -> Matrix:
        """The allocatable amounts of these nodes."""
        if self._allocatable is None:
            self._allocatable = self._nodes.allocatable.take(self.rows, axis=1)
        return self._allocatable

    @property
    def basic_allocatable(self) -> Matrix:
        """The allocatable cpu and memory, shape (2, n), which takes less time than all dimensions."""
        if self._basic is None:
            whole = self._allocatable
            self._basic = self._nodes.allocatable[:2].take(self.rows, axis=1) if whole is None else whole[:2]
        return self._basic

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

    def fullness(self, cpu: float, memory: float) -> Matrix:
        """The requested shares of cpu and memory once this much more is requested, shape (2, n), if nodes have both."""
        known = self._fullness
        if known is not None and known[0] == cpu and known[1] == memory:
            return known[2]
        used = self._nodes.used[:2].take(self.rows, axis=1) if self._used is None else self._used
        shares = part_requested(used, self.basic_allocatable, cpu, memory)
        self._fullness = cpu, memory, shares
        return shares

    def label(self, key: str, value: str) -> Mask:
        """Mask of nodes that have a label with this value, shape (n,)."""
        number = self.facts.label_values(key).get(value)
        if number is None:
            return np.zeros(len(self.rows), np.bool_)
        found: Mask = self.facts.label(key)[self.rows] == number
        return found

    def with_copies(self, copies: Vector, request: Vector, scoring: tuple[float, float]) -> NodeView:
        """The nodes as they would be with `copies[i]` more pods of one request on the i-th; rows may repeat."""
        view = _Imagined(self._nodes, self.rows)
        view._used = self.used + request[:, None] * copies
        view._scoring = self.scoring + np.array(scoring)[:, None] * copies
        return view


class _AllNodes(NodeView):
    """The view of all nodes shows the columns themselves."""

    __slots__ = ()

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(nodes, nodes.rows)
        self._allocatable, self._used, self._scoring = nodes.allocatable, nodes.used, nodes.scoring


class _Imagined(NodeView):
    __slots__ = ()
    imagined = True


class Nodes:
    """The amounts of a session as they are now, shape (dimensions, nodes), to be read.

    `log` lists the nodes in the order in which they changed, so that a cache about nodes can catch
    up with what is new.
    """

    __slots__ = (
        "_leaving",
        "_promised",
        "allocatable",
        "always",
        "amounts",
        "facts",
        "idle",
        "log",
        "pipelined",
        "plain",
        "releasing",
        "rows",
        "scoring",
        "used",
    )

    def __init__(self, facts: NodeFacts, allocatable: Matrix, always: Sequence[int]) -> None:
        self.facts = facts
        #: dimensions that are compared even if a request for them is zero, see `resources.fits`
        self.always = always
        self.allocatable: Matrix = read_only(allocatable)
        self.used: Matrix
        self.idle: Matrix
        self.releasing: Matrix
        self.pipelined: Matrix
        self.scoring: Matrix
        self.rows: Rows = read_only(np.arange(len(facts)))
        self.log: list[int] = []
        #: whether no pod has been evicted or promised a place so far
        self.plain = True
        self._promised = False
        #: whether pods terminated when the session began
        self._leaving = False
        #: by row: equal for nodes with the same amounts, which describe a node fully while nodes are `plain`
        self.amounts: Mapping[int, bytes]

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        """The name of a node."""
        return self.facts.records[row].name

    @property
    def settled(self) -> bool:
        """Whether idle amounts stay the same later: no pod terminates or is promised a place."""
        return self.plain and not self._leaving

    def future_idle(self, rows: Rows | int | slice = slice(None)) -> Matrix:
        """Amounts that will be idle once terminating pods have gone and pipelined pods have come."""
        out: Matrix = self._of(self.idle, rows) + self._of(self.releasing, rows)
        out -= self._of(self.pipelined, rows)
        return out

    def available(self, rows: Rows) -> Matrix:
        """Amounts that pods can get now: the idle ones, less promises that terminating pods do not cover."""
        idle = self._of(self.idle, rows)
        return np.minimum(idle, self.future_idle(rows)) if self._promised else idle

    def _of(self, matrix: Matrix, rows: Rows | int | slice) -> Matrix:
        """The columns of some nodes, read-only; those of all nodes are not copied. `take` is faster than indexing."""
        if rows is self.rows:
            return matrix
        return matrix.take(rows, axis=1) if isinstance(rows, np.ndarray) else matrix[:, rows]

    def view(self, rows: Rows) -> NodeView:
        """Some nodes as they are now."""
        return _AllNodes(self) if len(rows) == len(self.rows) else NodeView(self, rows)


class Logged(Protocol):
    """State of nodes that logs changes."""

    #: the rows of nodes that changed, in the order of the changes
    log: list[int]


class Changes:
    """The nodes that change, from one call to the next."""

    __slots__ = ("_log", "_seen")

    def __init__(self, nodes: Logged) -> None:
        self._log = nodes.log
        self._seen = len(self._log)

    def take(self) -> set[int]:
        """The nodes that changed since the last call."""
        log, since = self._log, self._seen
        self._seen = len(log)
        return set(log[since:])

    def in_order(self) -> list[int]:
        """The nodes that changed since the last call, ascending."""
        return sorted(self.take()) if self._seen < len(self._log) else []


class _Amounts(dict[int, bytes]):
    """Cached columns of a matrix of shape (dimensions, nodes), by row; a change of a row drops its entry."""

    def __init__(self, columns: Matrix) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, row: int) -> bytes:
        self[row] = amounts = self._columns[:, row].tobytes()
        return amounts


class NodeLedger:
    """Amounts of nodes that may be changed: copies that operations change and take back."""

    __slots__ = ("_amounts", "_changing", "_pipelined", "_releasing", "_scoring", "nodes")

    def __init__(self, columns: NodeColumns, always: Sequence[int] = ()) -> None:
        """`always` is as in `Nodes.always`."""
        size = len(columns.used)
        #: idle, used and scoring, one below the other, since pods that come or go change them together
        self._changing: Matrix = np.concatenate([columns.allocatable - columns.used, columns.used, columns.scoring])
        self._amounts = _Amounts(self._changing)
        self._releasing = columns.releasing
        self._pipelined: Matrix = np.zeros_like(columns.used)
        self._scoring = self._changing[2 * size :]
        #: the read-only view of plugins and actions
        self.nodes = nodes = Nodes(columns.facts, columns.allocatable, always)
        nodes.idle, nodes.used = read_only(self._changing[:size]), read_only(self._changing[size : 2 * size])
        nodes.releasing, nodes.pipelined = read_only(self._releasing), read_only(self._pipelined)
        nodes.scoring, nodes.amounts = read_only(self._scoring), self._amounts
        nodes._leaving = bool(self._releasing.any())

    @staticmethod
    def taken(request: Vector, scoring: tuple[float, float]) -> Vector:
        """Amounts that a pod takes on its node, for `occupy`."""
        return np.concatenate([-request, request, scoring])

    def occupy(self, row: int, taken: Vector, count: int) -> None:
        """Put `count` pods on a node; a negative count takes them off."""
        node = self._changing[:, row]
        node += taken if count == 1 else taken * count
        self._changed(row)

    def promise(self, row: int, request: Vector, scoring: tuple[float, float], count: int) -> None:
        """Reserve amounts of terminating pods on a node; a negative count gives them back."""
        self.nodes._promised, self.nodes.plain = True, False
        self._pipelined[:, row] += request * count
        self._scoring[0, row] += scoring[0] * count
        self._scoring[1, row] += scoring[1] * count
        self._changed(row)

    def release(self, row: int, request: Vector, count: int) -> None:
        """Mark pods on a node as terminating; a negative count undoes it."""
        self._releasing[:, row] += request * count
        self.nodes.plain = False
        self._changed(row)

    def _changed(self, row: int) -> None:
        self._amounts.pop(row, None)
        self.nodes.log.append(row)


def part_requested(used: Matrix, allocatable: Matrix, cpu: float, memory: float) -> Matrix:
    """The used shares of cpu and memory once this much more is used, shape (2, n), if nodes have both."""
    shares = np.empty((2, used.shape[1]))
    # row by row: a number is added sooner than a column of two
    np.add(used[CPU], cpu, out=shares[0])
    np.add(used[MEMORY], memory, out=shares[1])
    shares /= allocatable[:2]
    return shares


def first_best(scores: Vector, among: Mask) -> int | None:
    """The index of the highest score, the first one on a tie; None if there are no candidates."""
    if len(scores) and among[best := int(scores.argmax())]:
        return best
    candidates = np.flatnonzero(among)
    return int(candidates[np.argmax(scores[candidates])]) if len(candidates) else None
