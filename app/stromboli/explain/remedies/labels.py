"""Remedies for labels of nodes that a pod asks for: corrected where they are misspelt, given up, or given to a node."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.validation import nearest
from stromboli.explain.rehearsal import node_of
from stromboli.explain.remedies.case import Candidate, Case
from stromboli.explain.remedies.changes import put_node, respec

#: prefixes of labels that only kubelets and cloud providers set
_SET_BY_NODES = ("kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/")
#: least similarity of values of one label, of 1
_LIKE = 0.5
#: least similarity of keys of labels: most have a domain in common
_SAME_KEY = 0.8
#: labels whose values are no matter of taste: what a pod's image is made for
_OF_IMAGES = {
    "kubernetes.io/arch": frozenset(("386", "amd64", "arm", "arm64", "ppc64le", "riscv64", "s390x")),
    "kubernetes.io/os": frozenset(("linux", "windows")),
}


def labels(case: Case) -> Iterator[Candidate]:
    """A selector's or a required affinity's labels: those that no node has first."""
    there: dict[str, set[str]] = {}
    for record in case.session.view.nodes.facts.records:
        for key, value in record.labels.items():
            there.setdefault(key, set()).add(value)
    yield from _corrected_affinity(case, there)
    yield from _selector(case, there)


def _selector(case: Case, there: dict[str, set[str]]) -> Iterator[Candidate]:
    wanted = case.pods[0].pod_class.spec.node_selector or {}
    for key, value in list(wanted.items()):
        if value in _OF_IMAGES.get(key, ()):
            yield from _node_with(case, key, value)
            continue
        rest = {other: of for other, of in wanted.items() if other != key}
        right = meant(key, value, there)
        if right is not None:
            words = f"correct {key}: {value} to {_pair(key, right)} in nodeSelector"
            yield Candidate(words, "user", respec(case, node_selector={**rest, right[0]: right[1]}))
        words = f"drop {key}: {value} from nodeSelector{_or_class(case)}"
        yield Candidate(words, "user", respec(case, node_selector=rest))
        node = next((record for record in case.session.view.nodes.facts.records if not record.unschedulable), None)
        if node is not None and right is None and not key.startswith(_SET_BY_NODES):
            labelled = node_of(node)
            meta = replace(labelled.metadata, labels={**(labelled.metadata.labels or {}), key: value})
            words = f"label node {node.name} with {key}={value}"
            yield Candidate(words, "admin", put_node(replace(labelled, metadata=meta)))
    if len(wanted) > 1:
        yield Candidate("drop nodeSelector", "user", respec(case, node_selector=None))


def _or_class(case: Case) -> str:
    """The RuntimeClass of pods, which may have added what they select; empty for none."""
    named = case.pods[0].pod_class.spec.runtime_class_name
    return f", or runtimeClassName: {named} where that adds it" if named else ""


def _node_with(case: Case, key: str, value: str) -> Iterator[Candidate]:
    """A node like an existing one, except for a label that kubelets set."""
    for record in case.session.view.nodes.facts.records:
        if record.labels.get(key) != value:
            node = node_of(record)
            name = f"{record.name}-{value}"
            named = {**(node.metadata.labels or {}), key: value, "kubernetes.io/hostname": name}
            meta = replace(node.metadata, name=name, uid=name, labels=named)
            yield Candidate(f"add 1 node with {key}: {value}", "admin", put_node(replace(node, metadata=meta)))
            return


def corrected_joining(case: Case) -> Iterator[Candidate]:
    """The first required term of a pod affinity with labels of pods in place of those that no pod has."""
    affinity = case.pods[0].pod_class.spec.affinity
    joining = affinity.pod_affinity if affinity else None
    if affinity is None or joining is None or not joining.required:
        return
    term, *others = joining.required
    selector = term.label_selector
    there: dict[str, set[str]] = {}
    for record in case.session.view.pods.records:
        for key, value in record.labels.items() if record is not None else ():
            there.setdefault(key, set()).add(value)
    for key, value in ((selector.match_labels if selector else None) or {}).items():
        right = meant(key, value, there)
        if right is None or selector is None:
            continue
        rest = {other: of for other, of in (selector.match_labels or {}).items() if other != key}
        meaning = replace(term, label_selector=replace(selector, match_labels={**rest, right[0]: right[1]}))
        changed = replace(affinity, pod_affinity=replace(joining, required=[meaning, *others]))
        words = f"correct {key}: {value} to {_pair(key, right)} in the required pod affinity"
        yield Candidate(words, "user", respec(case, affinity=changed))


def corrected_spread(case: Case) -> Iterator[Candidate]:
    """The topology spread constraints with labels of nodes in place of those that no node has."""
    constraints = case.pods[0].pod_class.spec.topology_spread_constraints or []
    there = sorted({key for record in case.session.view.nodes.facts.records for key in record.labels})
    right = {
        each.topology_key: nearest(each.topology_key, there, _SAME_KEY)
        for each in constraints
        if each.topology_key not in there
    }
    right = {wrong: near for wrong, near in right.items() if near}
    if right:
        changed = [replace(each, topology_key=right.get(each.topology_key, each.topology_key)) for each in constraints]
        words = " and ".join(f"topologyKey: {wrong} to {near}" for wrong, near in right.items())
        words = f"correct {words} in the topology spread constraints"
        yield Candidate(words, "user", respec(case, topology_spread_constraints=changed))


def _corrected_affinity(case: Case, there: dict[str, set[str]]) -> Iterator[Candidate]:
    """The required node affinity with the labels that no node has replaced by those that were probably meant."""
    affinity = case.pods[0].pod_class.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if affinity is None or affinity.node_affinity is None or required is None:
        return
    said: dict[str, None] = {}

    def corrected(requirement: objects.Requirement) -> objects.Requirement:
        key, values = requirement.key, requirement.values or []
        right = meant(key, values[0], there) if requirement.operator == "In" and len(values) == 1 else None
        if right is None:
            return requirement
        said[f"correct {key}: {values[0]} to {_pair(key, right)} in the required node affinity"] = None
        return replace(requirement, key=right[0], values=[right[1]])

    terms = [
        replace(term, match_expressions=[corrected(each) for each in term.match_expressions or ()])
        for term in required.node_selector_terms or ()
    ]
    if said:
        of_nodes = replace(affinity.node_affinity, required=replace(required, node_selector_terms=terms))
        yield Candidate(" and ".join(said), "user", respec(case, affinity=replace(affinity, node_affinity=of_nodes)))


def meant(key: str, value: str, there: dict[str, set[str]]) -> tuple[str, str] | None:
    """The existing label that a missing one was probably meant to be."""
    values = there.get(key)
    if values is None:
        other = nearest(key, sorted(there))
        return (other, value) if other and value in there[other] else None
    # For an existing label, only a very similar value was likely meant.
    near = "" if value in values else nearest(value, sorted(values), _LIKE)
    return (key, near) if near else None


def _pair(wrong: str, right: tuple[str, str]) -> str:
    """The right label, its value alone where the key was right."""
    return right[1] if right[0] == wrong else f"{right[0]}: {right[1]}"
