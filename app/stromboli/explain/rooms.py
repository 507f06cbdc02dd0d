"""How many pods of a gang nodes have room for, where rules between its pods, such as host ports, leave fewer."""

from __future__ import annotations

import numpy as np

from stromboli.api.resources import Rows, Vector
from stromboli.framework.plugin.relations import Apart, Balanced, Limited, Relation
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


def between(session: Session, pod: PodRecord) -> list[Relation]:
    """What placements of pods like this one mean for each other."""
    return session.kernel.between([pod])[0]


def replaced(relations: list[Relation]) -> set[str]:
    """The causes of predicates that relations say for the gang as a whole: of one pod, they say less."""
    return {each.cause for each in relations if isinstance(each, Balanced) and each.selected[0]}


def together(copies: Vector, relations: list[Relation]) -> Vector:
    """The copies that each node takes in a gang, shape (nodes,), of those that it has room for."""
    for each in relations:
        if isinstance(each, Apart) and each.conflicts[0, 0]:
            copies = _at_most_one(copies, each.domain)
        elif isinstance(each, Limited) and each.takes[0] > 0:
            copies = np.minimum(copies, np.maximum(np.floor(each.free / each.takes[0]), 0))
        elif isinstance(each, Balanced) and each.selected[0]:
            copies = _balanced(copies, each)
    return copies


def _at_most_one(copies: Vector, domains: Rows) -> Vector:
    """Only the first node with room in each domain takes one."""
    held = np.flatnonzero((copies > 0) & (domains >= 0))
    _, first = np.unique(domains[held], return_index=True)
    left = np.where(domains >= 0, 0.0, copies)
    left[held[first]] = 1.0
    return left


def _balanced(copies: Vector, rule: Balanced) -> Vector:
    """All domains rise together until the first is full, and the others by the skew beyond it."""
    inside = rule.domain >= 0
    count = int(rule.domain.max(initial=-1)) + 1
    counted = inside & rule.eligible

    def sums(amounts: Vector, nodes: Rows) -> Vector:
        return np.bincount(rule.domain[nodes], weights=amounts[nodes], minlength=count).astype(np.float64)

    there = sums(rule.counts, np.flatnonzero(counted))
    full = there + sums(copies, np.flatnonzero(inside))
    of_rule = np.unique(rule.domain[counted])
    lowest = 0.0 if rule.too_few_domains or not len(of_rule) else float(full[of_rule].min())
    left = np.maximum(np.minimum(full, lowest + rule.max_skew) - there, 0.0)
    out = np.zeros(len(copies))
    for node in np.flatnonzero(inside & (copies > 0)).tolist():
        domain = rule.domain[node]
        out[node] = min(copies[node], left[domain])
        left[domain] -= out[node]
    return out
