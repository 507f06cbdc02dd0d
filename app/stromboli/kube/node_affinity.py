"""Node selectors and node affinity."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from stromboli.api import objects
from stromboli.api.reasons import Passage
from stromboli.api.resources import Mask, Vector
from stromboli.api.words import first_few
from stromboli.state.nodes import NodeFacts
from stromboli.state.selectors import Requirement, requirement

#: the number of existing values of a label named in place of one that no node has
_MOST_NAMED = 3


def required_nodes(spec: objects.PodSpec, facts: NodeFacts) -> Mask | None:
    """The nodes that nodeSelector and required node affinity admit, shape (nodes,); None when they are all."""
    masks = [Requirement(k, "In", frozenset((v,))).mask(facts) for k, v in (spec.node_selector or {}).items()]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is not None and affinity.required is not None:
        masks.append(selected_nodes(affinity.required, facts))
    return reduce(np.logical_and, masks) if masks else None


def unmatched(spec: objects.PodSpec, facts: NodeFacts) -> Passage:
    """The labels that a pod requires and no node has, with nodes' similar ones. Nodes are for everyone to know."""
    missing = dict.fromkeys(
        f"no node has {words}{_instead(wanted, facts)}"
        for wanted, words in _wanted(spec)
        if not wanted.mask(facts).any()
    )
    return Passage((), "; ".join(missing), "")


def label_values(key: str, facts: NodeFacts) -> list[str]:
    """The values that nodes have of a label, in order."""
    return sorted({record.labels[key] for record in facts.records if key in record.labels})


def _wanted(spec: objects.PodSpec) -> Iterator[tuple[Requirement, str]]:
    """The requirements of a pod on its node's labels, each in words."""
    for key, value in (spec.node_selector or {}).items():
        yield Requirement(key, "In", frozenset((value,))), f"{key}: {value}"
    affinity = spec.affinity.node_affinity if spec.affinity else None
    for term in (affinity.required.node_selector_terms if affinity and affinity.required else None) or ():
        for each in term.match_expressions or ():
            wanted = requirement(each)
            words = _WANTED.get(each.operator)
            if words is not None and wanted.is_valid:
                yield wanted, words.format(each.key, " or ".join(each.values or ()))


#: words for a requirement, by its operator
_WANTED = {"In": "{}: {}", "Gt": "{} above {}", "Lt": "{} below {}", "Exists": "the label {}"}


def _instead(wanted: Requirement, facts: NodeFacts) -> str:
    if wanted.operator == "Exists":
        return ""
    there = label_values(wanted.key, facts)
    return f" (nodes have {first_few(there, _MOST_NAMED)})" if there else " (or any other value of that label)"


def selected_nodes(selector: objects.NodeSelector, facts: NodeFacts, *, labels_only: bool = False) -> Mask:
    """The nodes that at least one term selects, shape (nodes,).

    With `labels_only` the fields of terms are ignored, as kube-scheduler does for volumes.
    """
    out = np.zeros(len(facts), np.bool_)
    for term in selector.node_selector_terms or ():
        mask = term_nodes(term, facts, labels_only=labels_only)
        if mask is not None:
            out |= mask
    return out


def preference(spec: objects.PodSpec, facts: NodeFacts) -> Vector | None:
    """The sum of the weights of the preferred terms that select each node, shape (nodes,); None without terms."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or not affinity.preferred:
        return None
    out = np.zeros(len(facts))
    for preferred in affinity.preferred:
        mask = term_nodes(preferred.preference, facts)
        if mask is not None:
            out += preferred.weight * mask
    return out


def term_nodes(term: objects.NodeSelectorTerm, facts: NodeFacts, *, labels_only: bool = False) -> Mask | None:
    """The nodes that a term selects, shape (nodes,); None when it is empty or invalid and so selects none."""
    expressions = [requirement(raw) for raw in term.match_expressions or ()]
    fields = [requirement(raw) for raw in term.match_fields or ()]
    if not expressions and not fields:
        return None
    if not all(r.is_valid for r in expressions) or not all(map(_is_field, fields)):
        return None
    masks = [r.mask(facts) for r in expressions] + [_by_name(r, facts) for r in fields if not labels_only]
    return reduce(np.logical_and, masks, np.ones(len(facts), np.bool_))


def _is_field(field: Requirement) -> bool:
    return field.key == "metadata.name" and field.operator in ("In", "NotIn") and len(field.values) == 1


def _by_name(field: Requirement, facts: NodeFacts) -> Mask:
    named = np.zeros(len(facts), np.bool_)
    for name in field.values:
        if name in facts.index:
            named[facts.index[name]] = True
    return ~named if field.operator == "NotIn" else named
