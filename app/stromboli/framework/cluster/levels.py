"""HyperNodes that follow from the labels of nodes, by the policy's `topology.levels`.

Nodes that agree in the labels of a level and of all wider ones make a domain: rack 1 of zone a is not rack 1 of zone b.
A node without the label of a level is in no domain of that level, nor of narrower ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np

from stromboli.api import crds
from stromboli.state.nodes import NodeFacts, NodeRecord
from stromboli.state.snapshot import Snapshot

#: label values, the widest level first
_Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """HyperNodes with the inputs that they were derived from."""

    labels: _Path
    facts: NodeFacts
    #: where there are nodes
    paths: frozenset[_Path]
    hyper_nodes: Mapping[str, crds.HyperNode]


def with_levels(snapshot: Snapshot, labels: tuple[str, ...]) -> Snapshot:
    """The snapshot, its HyperNodes replaced by those of some levels, given the widest first."""
    if not labels:
        return snapshot
    facts, known = snapshot.nodes.facts, cast("_Known | None", snapshot.derived.get(_Known))
    if known is None or known.labels != labels or known.facts is not facts:
        paths = _paths(facts, labels)
        before = known if known is not None and known.labels == labels else None
        same = before is not None and before.paths == paths
        hyper_nodes = before.hyper_nodes if before is not None and same else dict(_hyper_nodes(labels, paths, before))
        known = snapshot.derived[_Known] = _Known(labels, facts, paths, hyper_nodes)
    return replace(snapshot, hyper_nodes=known.hyper_nodes, levels=len(labels))


def _paths(facts: NodeFacts, labels: tuple[str, ...]) -> frozenset[_Path]:
    """The domains that nodes are in, each as its path."""

    def path(record: NodeRecord) -> _Path | None:
        values = [record.labels.get(label) for label in labels]
        return tuple(value for value in values[: (*values, None).index(None)] if value is not None) or None

    column = facts.column(("levels", labels), path)
    lowest = (column.values[number] for number in np.unique(column.numbers) if number >= 0)
    return frozenset(path[:depth] for path in lowest for depth in range(1, len(path) + 1))


def _hyper_nodes(
    labels: tuple[str, ...], paths: frozenset[_Path], before: _Known | None
) -> Iterator[tuple[str, crds.HyperNode]]:
    """A HyperNode for each domain, reused from `before` if it has the same members.

    Its name is unique: a path with a slash for each wider level.
    """
    below: dict[_Path, list[_Path]] = {path: [] for path in paths}
    for path in sorted(paths):
        if len(path) > 1:
            below[path[:-1]].append(path)
    known = before.paths if before is not None else frozenset()
    changed = {path[:-1] for path in paths ^ known}
    for path, narrower in below.items():
        name = _name(path)
        if before is not None and path in known and path not in changed:
            yield name, before.hyper_nodes[name]
            continue
        selectors = (crds.MemberSelector(exact_match=crds.ExactMatch(name=_name(child))) for child in narrower)
        members = [crds.Member(type="HyperNode", selector=selector) for selector in selectors]
        nodes = crds.LabelSelector(match_labels=dict(zip(labels, path, strict=False)))
        own = crds.Member(type="Node", selector=crds.MemberSelector(label_match=nodes))
        tier = len(labels) - len(path) + 1
        spec = crds.HyperNodeSpec(tier=tier, tier_name=labels[len(path) - 1], members=[own, *members])
        yield name, crds.HyperNode(metadata=crds.Metadata(name=name), spec=spec)


def _name(path: _Path) -> str:
    return "/".join(path)
