"""Terms of inter-pod affinity, indexed so that the terms that select a pod are found without testing thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stromboli.api import objects
from stromboli.api.resources import Mask, Rows, Vector
from stromboli.kube.numbered import Numbered
from stromboli.state.classes import PodClass
from stromboli.state.selectors import Selector, label_selector

#: values are few if their range is at most this many times larger
_FEW = 16
_NONE: Rows = np.zeros(0, np.intp)


@dataclass(frozen=True, slots=True)
class Term:
    """The selected pods, and the topology key."""

    selector: Selector
    #: ascending and unique
    namespaces: tuple[str, ...]
    namespace_selector: Selector
    topology_key: str


def requires_affinity(pod_class: PodClass) -> bool:
    """Whether pods of a class have required affinity terms."""
    affinity = pod_class.spec.affinity
    return bool(affinity and affinity.pod_affinity and affinity.pod_affinity.required)


def required_affinity(pod_class: PodClass) -> tuple[Term, ...] | None:
    """The required affinity terms of a class."""
    affinity = pod_class.spec.affinity
    return _required(pod_class, affinity.pod_affinity) if affinity else None


def required_anti_affinity(pod_class: PodClass) -> tuple[Term, ...] | None:
    """The required anti-affinity terms of a class."""
    affinity = pod_class.spec.affinity
    return _required(pod_class, affinity.pod_anti_affinity) if affinity else None


def preferred_terms(pod_class: PodClass) -> tuple[tuple[int, Term], ...] | None:
    """The preferred terms of a class by weight; negative for anti-affinity."""
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
    """A term of the API; without namespaces it applies to the pod's own."""
    own = not raw.namespaces and raw.namespace_selector is None
    return Term(
        selector=label_selector(raw.label_selector),
        namespaces=(pod_class.namespace,) if own else tuple(sorted(set(raw.namespaces or ()))),
        namespace_selector=label_selector(raw.namespace_selector),
        topology_key=raw.topology_key,
    )


class SelectorIndex:
    """Label selectors, indexed by their requirements.

    Each label of a pod satisfies or violates some requirements; a selector matches if all of its requirements are
    satisfied.
    """

    def __init__(self) -> None:
        #: number of labels that each selector requires, shape (selectors,)
        self._required: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        #: selectors without requirements
        self._free: Numbered[None] = Numbered()
        #: by a label and its value (None for any): selectors that require it, and selectors that exclude it
        self._met: Numbered[tuple[str, str | None]] = Numbered()
        self._broken: Numbered[tuple[str, str | None]] = Numbered()

    def extend(self, selectors: Sequence[Selector]) -> None:
        """Add selectors, numbered consecutively."""
        for number, selector in enumerate(selectors, len(self._required)):
            for requirement in selector.requirements:
                if requirement.operator == "NotIn":
                    for value in requirement.values:
                        self._broken.add((requirement.key, value), number)
                elif requirement.operator == "DoesNotExist":
                    self._broken.add((requirement.key, None), number)
            wanted = _wanted(selector)
            for key, values in wanted.items():
                if values is None:
                    self._met.add((key, None), number)
                for value in values or ():
                    self._met.add((key, value), number)
            if not wanted:
                self._free.add(None, number)
        required = np.array([len(_wanted(selector)) for selector in selectors], np.int16)
        self._required = np.concatenate([self._required, required])

    def selecting(self, labels: Mapping[str, str]) -> Rows:
        """The numbers of the selectors that match a set of labels."""
        required = self._required
        keys = [key for label in labels.items() for key in (label, (label[0], None))]
        met = self._met.each(keys, len(required))
        found = met[0] if met else _NONE
        if len(met) == 1:
            # Each of them occurs once.
            found = found[required[found] == 1]
        elif met:
            found, times = np.unique(np.concatenate(met), return_counts=True)
            found = found[times == required[found]]
        free = self._free.get(None, len(required))
        if free is not None:
            found = np.concatenate([found, free])
        if len(found):
            broken = self._broken.of(keys, len(required))
            if len(broken):
                selecting = np.ones(len(required), np.bool_)
                selecting[broken] = False
                found = found[selecting[found]]
        return found


def _wanted(selector: Selector) -> dict[str, frozenset[str] | None]:
    """The labels that a selector requires, by key, each with the values that satisfy all requirements; None for any
    value."""
    out: dict[str, frozenset[str] | None] = {}
    for requirement in selector.requirements:
        key = requirement.key
        if requirement.operator == "Exists":
            out.setdefault(key, None)
        elif requirement.operator == "In":
            before = out.get(key)
            out[key] = requirement.values if before is None else before & requirement.values
    return out


class TermIndex:
    """The distinct terms of placed pods, in sets, indexed by the pods that they select."""

    def __init__(self) -> None:
        self._selectors = SelectorIndex()
        self._numbers: dict[tuple[int, Term], int] = {}
        #: by term, shape (terms,)
        self._weights: Vector = np.zeros(0)
        #: numbers of namespaces and topology key, shape (2, terms)
        self._about: Rows = np.zeros((2, 0), np.intp)
        #: the first set that contains each term, shape (terms,), and pairs of further sets and terms, shape (2, pairs)
        self._first: Rows = np.zeros(0, np.intp)
        self._others: Rows = np.zeros((2, 0), np.intp)
        self._topology_keys: dict[str, int] = {}
        self._namespaces = Namespaces()
        #: by set
        self._size = 0

    def _extend(self, sets: Sequence[Iterable[tuple[int, Term]]]) -> None:
        new: list[tuple[int, Term]] = []
        about, others = [], []
        for number, terms in enumerate(sets, self._size):
            for entry in terms:
                known = self._numbers.setdefault(entry, len(self._numbers))
                if known < len(self._first) + len(new):
                    others.append((number, known))
                    continue
                new.append(entry)
                about.append((number, self._namespaces.number(entry[1]), self._key(entry[1].topology_key)))
        first, *of_terms = np.array(about, np.intp).reshape(-1, 3).T
        # In this order, so that a concurrent reader with an earlier snapshot finds all terms that it can see.
        self._size += len(sets)
        self._weights = np.append(self._weights, np.array([weight for weight, _ in new], np.float64))
        self._first = np.append(self._first, first)
        self._about = np.concatenate([self._about, of_terms], axis=1)
        self._others = np.concatenate([self._others, np.array(others, np.intp).reshape(-1, 2).T], axis=1)
        self._selectors.extend([term.selector for _, term in new])

    def _key(self, name: str) -> int:
        return self._topology_keys.setdefault(name, len(self._topology_keys))

    def selecting(self, labels: Mapping[str, str], reaching: Callable[[Namespaces], Mask]) -> list[tuple[str, Rows]]:
        """The terms that select a pod, by topology key; `reaching` tells which apply to the pod's namespace."""
        terms = self._selectors.selecting(labels)
        if len(terms):
            terms = terms[reaching(self._namespaces)[self._about[0, terms]]]
        if not len(terms):
            return []
        names = [*self._topology_keys]
        if len(names) == 1:
            return [(names[0], terms)]
        keys = self._about[1, terms]
        order = np.argsort(keys, kind="stable")
        bounds = np.flatnonzero(np.diff(keys[order], prepend=-1))
        return [(names[keys[of[0]]], terms[of]) for of in np.split(order, bounds[1:])]

    def weights(self, terms: Rows) -> tuple[Rows, Vector]:
        """The sets that contain some terms, ascending, and their weights."""
        sets, weights = self._first[terms], self._weights[terms]
        of, others = self._others
        if len(others):
            among = np.zeros(len(self._weights))
            among[terms] = weights
            at = np.flatnonzero(among[others])
            sets, weights = np.append(sets, of[at]), np.append(weights, among[others[at]])
        return _summed(sets, weights) if len(sets) > 1 else (sets, weights)


def _summed(numbers: Rows, weights: Vector) -> tuple[Rows, Vector]:
    """The distinct numbers, ascending, with the sum of the weights of each."""
    most = int(numbers.max())
    if len(numbers) * _FEW > most:
        sums: Vector = np.bincount(numbers, weights=weights).astype(np.float64, copy=False)
        distinct = np.flatnonzero(sums)
        return distinct, sums[distinct]
    # Sorting few numbers is faster than a table of all.
    distinct, at = np.unique(numbers, return_inverse=True)
    sums = np.bincount(at, weights=weights).astype(np.float64, copy=False)
    return distinct, sums


class RequiredTerms(TermIndex):
    """Terms of `required_anti_affinity` values, with weight 1."""

    def extend(self, values: Sequence[tuple[Term, ...]]) -> None:
        self._extend([[(1, term) for term in terms] for terms in values])


class PreferredTerms(TermIndex):
    """Terms of `preferred_terms` values."""

    def extend(self, values: Sequence[tuple[tuple[int, Term], ...]]) -> None:
        self._extend(values)


class Namespaces:
    """The namespaces of terms, by name and by selector."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[str, ...], Selector], int] = {}
        self._named: Numbered[str] = Numbered()
        self._selectors = SelectorIndex()

    def number(self, term: Term) -> int:
        """The number of a term's namespaces."""
        about = (term.namespaces, term.namespace_selector)
        number = self._numbers.get(about)
        if number is None:
            number = self._numbers[about] = len(self._numbers)
            for name in term.namespaces:
                self._named.add(name, number)
            self._selectors.extend([term.namespace_selector])
        return number

    def reaching(self, name: str, labels: Mapping[str, str], known: Mask | None = None) -> Mask:
        """Whether each set of namespaces contains a namespace; `known` is an earlier answer to extend."""
        if known is not None and len(known) >= len(self._numbers):
            return known
        selecting = self._selectors.selecting(labels)
        out = np.zeros(len(self._numbers), np.bool_)
        out[selecting] = True
        named = self._named.get(name, len(out))
        if named is not None:
            out[named] = True
        return out
