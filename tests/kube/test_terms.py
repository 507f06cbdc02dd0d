"""Which of many selectors and terms select a pod, against asking each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.resources import Mask
from stromboli.kube.terms import Namespaces, RequiredTerms, SelectorIndex, Term
from stromboli.state.selectors import EVERYTHING, NOTHING, Requirement, Selector
from tests.fuzz import tried

_VALUES = ["x", "y", "z"]
_requirements = st.builds(
    Requirement,
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.frozensets(st.sampled_from(_VALUES), min_size=1, max_size=2),
)
_selectors = st.lists(_requirements, max_size=4).map(lambda all_: Selector(tuple(all_))) | st.just(NOTHING)
_labels = st.dictionaries(st.sampled_from(["app", "tier", ""]), st.sampled_from(_VALUES))


@tried(20)
@given(st.lists(_selectors, max_size=6), st.lists(_selectors, max_size=6), _labels)
def test_selectors_that_select_labels(first: list[Selector], later: list[Selector], labels: dict[str, str]) -> None:
    index = SelectorIndex()
    index.extend(first)
    index.extend(later)
    expected = [number for number, selector in enumerate([*first, *later]) if selector.matches(labels)]
    assert sorted(index.selecting(labels).tolist()) == expected


_TEAMS = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
_terms = st.builds(
    Term,
    st.sampled_from([EVERYTHING, NOTHING, Selector((Requirement("app", "In", frozenset("x")),))]),
    st.sampled_from([(), ("a",), ("a", "b")]),
    st.sampled_from([EVERYTHING, NOTHING, Selector((Requirement("team", "In", frozenset("y")),))]),
    st.sampled_from(["host", "zone"]),
)


@tried(25)
@given(st.lists(st.lists(_terms, max_size=3).map(tuple), max_size=6), _labels, st.sampled_from(sorted(_TEAMS)))
def test_terms_that_select_a_pod_weigh_in_each_set_that_they_are_in(
    sets: list[Any], labels: dict[str, str], namespace: str
) -> None:
    index, known = RequiredTerms(), None

    def reaching(namespaces: Namespaces) -> Mask:
        nonlocal known
        known = namespaces.reaching(namespace, _TEAMS[namespace], known)
        return known

    for terms in sets:
        index.extend([terms])
        index.selecting(labels, reaching)

    def selects(term: Term) -> bool:
        among = namespace in term.namespaces or term.namespace_selector.matches(_TEAMS[namespace])
        return among and term.selector.matches(labels)

    found = dict(index.selecting(labels, reaching))
    for key in ("host", "zone"):
        weighing, weights = index.weights(found.get(key, np.zeros(0, np.intp)))
        expected = [sum(t.topology_key == key and selects(t) for t in terms) for terms in sets]
        assert dict(zip(weighing.tolist(), weights.tolist(), strict=True)) == {
            number: weight for number, weight in enumerate(expected) if weight
        }
