"""Number of pods that fit on nodes by amounts, and by rules between them, such as host ports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.api.resources import Matrix, Rows, Vector, copies_that_fit
from stromboli.framework.plugin.relations import Apart, Balanced, Limited, Relation
from stromboli.framework.session.session import Session
from stromboli.state.pods import PodRecord


class Alike:
    """Pods that are alike, with the rules between them."""

    def __init__(self, session: Session, pod: PodRecord) -> None:
        self._session = session
        self._pod = pod
        self._request = session.view.request(pod)
        self.relations: list[Relation] = session.kernel.between([pod])[0]
        #: the causes of predicates that the rules say for all pods together: of one pod, they say less
        self.replaced = {each.cause for each in self.relations if isinstance(each, Balanced) and each.selected[0]}

    def passing(self) -> Rows:
        """The nodes that pass, rules that other pods may satisfy set aside."""
        return np.flatnonzero(self._session.kernel.without(self._pod, self.replaced))

    def alone(self, free: Matrix, most: int) -> Vector:
        """Number of pods that fit into each column of `free`, shape (dimensions, nodes), by amounts; `most` at most."""
        return np.clip(copies_that_fit(self._request, free, self._session.view.nodes.always), 0, most)

    def together(self, nodes: Rows, copies: Vector) -> Vector:
        """Number of these copies that the nodes take when the rules between them hold, shape (nodes,)."""
        everywhere = np.zeros(len(self._session.view.nodes))
        everywhere[nodes] = copies
        return _together(everywhere, self.relations)[nodes]

    def place(self, count: int, free: Matrix) -> int:
        """Places up to `count` pods, filling each node in turn, subtracts them from `free` and returns their number."""
        nodes = self.passing()
        copies = self.together(nodes, self.alone(free[:, nodes], count)).astype(np.intp)
        taken = np.clip(count - (np.cumsum(copies) - copies), 0, copies)
        free[:, nodes] -= np.outer(self._request, taken)
        return int(taken.sum())


def fitting(session: Session, pods: Iterable[PodRecord], free: Matrix) -> int:
    """Number of pods that fit into `free`, which is used up, shape (dimensions, nodes): class by class."""
    classes: dict[int, list[PodRecord]] = {}
    for pod in pods:
        classes.setdefault(pod.pod_class.id, []).append(pod)
    return sum(Alike(session, alike[0]).place(len(alike), free) for alike in classes.values())


def _together(copies: Vector, relations: Sequence[Relation]) -> Vector:
    for each in relations:
        if isinstance(each, Apart) and each.conflicts[0, 0]:
            copies = _at_most_one(copies, each.domain)
        elif isinstance(each, Limited) and each.takes[0] > 0:
            copies = np.minimum(copies, np.maximum(np.floor(each.free / each.takes[0]), 0))
        elif isinstance(each, Balanced) and each.selected[0]:
            copies = _balanced(copies, each)
    return copies


def _at_most_one(copies: Vector, domains: Rows) -> Vector:
    """Only the first node that takes any in each domain takes one."""
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
