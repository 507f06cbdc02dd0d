"""Taints and tolerations. Nodes with the same taints are one group: a pod's tolerations are compared once per group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.nodes import NodeFacts
from stromboli.state.selectors import derived

Tolerations = Sequence[objects.Toleration]

_REPELLING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = objects.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class TaintGroups:
    """The distinct sets of taints, and which of them each node has."""

    taints: list[tuple[objects.Taint, ...]]
    #: index into `taints`, shape (nodes,)
    of_node: Rows
    #: whether any taint of the cluster has the effect PreferNoSchedule
    soft: bool


def taint_groups(facts: NodeFacts) -> TaintGroups:
    """The groups of the nodes as they are."""
    column = facts.column("taints", lambda record: record.taints)
    used, of_node = np.unique(column.numbers, return_inverse=True)
    groups = [column.values[number] for number in used.tolist()]
    soft = any(taint.effect == "PreferNoSchedule" for taints in groups for taint in taints)
    return TaintGroups(groups, of_node, soft)


def tolerates(toleration: objects.Toleration, taint: objects.Taint) -> bool:
    """Whether one toleration covers one taint; empty keys and effects cover all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in (None, "", "Equal") and (toleration.value or "") == (taint.value or "")


def tolerated(tolerations: Tolerations, taint: objects.Taint) -> bool:
    """Whether any toleration covers a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates_unschedulable(tolerations: Tolerations) -> bool:
    """Whether a pod may go to cordoned nodes."""
    return tolerated(tolerations, _UNSCHEDULABLE)


def first_untolerated(tolerations: Tolerations, taints: Sequence[objects.Taint]) -> objects.Taint | None:
    """The first taint that keeps a pod away."""
    for taint in taints:
        if taint.effect in _REPELLING and not tolerated(tolerations, taint):
            return taint
    return None


def untolerated(tolerations: Tolerations, facts: NodeFacts) -> Iterator[tuple[objects.Taint, Mask]]:
    """Each taint that keeps a pod away, with the nodes, shape (nodes,), of which it is the first."""
    groups = derived(facts, taint_groups)
    number: dict[objects.Taint, int] = {}
    repelled_by = []
    for taints in groups.taints:
        taint = first_untolerated(tolerations, taints)
        repelled_by.append(-1 if taint is None else number.setdefault(taint, len(number)))
    if number:
        of_node = np.array(repelled_by, np.intp)[groups.of_node]
        for taint, index in number.items():
            yield taint, of_node == index


def unwanted(tolerations: Tolerations, facts: NodeFacts) -> Vector | None:
    """How many PreferNoSchedule taints of each node a pod does not tolerate, shape (nodes,); None when none."""
    groups = derived(facts, taint_groups)
    if not groups.soft:
        return None
    counts = [
        sum(taint.effect == "PreferNoSchedule" and not tolerated(tolerations, taint) for taint in taints)
        for taints in groups.taints
    ]
    if not any(counts):
        return None
    return np.array(counts, np.float64)[groups.of_node]
