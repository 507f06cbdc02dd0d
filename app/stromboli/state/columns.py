"""Columns of values that survive snapshots: only rows that changed are read again.

A value is stored as a number, so that a question about thousands of rows compares numbers and looks at each distinct
value once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from stromboli.api.resources import Rows

R = TypeVar("R")
T = TypeVar("T", bound=Hashable)
D = TypeVar("D")
V = TypeVar("V", contravariant=True)
I = TypeVar("I", bound="Index[Any]")  # noqa: E741 - an index

Numbers = npt.NDArray[np.int32]

#: the number of columns kept; a dropped one is read again when it is needed
_MOST_COLUMNS = 128
#: columns of a snapshot from which on those of rare values are read where these are, and not kept
_MANY_COLUMNS = 64
#: unused values allowed, beyond the number of rows, before all values are renumbered
_SLACK = 1_000
#: rows count as few if the table has this many times more
_FEW = 16
#: questions for the rows of a value until sorting all rows takes less time than further ones
_SORTED_AFTER = 8


class Index(Protocol[V]):
    """Something made of a column's values. It may know values that came after those of the snapshot that asks."""

    def extend(self, values: Sequence[V]) -> None:
        """More values; they are numbered in order, on from those before."""


@dataclass(slots=True)
class _Values(Generic[T]):
    """The distinct values. They only become more, so that snapshots share them."""

    listed: list[T] = field(default_factory=list)
    numbers: dict[T, int] = field(default_factory=dict)
    #: by the type of the index: how many values are in it, and the index
    indices: dict[type, tuple[int, Any]] = field(default_factory=dict)
    #: empty while one table adds to it; another table that wants to add meanwhile gets an index of its own
    leave: list[None] = field(default_factory=lambda: [None])

    def claim(self) -> bool:
        """Ask to add to it, without waiting; `leave` gets its entry back afterwards."""
        try:
            self.leave.pop()
        except IndexError:
            return False
        return True

    def number(self, value: T) -> int:
        known = self.numbers.get(value)
        if known is None:
            known = self.numbers[value] = len(self.listed)
            self.listed.append(value)
        return known


class Column(Generic[T]):
    """The values of one snapshot's rows."""

    __slots__ = ("_asked", "_derived", "_sorted", "_values", "numbers")

    def __init__(self, values: _Values[T], numbers: Numbers, before: _Sorted | None = None) -> None:
        self._values = values
        #: the rows by number, maybe those of an earlier snapshot, and how often they were asked for
        self._sorted = before
        self._asked = 0
        self._derived: dict[Any, Any] = {}
        #: the number of each row's value, -1 for none, shape (rows,)
        self.numbers = numbers

    @property
    def values(self) -> Sequence[T]:
        """The values by number. Some may be in no row of this snapshot."""
        return self._values.listed

    @property
    def by_value(self) -> Mapping[T, int]:
        """The number of each value."""
        return self._values.numbers

    def value(self, row: int) -> T | None:
        """The value of a row."""
        number = self.numbers[row]
        return self._values.listed[number] if number >= 0 else None

    def rows(self, number: int) -> Rows:
        """The rows that have the value of a number, ascending."""
        if self._sorted is None or self._sorted.numbers is not self.numbers:
            self._asked += 1
            if self._asked <= _SORTED_AFTER:
                return np.flatnonzero(self.numbers == number)
            self._sorted = _Sorted(self.numbers, self._sorted)
        return self._sorted.rows(number)

    def rows_of_any(self, numbers: Rows) -> tuple[Rows, Rows]:
        """The rows that have any of some numbers, ascending, and by its index in `numbers` which each of them has."""
        few = 0 < len(numbers) * _FEW <= len(self.numbers)
        if few and self._sorted is not None and self._sorted.numbers is self.numbers:
            begins, ends = self._sorted.ranges(numbers)
            sizes = ends - begins
            if sizes.sum() * _FEW <= len(self.numbers):
                which = np.repeat(np.arange(len(numbers)), sizes)
                at = np.arange(len(which)) + (begins - (np.cumsum(sizes) - sizes))[which]
                rows = self._sorted.at(at)
                order = rows.argsort()
                return rows[order], which[order]
        elif few:
            # It counts as a question for the rows of one.
            self.rows(int(numbers[0]))
        by_number = np.full(len(self._values.listed) + 1, -1)
        by_number[numbers] = np.arange(len(numbers))
        found = by_number[self.numbers]
        rows = np.flatnonzero(found >= 0)
        return rows, found[rows]

    @property
    def distinct(self) -> bool:
        """Whether no two rows have the same value."""
        return self.derived(_all_different)

    def derived(self, make: Callable[[Column[T]], D]) -> D:
        """A cached value that a function derives from the column."""
        if make not in self._derived:
            self._derived[make] = make(self)
        return cast("D", self._derived[make])

    def of(self, rows: Rows) -> Column[T]:
        """The column of some rows."""
        return Column(self._values, self.numbers[rows])

    def index(self, kind: type[I]) -> I:
        """An index of all values; it is built once and extended with new values."""
        values, count = self._values, len(self._values.listed)
        size, known = values.indices.get(kind, (0, None))
        if known is not None and size >= count:
            return cast("I", known)
        if not values.claim():
            own = kind()
            own.extend(values.listed[:count])
            return own
        try:
            size, known = values.indices.get(kind, (0, None))
            made: I = kind() if known is None else known
            made.extend(values.listed[size:])
            values.indices[kind] = len(values.listed), made
            return made
        finally:
            values.leave.append(None)

    @classmethod
    def read(
        cls, records: Sequence[R | None], read: Callable[[R], T | None], before: Column[T] | None, origin: Rows
    ) -> Column[T]:
        """The values that a function reads from records; rows with an `origin`, shape (rows,), reuse its value."""
        if before is None:
            return cls.read_some(records, read, np.arange(len(records)))
        known = origin >= 0
        numbers = np.full(len(records), -1, np.int32)
        numbers[known] = before.numbers[origin[known]]
        return cls._read(records, read, before._values, numbers, np.flatnonzero(~known))

    @classmethod
    def read_some(cls, records: Sequence[R | None], read: Callable[[R], T | None], rows: Rows) -> Column[T]:
        """The values that a function reads from the records in some rows; other rows have none."""
        return cls._read(records, read, None, np.full(len(records), -1, np.int32), rows)

    @classmethod
    def updated(
        cls, records: Sequence[R | None], read: Callable[[R], T | None], before: Column[T], changed: Rows
    ) -> Column[T]:
        """The column after the records in some rows changed."""
        numbers, common = np.full(len(records), -1, np.int32), min(len(records), len(before.numbers))
        numbers[:common] = before.numbers[:common]
        out = cls._read(records, read, before._values, numbers, changed)
        if out._values is before._values:
            out._sorted = before._sorted
        return out

    @classmethod
    def _read(
        cls,
        records: Sequence[R | None],
        read: Callable[[R], T | None],
        values: _Values[T] | None,
        numbers: Numbers,
        rows: Rows,
    ) -> Column[T]:
        """Read some rows again; the others keep their numbers."""
        if values is not None and (len(values.listed) > 2 * len(records) + _SLACK or not values.claim()):
            values, rows = None, np.arange(len(records))
        if values is None:
            values = _Values()
            values.claim()
        try:
            found = [None if (record := records[row]) is None else read(record) for row in rows.tolist()]
            numbers[rows] = [-1 if value is None else values.number(value) for value in found]
        finally:
            values.leave.append(None)
        return cls(values, numbers)


class _Sorted:
    """Rows by their number, and those of one number ascending."""

    __slots__ = ("_keys", "numbers")

    def __init__(self, numbers: Numbers, before: _Sorted | None) -> None:
        """Sort the rows, reusing the order `before` for unchanged numbers."""
        self.numbers = numbers
        common = 0 if before is None else min(len(numbers), len(before.numbers))
        changed = np.flatnonzero(before.numbers[:common] != numbers[:common]) if before is not None else _NO_ROWS
        new = np.sort(_keys(numbers, np.concatenate([changed, np.arange(common, len(numbers))])))
        self._keys = new
        if before is not None:
            gone = _keys(before.numbers, np.concatenate([changed, np.arange(common, len(before.numbers))]))
            kept = np.delete(before._keys, np.searchsorted(before._keys, gone))
            self._keys = np.insert(kept, np.searchsorted(kept, new), new)

    def rows(self, number: int) -> Rows:
        """The rows that have a number."""
        begin, end = self._keys.searchsorted((number << 32, (number + 1) << 32)).tolist()
        return self.at(slice(begin, end))

    def ranges(self, numbers: Rows) -> tuple[Rows, Rows]:
        """The places where the rows of some numbers begin and end."""
        keys = numbers.astype(np.int64) << 32
        return self._keys.searchsorted(keys), self._keys.searchsorted(keys + (1 << 32))

    def at(self, places: Rows | slice) -> Rows:
        """The rows in some places."""
        return self._keys[places] & 0xFFFFFFFF


_NO_ROWS: Rows = np.zeros(0, np.intp)


def _keys(numbers: Numbers, rows: Rows) -> Rows:
    """Numbers that sort as the numbers of some rows do, and then as the rows."""
    keys: Rows = (numbers[rows].astype(np.int64) << 32) | rows
    return keys


def _all_different(column: Column[Any]) -> bool:
    return bool(np.bincount(column.numbers + 1)[1:].max(initial=0) <= 1)


class KeptColumns:
    """The newest columns of a table whose rows carry the time of their last change."""

    def __init__(self) -> None:
        #: the time of each column, the most recently used one last
        self._columns: dict[Hashable, tuple[int, Column[Any]]] = {}
        #: the rows that changed between two times; most columns are asked for in every session
        self._between: tuple[int, int, Rows] = 0, 0, _NO_ROWS

    def copy(self) -> KeptColumns:
        """The columns for an independent copy of the table."""
        out = KeptColumns()
        out._columns = self._columns.copy()
        return out

    def column(
        self, key: Hashable, read: Callable[[R], T | None], records: Sequence[R | None], changed: Rows, now: int
    ) -> Column[T]:
        """A column at the time `now`; `changed` has the time of each row's last change, shape (rows,)."""
        seen, before = self._columns.get(key, (0, None))
        if seen > now:
            # An old snapshot is asked while a newer one is in use.
            return Column.read(records, read, None, np.arange(len(records)))
        if before is not None and seen == now:
            return before
        if before is None:
            found = Column.read(records, read, None, np.arange(len(records)))
        else:
            since, until, rows = self._between
            if (since, until) != (seen, now):
                rows = np.flatnonzero(changed > seen)
                self._between = seen, now, rows
            found = Column.updated(records, read, before, rows)
        self._columns.pop(key, None)
        self._columns[key] = now, found
        if len(self._columns) > _MOST_COLUMNS:
            for unused in list(self._columns)[:-_MOST_COLUMNS]:
                self._columns.pop(unused, None)
        return found


class Facts(Generic[R]):
    """The columns of one snapshot's table, shape (rows,). Rows without a record have no value."""

    def __init__(self, records: Sequence[R | None], changed: Rows, now: int, kept: KeptColumns) -> None:
        """`changed` has the time of each row's last change, shape (rows,); `now` is the last of them."""
        self._records = records
        self._changed = changed
        self._now = now
        self._kept = kept
        self._columns: dict[Hashable, Column[Any]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def column(
        self, key: Hashable, read: Callable[[R], T | None], among: Callable[[], Rows] | None = None
    ) -> Column[T]:
        """The values that a function reads from each record; `key` identifies the function.

        `among` finds the rows that have a value. If many columns are in use, only these rows are read: pods may ask for
        thousands of labels that few pods have.
        """
        found = self._columns.get(key)
        if found is None and among is not None and len(self._columns) >= _MANY_COLUMNS:
            return Column.read_some(self._records, read, among())
        if found is None:
            found = self._kept.column(key, read, self._records, self._changed, self._now)
            self._columns[key] = found
        return found
