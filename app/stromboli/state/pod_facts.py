"""What is known of pods besides their state and place, as columns by row; see `columns`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stromboli.api.resources import Mask
from stromboli.state.columns import Column, Facts, Numbers
from stromboli.state.pods import PodRecord


class PodFacts(Facts[PodRecord]):
    """The columns of one snapshot's pods, shape (rows,). Rows without a pod have no value."""

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
