"""Affinity and anti-affinity between pods.

A term selects pods by namespace and labels; a node is near such a pod when both are in one domain of the term's topology
key. matchLabelKeys need no attention: the API server writes them into the selector when a pod is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import cast

import numpy as np

from stromboli.api import objects
from stromboli.api.resources import Mask, Vector
from stromboli.framework.matching import NOTHING, Selector, label_selector
from stromboli.framework.plugin import Filters
from stromboli.framework.session import Session
from stromboli.kube.domains import domain_sums, has_domain
from stromboli.kube.placed import PlacedPods
from stromboli.state.classes import PodClass
from stromboli.state.pods import PodRecord


@dataclass(frozen=True, slots=True)
class Term:
    """Which pods, and how near."""

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    topology_key: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a pod class."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    #: preferred terms by weight; that of anti-affinity is negative
    preferred: tuple[tuple[int, Term], ...] = ()


def has_required_terms(pod_class: PodClass) -> bool:
    """Whether pods of this class must be near to, or far from, others."""
    affinity = pod_class.spec.affinity
    return affinity is not None and any(
        part is not None and bool(part.required) for part in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )


def has_required_anti_affinity(pod_class: PodClass) -> bool:
    """Whether pods of this class keep others away."""
    affinity = pod_class.spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)


def has_preferred_terms(pod_class: PodClass) -> bool:
    """Whether pods of this class would rather be near to, or far from, others."""
    affinity = pod_class.spec.affinity
    return affinity is not None and any(
        part is not None and bool(part.preferred) for part in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )


def parse_terms(pod_class: PodClass) -> Terms:
    """The terms of a class; those that name no namespace mean the class's own."""
    affinity = pod_class.spec.affinity
    if affinity is None:
        return Terms()
    near, far = affinity.pod_affinity or objects.PodAffinity(), affinity.pod_anti_affinity or objects.PodAffinity()

    def parse(term: objects.PodAffinityTerm) -> Term:
        own = not term.namespaces and term.namespace_selector is None
        return Term(
            selector=label_selector(term.label_selector),
            namespaces=frozenset((pod_class.namespace,)) if own else frozenset(term.namespaces or ()),
            namespace_selector=label_selector(term.namespace_selector),
            topology_key=term.topology_key,
        )

    return Terms(
        affinity=tuple(map(parse, near.required or ())),
        anti_affinity=tuple(map(parse, far.required or ())),
        preferred=(
            *((t.weight, parse(t.pod_affinity_term)) for t in near.preferred or ()),
            *((-t.weight, parse(t.pod_affinity_term)) for t in far.preferred or ()),
        ),
    )


class InterPod:
    """The rules in one session. Masks and vectors have shape (nodes,)."""

    def __init__(self, session: Session, placed: PlacedPods) -> None:
        self._facts = session.nodes.facts
        self._classes = session.snapshot.classes
        self._placed = placed
        self._namespaces: Mapping[str, object] = session.snapshot.objects.get("Namespace", {})
        self._terms: dict[int, Terms] = {}
        self._repelling: dict[object, list[tuple[int, Term]]] = {}

    def terms(self, class_id: int) -> Terms:
        """The terms of a class."""
        found = self._terms.get(class_id)
        if found is None:
            found = self._terms[class_id] = parse_terms(self._classes[class_id])
        return found

    def filters(self, pod: PodRecord) -> Filters:
        """What the pod requires of the pods near a node, and they of it."""
        if has_required_terms(pod.pod_class):
            terms = self.terms(pod.pod_class.id)
            if terms.affinity:
                yield "node(s) didn't match pod affinity rules", self._near_all(terms.affinity, pod)
            if terms.anti_affinity:
                free = [self._nearby(term) == 0 for term in terms.anti_affinity]
                yield "node(s) didn't match pod anti-affinity rules", reduce(np.logical_and, free)
        keeping_away = self._keeping_away(pod)
        if keeping_away:
            free = [domain_sums(self._facts, term.topology_key, counts) == 0 for term, counts in keeping_away]
            yield "node(s) didn't satisfy existing pods anti-affinity rules", reduce(np.logical_and, free)

    def is_kept_away(self, pod: PodRecord) -> bool:
        """Whether any pod on a node keeps this one away."""
        return bool(self._keeping_away(pod))

    def preference(self, pod: PodRecord) -> Vector | None:
        """The sum of the weights of all preferred terms, of the pod and of those near a node; None without any."""
        total: Vector | None = None
        if has_preferred_terms(pod.pod_class):
            for weight, term in self.terms(pod.pod_class.id).preferred:
                score = weight * self._nearby(term)
                total = score if total is None else total + score
        for class_id, counts in self._placed.of_classes(has_preferred_terms).items():
            for weight, term in self.terms(class_id).preferred:
                if self._selects(term, pod):
                    score = weight * domain_sums(self._facts, term.topology_key, counts)
                    total = score if total is None else total + score
        return total

    def _near_all(self, terms: tuple[Term, ...], pod: PodRecord) -> Mask:
        """Nodes that have, in every term's domain, a pod that all terms select.

        The first of a group of pods that want each other is let in anywhere: otherwise none of them could ever start.
        """
        facts = self._facts
        counts = self._placed.matching(terms, lambda other: all(self._selects(term, other) for term in terms))
        labelled = [has_domain(facts, term.topology_key) for term in terms]
        nobody = not any(counts[has].any() for has in labelled)
        if nobody and all(self._selects(term, pod) for term in terms):
            return cast(Mask, reduce(np.logical_and, labelled))
        return cast(
            Mask, reduce(np.logical_and, [domain_sums(facts, term.topology_key, counts) > 0 for term in terms])
        )

    def _nearby(self, term: Term) -> Vector:
        """How many pods that a term selects are in each node's domain."""
        counts = self._placed.matching(term, lambda other: self._selects(term, other))
        return domain_sums(self._facts, term.topology_key, counts)

    def _keeping_away(self, pod: PodRecord) -> list[tuple[Term, Vector]]:
        """Anti-affinity terms of placed pods that select a pod, with the number of such pods per node."""
        classes = self._placed.classes(has_required_anti_affinity)
        if not classes:
            return []
        who = (pod.namespace, frozenset(pod.labels.items()))
        terms = self._repelling.get(who)
        if terms is None:
            terms = self._repelling[who] = [
                (id_, term) for id_ in classes for term in self.terms(id_).anti_affinity if self._selects(term, pod)
            ]
        if not terms:
            return []
        counts = self._placed.of_classes(has_required_anti_affinity)
        return [(term, counts[id_]) for id_, term in terms if id_ in counts]

    def _selects(self, term: Term, pod: PodRecord) -> bool:
        if not term.selector.matches(pod.labels):
            return False
        if pod.namespace in term.namespaces:
            return True
        return term.namespace_selector is not NOTHING and term.namespace_selector.matches(
            self._namespace_labels(pod.namespace)
        )

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        namespace = cast("Mapping[str, Mapping[str, Mapping[str, str]]]", self._namespaces).get(name, {})
        return namespace.get("metadata", {}).get("labels") or {}
