"""What is known of pods besides their state and place, as columns by row; see `columns`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from stromboli.api.resources import Mask, Rows
from stromboli.state.columns import Column, KeptColumns, Numbers
from stromboli.state.pods import PodRecord

T = TypeVar("T", bound=Hashable)


class PodFacts:
    """The columns of one snapshot, shape (rows,). Rows without a pod have no value."""

    def __init__(self, records: Sequence[PodRecord | None], changed: Rows, now: int, kept: KeptColumns) -> None:
        self._records = records
        self._changed = changed
        self._now = now
        self._kept = kept
        self._columns: dict[Hashable, Column[Any]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def column(self, key: Hashable, read: Callable[[PodRecord], T | None]) -> Column[T]:
        """What a function reads of each pod; `key` says what that is."""
        found = self._columns.get(key)
        if found is None:
            found = self._kept.column(key, read, self._records, self._changed, self._now)
            self._columns[key] = found
        return found

    def label(self, key: str) -> Numbers:
        """The number of each pod's value of a label."""
        return self.labels(key).numbers

    def label_values(self, key: str) -> Mapping[str, int]:
        """value -> number, for the values that pods have."""
        return self.labels(key).by_value

    def in_namespaces(self, holds: Callable[[str], bool]) -> Mask:
        """The pods in namespaces of which something holds; it is asked of each namespace once."""
        column = self.column("namespace", lambda pod: pod.namespace)
        answers: Mask = np.array([*map(holds, column.values[:]), False], np.bool_)
        return answers[column.numbers]

    def labels(self, key: str) -> Column[str]:
        """The values of a label."""
        return self.column(("label", key), lambda pod: pod.labels.get(key))
