"""Topology domains: nodes that share the value of a label."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.nodes import read_only
from stromboli.state.columns import Column
from stromboli.state.nodes import NodeFacts


class Domains:
    """The domains of a label."""

    __slots__ = ("_number", "alone", "everywhere", "labelled")

    def __init__(self, labels: Column[str]) -> None:
        #: the nodes with the label, shape (nodes,), and whether all have it
        self.labelled: Mask = read_only(labels.numbers >= 0)
        self.everywhere = bool(self.labelled.all())
        #: whether each domain is a single node
        self.alone = labels.distinct
        #: the number of each node's domain, 0 without the label, shape (nodes,)
        self._number = labels.numbers.astype(np.intp) + 1

    @property
    def numbers(self) -> Rows:
        """The number of each node's domain, -1 without the label, shape (nodes,)."""
        return self._number - 1

    def number_of(self, among: Mask | Rows) -> int:
        """The number of domains of some nodes, which all have the label."""
        # np.unique is ten times slower
        return int(np.count_nonzero(np.bincount(self._number[among])))

    def sums(self, amounts: Vector) -> Vector:
        """For each node the sum of `amounts` (nodes,) over its domain; 0 without the label.

        The result may be `amounts` itself.
        """
        if self.alone:
            return amounts if self.everywhere else np.where(self.labelled, amounts, 0.0)
        return self._of_domains(amounts).take(self._number)

    def without(self, amounts: Vector) -> Mask:
        """The nodes whose domain has a sum of 0."""
        without: Mask
        if self.alone:
            without = self.sums(amounts) == 0
        else:
            # comparing domains is cheaper than comparing nodes
            without = (self._of_domains(amounts) == 0).take(self._number)
        return without

    def _of_domains(self, amounts: Vector) -> Vector:
        sums: Vector = np.bincount(self._number, weights=amounts, minlength=1).astype(np.float64, copy=False)
        sums[0] = 0.0
        return sums


def domains(facts: NodeFacts, key: str) -> Domains:
    """The domains of a topology key."""
    return facts.labels(key).derived(Domains)
