"""What is known of pods besides their state and place, as columns by row; see `columns`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stromboli.api.resources import Mask, Rows
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

    def selected(self, selector: Selector, holds: Callable[[str], bool]) -> Rows:
        """The rows of the pods that a selector selects, in namespaces of which something holds."""
        single = selector.single
        if single is None:
            rows = np.arange(len(self))
        else:
            labels = self.labels(single.key)
            rows = labels.rows(labels.by_value.get(next(iter(single.values)), _UNUSED))
        rows = rows[self._in_namespaces(rows, holds)]
        return rows[selector.mask(_Some(self, rows))] if len(rows) else rows

    def _in_namespaces(self, rows: Rows, holds: Callable[[str], bool]) -> Mask:
        """Which of some pods are there; each namespace is asked about once."""
        column = self.column("namespace", lambda pod: pod.namespace)
        answers: Mask = np.array([*map(holds, column.values[:]), False], np.bool_)
        return answers[column.numbers[rows]]

    def labels(self, key: str) -> Column[str]:
        """The values of a label."""
        return self.column(("label", key), lambda pod: pod.labels.get(key))


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
