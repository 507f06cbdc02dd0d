"""Taints and tolerations, evaluated once per distinct taint of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.state.columns import Numbers
from stromboli.state.nodes import READY, NodeFacts

Tolerations = Sequence[objects.Toleration]

#: effects that filter nodes
REPELLING = ("NoSchedule", "NoExecute")
#: beginnings of keys of taints that say how a node is, or that it starts or goes
_OF_KUBERNETES = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/",
)
#: ends of those that agents take away once they run on the node
_OF_AGENTS = ("-not-ready", "/uninitialized", "/unregistered")
UNSCHEDULABLE = objects.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
#: the taints that the node lifecycle controller sets some time after the condition Ready becomes False or Unknown
_NOT_READY = objects.Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_UNREACHABLE = objects.Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")
#: beyond this number of filtering taints, nodes are reported together
_MOST_NAMED = 20


def says_state(key: str) -> bool:
    """Whether a taint describes the state of a node: it goes with that state, and is not to be tolerated."""
    return key.startswith(_OF_KUBERNETES) or key.endswith(_OF_AGENTS)


class TaintSets:
    """The distinct sets of taints of nodes, and the distinct taints in them, as columns."""

    def __init__(self) -> None:
        self.taints: list[objects.Taint] = []
        self._numbers: dict[objects.Taint, int] = {}
        #: key, value and effect of each taint as numbers, shape (3, taints)
        self._parts = np.zeros((3, 0), np.intp)
        self._texts: dict[str, int] = {}
        self._repelling = self._soft = np.zeros(0, np.bool_)
        self._any_soft = False
        #: number of sets, and for each taint in each set, in order: the numbers of the set and of the taint
        self.sets = 0
        self._set: Rows = np.zeros(0, np.intp)
        self._taint: Rows = np.zeros(0, np.intp)

    def extend(self, values: Sequence[tuple[objects.Taint, ...]]) -> None:
        pairs = [(at, self._number(taint)) for at, taints in enumerate(values, self.sets) for taint in taints]
        flat = np.array(pairs, np.intp).reshape(-1, 2).T
        self._set, self._taint = np.append(self._set, flat[0]), np.append(self._taint, flat[1])
        self.sets += len(values)
        new = self.taints[self._parts.shape[1] :]
        parts = [[self._text(taint.key), self._text(taint.value or ""), self._text(taint.effect)] for taint in new]
        self._parts = np.concatenate([self._parts, np.array(parts, np.intp).reshape(-1, 3).T], axis=1)
        self._repelling = np.append(self._repelling, [taint.effect in REPELLING for taint in new]).astype(np.bool_)
        self._soft = np.append(self._soft, [taint.effect == "PreferNoSchedule" for taint in new]).astype(np.bool_)
        self._any_soft = bool(self._soft.any())

    def first_untolerated(self, tolerations: Tolerations) -> Rows:
        """The number of the first taint in each set that a pod does not tolerate, -1 for none, shape (sets,)."""
        away = np.flatnonzero((self._repelling & ~self._tolerated(tolerations))[self._taint])
        # Taints are listed set by set; in reverse order, the first taint of each set is written last.
        out = np.full(self.sets, -1)
        out[self._set[away[::-1]]] = self._taint[away[::-1]]
        return out

    def unwanted(self, tolerations: Tolerations) -> Vector | None:
        """The number of untolerated PreferNoSchedule taints in each set, shape (sets,); None if there are none."""
        if not self._any_soft:
            return None
        disliked = (self._soft & ~self._tolerated(tolerations))[self._taint]
        return np.bincount(self._set[disliked], minlength=self.sets).astype(np.float64)

    def _tolerated(self, tolerations: Tolerations) -> Mask:
        """Whether any of some tolerations matches each taint, shape (taints,)."""
        keys, values, effects = self._parts
        out = np.zeros(len(self.taints), np.bool_)
        for toleration in tolerations:
            covered = np.ones(len(self.taints), np.bool_)
            if toleration.effect:
                covered &= effects == self._texts.get(toleration.effect, -1)
            if toleration.key:
                covered &= keys == self._texts.get(toleration.key, -1)
            if toleration.operator in (None, "", "Equal"):
                covered &= values == self._texts.get(toleration.value or "", -1)
            elif toleration.operator != "Exists":
                continue
            out |= covered
        return out

    def _number(self, taint: objects.Taint) -> int:
        known = self._numbers.get(taint)
        if known is None:
            known = self._numbers[taint] = len(self.taints)
            self.taints.append(taint)
        return known

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


def tolerates(toleration: objects.Toleration, taint: objects.Taint) -> bool:
    """Whether a toleration matches a taint; empty keys and effects match all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in (None, "", "Equal") and (toleration.value or "") == (taint.value or "")


def tolerated(tolerations: Tolerations, taint: objects.Taint) -> bool:
    """Whether any toleration matches a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates_unschedulable(tolerations: Tolerations) -> bool:
    """Whether a pod tolerates cordoned nodes."""
    return tolerated(tolerations, UNSCHEDULABLE)


def not_ready(tolerations: Tolerations, facts: NodeFacts) -> Mask | None:
    """The not-ready nodes that a pod does not tolerate, shape (nodes,); None if there are none."""
    column = facts.column("ready", attrgetter("ready"))
    if READY.issuperset(column.by_value):
        return None
    away = np.zeros(len(facts), np.bool_)
    for ready, number in column.by_value.items():
        if ready not in READY and not tolerated(tolerations, _NOT_READY if ready == "False" else _UNREACHABLE):
            away |= column.numbers == number
    return away if away.any() else None


def first_untolerated(tolerations: Tolerations, taints: Sequence[objects.Taint]) -> objects.Taint | None:
    """The first taint that a pod does not tolerate."""
    for taint in taints:
        if taint.effect in REPELLING and not tolerated(tolerations, taint):
            return taint
    return None


def keeping_away(tolerations: Tolerations, facts: NodeFacts) -> Mask:
    """The nodes with a taint that a pod does not tolerate, shape (nodes,)."""
    sets, of_node = _taint_sets(facts)
    mask: Mask = (sets.first_untolerated(tolerations) >= 0)[of_node]
    return mask


def untolerated(tolerations: Tolerations, facts: NodeFacts) -> Iterator[tuple[objects.Taint | None, Mask]]:
    """Each untolerated taint, with the nodes, shape (nodes,), on which it is the first.

    If there are many taints: None, with all nodes that have any of them.
    """
    sets, numbers = _taint_sets(facts)
    if not sets.taints:
        return
    first = sets.first_untolerated(tolerations)
    if (first < 0).all():
        return
    of_node = first[numbers]
    named = np.flatnonzero(np.bincount(of_node[of_node >= 0]))
    if len(named) > _MOST_NAMED:
        yield None, of_node >= 0
        return
    for number in named.tolist():
        yield sets.taints[number], of_node == number


def unwanted(tolerations: Tolerations, facts: NodeFacts) -> Vector | None:
    """The number of untolerated PreferNoSchedule taints of each node, shape (nodes,); None if there are none."""
    sets, of_node = _taint_sets(facts)
    of_sets = sets.unwanted(tolerations)
    if of_sets is None:
        return None
    counts: Vector = of_sets[of_node]
    return counts if counts.any() else None


def _taint_sets(facts: NodeFacts) -> tuple[TaintSets, Numbers]:
    column = facts.column("taints", attrgetter("taints"))
    return column.index(TaintSets), column.numbers
