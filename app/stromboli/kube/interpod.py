"""Inter-pod affinity and anti-affinity.

A term selects pods by namespace and labels; a node is near such a pod if both are in one domain of the term's topology
key. matchLabelKeys need no attention: the API server merges them into the selector when a pod is created.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.causes import Detailed, Elsewhere, Filters, Passing
from stromboli.framework.plugin.relations import Apart, Near, Relation
from stromboli.kube.domains import Domains, domains
from stromboli.kube.placed import PlacedPods, Scope, Trait
from stromboli.kube.terms import (
    Namespaces,
    PreferredTerms,
    RequiredTerms,
    Term,
    TermIndex,
    preferred_terms,
    required_affinity,
    required_anti_affinity,
    requires_affinity,
)
from stromboli.state.columns import Column, Numbers
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import NOTHING, Requirement, Selector

#: terms that select a pod, by topology key, with the number of pods on each node that have them
_Near = list[tuple[str, Vector]]
#: a topology key, the numbers of terms with it, and a key for caching
_Terms = tuple[str, Rows, bytes]
#: the cause of nodes that are not near the pods that all affinity terms select
_NOT_NEAR = "node(s) didn't match pod affinity rules"
#: up to this many values are looked up one by one
_FEW_VALUES = 8


class InterPod:
    """The filters and scores in one session. Masks and vectors have shape (nodes,)."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._view = view
        self._facts = view.nodes.facts
        self._placed = placed
        self._namespaces: Mapping[str, Any] = view.snapshot.objects.get("Namespace", {})
        #: namespaces by the names and selectors of a term
        self._reached: dict[tuple[tuple[str, ...], Selector], Mask] = {}
        #: by trait, namespace and labels: the terms that select such a pod
        self._known_terms: dict[Hashable, list[_Terms]] = {}
        #: by trait and namespace: the sets of namespaces that contain it
        self._reaching: dict[tuple[Trait[Any], str], Mask] = {}

    @cached_property
    def keeps_apart(self) -> bool:
        """Whether any pod has anti-affinity terms."""
        return bool(self._placed.traits(required_anti_affinity).values)

    def filters(self, pod: PodRecord) -> Filters:
        """The filters by the pod's terms, and by the terms of placed pods that select it."""
        near = self._placed.traits(required_affinity).value(pod.row) if requires_affinity(pod.pod_class) else None
        if near:
            yield from self._near_all(near, pod)
        far = [(term.topology_key, counts) for term in self._own_far(pod) if (counts := self._counts(term)) is not None]
        if far:
            yield Passing("node(s) didn't match pod anti-affinity rules"), self._without_terms(far)
        repelling = self._repelling(pod)
        if repelling:
            yield Passing("node(s) didn't satisfy existing pods anti-affinity rules"), self._without_terms(repelling)

    def relations(self, pods: Sequence[PodRecord]) -> Iterator[Relation]:
        """The relations between some pods that follow from their terms."""
        for at, pod in enumerate(pods):
            terms = self._placed.traits(required_affinity).value(pod.row) if requires_affinity(pod.pod_class) else None
            if terms:
                yield self._near(at, terms, pods)
        conflicts: dict[str, Mask] = {}
        for at, pod in enumerate(pods):
            for term in self._own_far(pod):
                found = conflicts.setdefault(term.topology_key, np.zeros((len(pods), len(pods)), np.bool_))
                found[at] |= [self._selects(term, other) for other in pods]
        for key, each in conflicts.items():
            if each.any():
                yield Apart(f"pod anti-affinity by {key}", each | each.T, self._domains(key).numbers)

    def _near(self, at: int, terms: tuple[Term, ...], pods: Sequence[PodRecord]) -> Near:
        counts = self._placed.count(terms, partial(self._selected_by_all, terms))
        by_term = [self._domains(term.topology_key) for term in terms]
        nowhere = np.zeros(len(self._facts), np.bool_)
        return Near(
            f"pod affinity by {' and '.join(sorted({term.topology_key for term in terms}))}",
            _NOT_NEAR,
            at,
            np.array([all(self._selects(term, pod) for term in terms) for pod in pods], np.bool_),
            tuple(each.numbers for each in by_term),
            tuple(nowhere if counts is None else ~each.without(counts) for each in by_term),
        )

    def _selected_by_all(self, terms: tuple[Term, ...]) -> Rows:
        """The rows of the pods that all of some terms select."""
        return reduce(np.intersect1d, map(self._selected, terms))

    def scope(self, pod: PodRecord) -> Scope:
        """The pods that anti-affinity filters depend on; with the hostname as topology key, only those on the node
        itself."""
        keys = [term.topology_key for term in self._own_far(pod)]
        keys += [key for key, _ in self._repelling(pod)]
        if not keys:
            return Scope.Nowhere
        apart = all(self._domains(key).alone for key in keys)
        return Scope.OnNode if apart else Scope.Anywhere

    @property
    def any_prefers(self) -> bool:
        """Whether any pod has preferred terms."""
        return bool(self._placed.traits(preferred_terms).values)

    def preferring(self, pod: PodRecord) -> Hashable:
        """The preferred terms of all pods that select a pod: pods with equal ones have equal scores."""
        terms = self._terms(preferred_terms, self._placed.traits(preferred_terms).index(PreferredTerms), pod)
        return tuple([which for _, _, which in terms])

    def prefers(self, pod: PodRecord) -> bool:
        """Whether a pod has preferred terms."""
        return self._placed.traits(preferred_terms).value(pod.row) is not None

    def preference(self, pod: PodRecord) -> Vector | None:
        """The sum of the weights of all preferred terms, of the pod and of placed pods; None without any."""
        total: Vector | None = None
        preferred = self._placed.traits(preferred_terms)
        for weight, term in preferred.value(pod.row) or ():
            nearby = self._nearby(term)
            if nearby is not None:
                score = weight * nearby
                total = score if total is None else total + score
        if preferred.values:
            for key, weights in self._selecting(preferred_terms, preferred.index(PreferredTerms), pod):
                score = self._domains(key).sums(weights)
                total = score if total is None else total + score
        return total

    def _near_all(self, terms: tuple[Term, ...], pod: PodRecord) -> Filters:
        """Nodes that have, in every term's domain, a pod that all terms select.

        The first pod of a group with affinity to itself passes everywhere, or none of them could ever start. A later
        pod passes everywhere again once the others are gone.
        """
        by_term = [self._domains(term.topology_key) for term in terms]
        counts = self._placed.count(terms, partial(self._selected_by_all, terms))
        far = [] if counts is None else [each.without(counts) for each in by_term]
        joins, itself = not all(mask.all() for mask in far), all(self._selects(term, pod) for term in terms)
        if itself and not (joins and all(each.everywhere for each in by_term)):
            yield _NOT_NEAR, reduce(np.logical_and, [each.labelled for each in by_term])
        if joins:
            near = ~reduce(np.logical_or, far)
            yield (Elsewhere(_NOT_NEAR, partial(self._joined, terms)) if itself else _NOT_NEAR), near
        elif not itself:
            yield Detailed(_NOT_NEAR, partial(self._missed, terms, pod)), np.zeros(len(self._facts), np.bool_)

    def _missed(self, terms: tuple[Term, ...], pod: PodRecord) -> Passage:
        """Labels that a pod's affinity requires of neighbours and that no placed pod has together."""
        affinity = pod.pod_class.spec.affinity
        wanted = (affinity.pod_affinity.required if affinity and affinity.pod_affinity else None) or ()
        labels = [(each.label_selector.match_labels or {} if each.label_selector else {}) for each in wanted]
        named = " and ".join(", ".join(f"{key}={value}" for key, value in sorted(each.items())) for each in labels)
        where = " or ".join(sorted({namespace for term in terms for namespace in term.namespaces}))
        if not named or not where or len(self._selected_by_all(terms)):
            return Passage((), "", "")
        return Passage(tuple(where.split(" or ")), f"no pod of namespace {where} with {named} has a node", "")

    def _joined(self, terms: tuple[Term, ...]) -> Passage:
        """A pod that all of some terms select, on the first node that has one."""
        there = self._placed.on_first_node(self._selected_by_all(terms))
        first = min(self._view.records(there), key=lambda pod: pod.key)
        then = "when these are gone it may go elsewhere"
        where = self._view.nodes.name(int(self._view.pods.node[first.row]))
        named = f"it joins pods such as {first.key} on {where}; {then}"
        return Passage((first.namespace,), named, f"it joins pods of another namespace; {then}")

    def _own_far(self, pod: PodRecord) -> Sequence[Term]:
        """The anti-affinity terms of a pod."""
        return self._placed.traits(required_anti_affinity).value(pod.row) or ()

    def _nearby(self, term: Term) -> Vector | None:
        """The number of pods in each node's domain that a term selects; None for no pods."""
        counts = self._counts(term) if self._facts.any_has(term.topology_key) else None
        return None if counts is None else self._domains(term.topology_key).sums(counts)

    def _counts(self, term: Term) -> Vector | None:
        """The number of pods on each node that a term selects; None for no pods."""
        split = _as_difference(term)
        if split is None:
            return self._placed.count(term, lambda: self._selected(term))
        # The count for all other pods is known; only the changes of the session are added.
        whole, parts = split
        counts = self._counts(whole)
        if counts is None:
            return None
        for part in parts:
            few = self._counts(part)
            if few is not None:
                counts = counts - few
        return counts

    def _repelling(self, pod: PodRecord) -> _Near:
        """The anti-affinity terms of placed pods that select a pod."""
        column = self._placed.traits(required_anti_affinity)
        return self._selecting(required_anti_affinity, column.index(RequiredTerms), pod) if column.values else []

    def _selecting(self, trait: Trait[Any], terms: TermIndex, pod: PodRecord) -> _Near:
        """The terms of placed pods that select a pod, by topology key: the sum of their weights on each node."""
        near = []
        for key, numbers, which in self._terms(trait, terms, pod):
            counts = self._placed.with_traits(trait, which, partial(terms.weights, numbers))
            if counts is not None:
                near.append((key, counts))
        return near

    def _terms(self, trait: Trait[Any], terms: TermIndex, pod: PodRecord) -> list[_Terms]:
        """The terms that select a pod."""
        who = trait, pod.namespace, frozenset(pod.labels.items())
        found = self._known_terms.get(who)
        if found is None:
            selecting = terms.selecting(pod.labels, partial(self._terms_reach, trait, pod.namespace))
            # A topology key that no node has concerns no node, and tenants may write thousands of them.
            named = [(key, numbers.tobytes()) for key, numbers in selecting if self._facts.any_has(key)]
            found = self._known_terms[who] = [(key, np.frombuffer(which, np.intp), which) for key, which in named]
        return found

    def _without_terms(self, near: _Near) -> Mask:
        """The nodes without any of the terms in their domain."""
        return reduce(np.logical_and, [self._domains(key).without(counts) for key, counts in near])

    def _domains(self, key: str) -> Domains:
        return domains(self._facts, key)

    def _selected(self, term: Term) -> Rows:
        """The rows of the pods that a term selects."""
        return self._placed.pod_facts.selected(term.selector, self._among(term))

    def _among(self, term: Term) -> Mask:
        """The namespaces of a term, as `PodFacts.selected` takes them."""
        about = term.namespaces, term.namespace_selector
        found = self._reached.get(about)
        if found is None:
            found = self._placed.pod_facts.named(term.namespaces)
            if term.namespace_selector != NOTHING:
                found[:-1] |= term.namespace_selector.mask(self._namespace_facts)
            self._reached[about] = found
        return found

    @cached_property
    def _namespace_facts(self) -> _NamespaceFacts:
        return _NamespaceFacts([*map(self._labels_of, self._placed.pod_facts.namespaces().values[:])])

    def _selects(self, term: Term, pod: PodRecord) -> bool:
        return term.selector.matches(pod.labels) and self._reaches(term, pod.namespace)

    def _reaches(self, term: Term, namespace: str) -> bool:
        return namespace in term.namespaces or term.namespace_selector.matches(self._labels_of(namespace))

    def _terms_reach(self, trait: Trait[Any], namespace: str, named: Namespaces) -> Mask:
        """The sets of namespaces, among those of a trait's terms, that contain a namespace."""
        known, labels = self._reaching.get((trait, namespace)), self._labels_of(namespace)
        found = self._reaching[trait, namespace] = named.reaching(namespace, labels, known)
        return found

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        known: Mapping[str, Any] = self._namespaces.get(namespace, {})
        return (known.get("metadata") or {}).get("labels") or {}


class _NamespaceFacts:
    """Labels of namespaces, as selectors read them."""

    def __init__(self, labels: Sequence[Mapping[str, str]]) -> None:
        self._labels = labels
        self._columns: dict[str, Column[str]] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, key: str) -> Numbers:
        return self.labels(key).numbers

    def labels(self, key: str) -> Column[str]:
        found = self._columns.get(key)
        if found is None:
            origin = np.full(len(self._labels), -1)
            found = self._columns[key] = Column.read(self._labels, lambda labels: labels.get(key), None, origin)
        return found

    def label_values(self, key: str) -> Mapping[str, int]:
        return self.labels(key).by_value


def _as_difference(term: Term) -> tuple[Term, list[Term]] | None:
    """For a term that excludes few pods: the term without that exclusion, whose count other terms share, and terms for
    the excluded pods.

    None for a term that selects by a value, which is cheap to look up.
    """
    selector = term.selector
    if selector.single is not None:
        return None
    for out in selector.requirements:
        if out.operator == "NotIn" and len(out.values) <= _FEW_VALUES:
            whole = Selector(tuple(each for each in selector.requirements if each is not out))
            parts = [whole.narrowed([Requirement(out.key, "In", frozenset((value,)))]) for value in out.values]
            return replace(term, selector=whole), [replace(term, selector=part) for part in parts]
    return None
