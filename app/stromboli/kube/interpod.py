"""Affinity and anti-affinity between pods.

A term selects pods by namespace and labels; a node is near such a pod when both are in one domain of the term's
topology key. matchLabelKeys need no attention: the API server writes them into the selector when a pod is created.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.framework.plugin import Filters, Passing
from stromboli.framework.view import View
from stromboli.kube.domains import domain_sums, has_domain
from stromboli.kube.placed import PlacedPods, Scope
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord
from stromboli.state.selectors import Selector, label_selector


@dataclass(frozen=True, slots=True)
class Term:
    """Which pods, and how near."""

    selector: Selector
    #: in order, each once
    namespaces: tuple[str, ...]
    namespace_selector: Selector
    topology_key: str


def required_affinity(pod_class: PodClass) -> tuple[Term, ...] | None:
    """The terms of pods that a class must be near to."""
    affinity = pod_class.spec.affinity
    return _required(pod_class, affinity.pod_affinity) if affinity else None


def required_anti_affinity(pod_class: PodClass) -> tuple[Term, ...] | None:
    """The terms of pods that a class keeps away from itself."""
    affinity = pod_class.spec.affinity
    return _required(pod_class, affinity.pod_anti_affinity) if affinity else None


def preferred_terms(pod_class: PodClass) -> tuple[tuple[int, Term], ...] | None:
    """The terms of pods that a class would rather be near to, by weight; negative, to be far from."""
    affinity = pod_class.spec.affinity
    if affinity is None:
        return None
    near, far = affinity.pod_affinity or _NO_AFFINITY, affinity.pod_anti_affinity or _NO_AFFINITY
    return (
        *((t.weight, _term(pod_class, t.pod_affinity_term)) for t in near.preferred or ()),
        *((-t.weight, _term(pod_class, t.pod_affinity_term)) for t in far.preferred or ()),
    ) or None


_NO_AFFINITY = objects.PodAffinity()


def _required(pod_class: PodClass, affinity: objects.PodAffinity | None) -> tuple[Term, ...] | None:
    if affinity is None or not affinity.required:
        return None
    return tuple(_term(pod_class, term) for term in affinity.required)


def _term(pod_class: PodClass, raw: objects.PodAffinityTerm) -> Term:
    """A term of the API; one that names no namespaces means those of its own pod."""
    own = not raw.namespaces and raw.namespace_selector is None
    return Term(
        selector=label_selector(raw.label_selector),
        namespaces=(pod_class.namespace,) if own else tuple(sorted(set(raw.namespaces or ()))),
        namespace_selector=label_selector(raw.namespace_selector),
        topology_key=raw.topology_key,
    )


class _ByLabel:
    """Terms of sets by a label that whoever they select must have."""

    def __init__(self) -> None:
        self._size = 0
        #: by a label and its value: number of the set, weight, term
        self._by_label: defaultdict[tuple[str, str], list[tuple[int, int, Term]]] = defaultdict(list)
        #: those that require no value of any label
        self._others: list[tuple[int, int, Term]] = []

    def near(self, labels: Mapping[str, str]) -> Iterator[tuple[int, int, Term]]:
        """The terms that may select a pod with these labels, with the number of their set and their weight."""
        for label in labels.items():
            yield from self._by_label.get(label, ())
        yield from self._others

    def _extend(self, sets: Iterable[Iterable[tuple[int, Term]]]) -> None:
        for terms in sets:
            for weight, term in terms:
                self._note(term, (self._size, weight, term))
            self._size += 1

    def _note(self, term: Term, entry: tuple[int, int, Term]) -> None:
        required = next((r for r in term.selector.requirements if r.operator == "In"), None)
        if required is None:
            self._others.append(entry)
        else:
            for value in required.values:
                self._by_label[required.key, value].append(entry)


class RequiredTerms(_ByLabel):
    """Of values of `required_anti_affinity`; weights are 1."""

    def extend(self, values: Sequence[tuple[Term, ...]]) -> None:
        self._extend([(1, term) for term in terms] for terms in values)


class PreferredTerms(_ByLabel):
    """Of values of `preferred_terms`."""

    def extend(self, values: Sequence[tuple[tuple[int, Term], ...]]) -> None:
        self._extend(values)


class InterPod:
    """The rules in one session. Masks and vectors have shape (nodes,)."""

    def __init__(self, view: View, placed: PlacedPods) -> None:
        self._facts = view.nodes.facts
        self._placed = placed
        self._namespaces: Mapping[str, Any] = view.snapshot.objects.get("Namespace", {})

    @cached_property
    def keeps_apart(self) -> bool:
        """Whether any pod keeps others away."""
        return bool(self._placed.traits(required_anti_affinity).values)

    def filters(self, pod: PodRecord) -> Filters:
        """What the pod requires of the pods near a node, and they of it."""
        near = required_affinity(pod.pod_class)
        if near:
            yield "node(s) didn't match pod affinity rules", self._near_all(near, pod)
        sums = [sum_ for term in self._own_far(pod) if (sum_ := self._nearby(term)) is not None]
        if sums:
            yield Passing("node(s) didn't match pod anti-affinity rules"), _nobody(sums)
        repelled = self._repelled(pod)
        if repelled:
            sums = [domain_sums(self._facts, term.topology_key, counts) for term, counts in repelled]
            yield Passing("node(s) didn't satisfy existing pods anti-affinity rules"), _nobody(sums)

    def scope(self, pod: PodRecord) -> Scope:
        """On which pods the filters by anti-affinity depend. Between hosts it asks for those on the node alone."""
        terms = [*self._own_far(pod), *(term for term, _ in self._repelled(pod))]
        if not terms:
            return Scope.Nowhere
        apart = all(self._facts.labels(term.topology_key).distinct for term in terms)
        return Scope.OnNode if apart else Scope.Anywhere

    def preference(self, pod: PodRecord) -> Vector | None:
        """The sum of the weights of all preferred terms, of the pod and of those near a node; None without any."""
        total: Vector | None = None
        for weight, term in preferred_terms(pod.pod_class) or ():
            nearby = self._nearby(term)
            if nearby is not None:
                score = weight * nearby
                total = score if total is None else total + score
        for number, weight, term in self._placed.traits(preferred_terms).index(PreferredTerms).near(pod.labels):
            if self._selects(term, pod):
                counts = self._placed.with_trait(preferred_terms, number)
                if counts is not None:
                    score = weight * domain_sums(self._facts, term.topology_key, counts)
                    total = score if total is None else total + score
        return total

    def _near_all(self, terms: tuple[Term, ...], pod: PodRecord) -> Mask:
        """Nodes that have, in every term's domain, a pod that all terms select.

        The first of a group of pods that want each other is let in anywhere: otherwise none of them could ever start.
        """
        facts = self._facts

        def selected() -> Rows:
            return reduce(np.intersect1d, map(self._selected, terms))

        counts = self._placed.count(terms, selected)
        if counts is None:
            counts = np.zeros(len(facts))
        labelled = [has_domain(facts, term.topology_key) for term in terms]
        if all(self._selects(term, pod) for term in terms) and not any(counts[has].any() for has in labelled):
            return reduce(np.logical_and, labelled)
        return reduce(np.logical_and, [domain_sums(facts, term.topology_key, counts) > 0 for term in terms])

    def _own_far(self, pod: PodRecord) -> Sequence[Term]:
        """The terms of pods that a pod keeps away from itself."""
        return self._placed.traits(required_anti_affinity).value(pod.row) or ()

    def _nearby(self, term: Term) -> Vector | None:
        """How many pods that a term selects are in each node's domain; None when there are none."""
        counts = self._placed.count(term, lambda: self._selected(term))
        return None if counts is None else domain_sums(self._facts, term.topology_key, counts)

    def _repelled(self, pod: PodRecord) -> list[tuple[Term, Vector]]:
        """Anti-affinity terms of placed pods that select a pod, with the number of such pods per node."""
        repelling = self._placed.traits(required_anti_affinity)
        if not repelling.values:
            return []
        found = []
        for number, _, term in repelling.index(RequiredTerms).near(pod.labels):
            if self._selects(term, pod):
                counts = self._placed.with_trait(required_anti_affinity, number)
                if counts is not None:
                    found.append((term, counts))
        return found

    def _selected(self, term: Term) -> Rows:
        """The rows of the pods that a term selects."""
        return self._placed.pod_facts.selected(term.selector, lambda name: self._reaches(term, name))

    def _selects(self, term: Term, pod: PodRecord) -> bool:
        return term.selector.matches(pod.labels) and self._reaches(term, pod.namespace)

    def _reaches(self, term: Term, namespace: str) -> bool:
        return namespace in term.namespaces or term.namespace_selector.matches(self._labels_of(namespace))

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        known: Mapping[str, Any] = self._namespaces.get(namespace, {})
        return (known.get("metadata") or {}).get("labels") or {}


def _nobody(sums: list[Vector]) -> Mask:
    """Where all counts are zero."""
    return reduce(np.logical_and, [each == 0 for each in sums])
