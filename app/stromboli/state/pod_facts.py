"""Facts about pods besides their state and place, as columns by row; see `columns`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.columns import Column, Facts, Numbers
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import Selector

#: the number of no value
_UNUSED = -2


class PodFacts(Facts[PodRecord]):
    """The columns of one snapshot's pods, shape (rows,). Rows without a pod have no value."""

    def label(self, key: str) -> Numbers:
        """The number of each pod's value of a label."""
        return self.labels(key).numbers

    def label_values(self, key: str) -> Mapping[str, int]:
        """value -> number, for the values that pods have."""
        return self.labels(key).by_value

    def selected(self, selector: Selector, among: Mask) -> Rows:
        """The rows of the pods that a selector selects, ascending, in some namespaces.

        `among` says by number which of `namespaces` these are, and ends with False, as `named` makes it.
        """
        namespace = self.namespaces().numbers
        single = selector.single
        if single is None:
            return np.flatnonzero(selector.mask(self) & among[namespace])
        labels = self.labels(single.key)
        rows = labels.rows(labels.by_value.get(next(iter(single.values)), _UNUSED))
        if len(rows):
            rows = rows[among[namespace[rows]]]
        if len(rows) and len(selector.requirements) > 1:
            rows = rows[selector.mask(_Some(self, rows))]
        return rows

    def namespaces(self) -> Column[str]:
        """The namespaces of pods."""
        return self.column("namespace", attrgetter("namespace"))

    def named(self, namespaces: Iterable[str]) -> Mask:
        """Mask of the namespaces that are named; those without pods are left out."""
        column = self.namespaces()
        among = np.zeros(len(column.values) + 1, np.bool_)
        among[[column.by_value[name] for name in namespaces if name in column.by_value]] = True
        return among

    def labels(self, key: str) -> Column[str]:
        """The values of a label."""
        return self.column(("label", key), lambda pod: pod.labels.get(key), partial(self._labelled, key))

    def _labelled(self, key: str) -> Rows:
        """The rows of the pods that have a label."""
        keys = self.column("label keys", lambda pod: tuple(pod.labels) or None)
        return keys.rows_of_any(keys.index(_ByKey).having(key))[0]

    def beginnings(self) -> Vector:
        """Start times of pods, infinite where unknown."""
        column = self.column("started", attrgetter("started"))
        found: Vector = np.array([*column.values[:], 0.0])[column.numbers]
        found[found == 0] = math.inf
        return found

    def priorities(self) -> Rows:
        """The priorities in the specs of pods."""
        column = self._priorities()
        found: Rows = np.array([*column.values[:], 0], np.intp)[column.numbers]
        return found

    def priority_places(self) -> Rows:
        """The rank of each pod's priority among all existing ones."""
        column = self._priorities()
        places: Rows = np.unique([*column.values[:], 0], return_inverse=True)[1].astype(np.intp)
        return places[column.numbers]

    def _priorities(self) -> Column[int]:
        return self.column("spec priority", attrgetter("spec_priority"))


class _ByKey:
    """Tuples of keys of labels, by key."""

    def __init__(self) -> None:
        self._size = 0
        self._having: dict[str, list[int]] = {}

    def extend(self, values: Sequence[tuple[str, ...]]) -> None:
        for number, keys in enumerate(values, self._size):
            for key in keys:
                self._having.setdefault(key, []).append(number)
        self._size += len(values)

    def having(self, key: str) -> Rows:
        """The numbers of those that have a key."""
        return np.array(self._having.get(key, ()), np.intp)


class _Some:
    """Some of the pods, as selectors read them."""

    def __init__(self, facts: PodFacts, rows: Rows) -> None:
        self._facts = facts
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def label(self, key: str) -> Numbers:
        return self.labels(key).numbers

    def labels(self, key: str) -> Column[str]:
        return self._facts.labels(key).of(self._rows)

    def label_values(self, key: str) -> Mapping[str, int]:
        return self._facts.label_values(key)
