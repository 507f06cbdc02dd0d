"""Topology domains: nodes that share the value of a label."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.nodes import NodeFacts


def has_domain(facts: NodeFacts, key: str) -> Mask:
    """The nodes that carry the label, shape (nodes,)."""
    return facts.label(key) >= 0


def number_of_domains(facts: NodeFacts, key: str, among: Mask | Rows) -> int:
    """How many domains some nodes are in, all of which carry the label."""
    # not np.unique: it is ten times slower
    return int(np.count_nonzero(np.bincount(facts.label(key)[among])))


def domain_sums(facts: NodeFacts, key: str, amounts: Vector) -> Vector:
    """For each node the sum of `amounts` (nodes,) over the nodes of its domain; 0 where the label is missing."""
    labels = facts.labels(key)
    if labels.distinct:
        return np.where(labels.numbers >= 0, amounts, 0.0)
    number = labels.numbers + 1
    sums: Vector = np.bincount(number, weights=amounts, minlength=1).astype(np.float64, copy=False)
    sums[0] = 0.0
    return sums[number]
