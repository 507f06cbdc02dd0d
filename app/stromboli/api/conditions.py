"""Size of a pod's selectors: the number of conditions in its terms on nodes and on other pods."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api import objects


def on_pods(spec: objects.PodSpec) -> int:
    """The conditions on other pods, in affinity and spread; an empty selector counts as one."""
    return sum(map(_conditions, _pod_selectors(spec)))


def on_nodes(spec: objects.PodSpec) -> int:
    """The conditions on nodes, in node affinity and the node selector; an empty term counts as one."""
    return sum(_requirements(term) for term in _node_terms(spec)) + len(spec.node_selector or ())


def pod_terms(spec: objects.PodSpec) -> Iterator[objects.PodAffinityTerm]:
    """The terms of a pod's affinity and anti-affinity to other pods, required and preferred."""
    affinity = spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            yield from part.required or ()
            yield from (weighted.pod_affinity_term for weighted in part.preferred or ())


def _conditions(selector: objects.LabelSelector | None) -> int:
    """The conditions of a selector; an empty one counts as one."""
    if selector is None:
        return 1
    return 1 + len(selector.match_labels or ()) + len(selector.match_expressions or ())


def _requirements(term: objects.NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions or ()) + len(term.match_fields or ())


def _node_terms(spec: objects.PodSpec) -> Iterator[objects.NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is not None:
        if affinity.required is not None:
            yield from affinity.required.node_selector_terms or ()
        for weighted in affinity.preferred or ():
            yield weighted.preference


def _pod_selectors(spec: objects.PodSpec) -> Iterator[objects.LabelSelector | None]:
    """The selectors of a pod that apply to other pods."""
    for spread in spec.topology_spread_constraints or ():
        yield spread.label_selector
    for term in pod_terms(spec):
        yield term.label_selector
        if term.namespace_selector is not None:
            yield term.namespace_selector
