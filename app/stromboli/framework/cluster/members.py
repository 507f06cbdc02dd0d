"""Which nodes HyperNodes name themselves, followed from session to session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from stromboli.api import crds, patterns
from stromboli.api.resources import Mask, Rows
from stromboli.state.nodes import NodeFacts
from stromboli.state.selectors import of_model

#: the rows of some nodes by name
_Nodes = Mapping[str, int]


@dataclass(slots=True, eq=False)
class Members:
    """The nodes that one HyperNode names itself."""

    spec: crds.HyperNodeSpec
    exact: frozenset[str]
    searches: list[Callable[[str], object]]
    labels: list[crds.LabelSelector]
    #: problems of its members, a line each
    problems: list[str]
    #: the nodes that it names in other ways than by labels
    named: Rows

    @classmethod
    def read(cls, hyper_node: crds.HyperNode, facts: NodeFacts) -> Members:
        """Read the members that a HyperNode names."""
        exact, searches, labels, problems = set[str](), [], [], []
        for member in hyper_node.spec.members:
            selector = member.selector
            if member.type != "Node":
                continue
            if selector.exact_match is not None:
                exact.add(selector.exact_match.name)
            elif selector.regex_match is not None:
                try:
                    searches.append(patterns.compiled(selector.regex_match.pattern).search)
                except ValueError as error:
                    problems.append(f"HyperNode {hyper_node.metadata.name}: {error}")
            elif selector.label_match is not None:
                labels.append(selector.label_match)
        found = cls(hyper_node.spec, frozenset(exact), searches, labels, problems, np.zeros(0, np.intp))
        found.named = found._naming(facts.index)
        return found

    def among(self, rows: Rows, new: _Nodes) -> Members:
        """The members after nodes came, went or moved: the row of each old node, -1 for none, and new nodes."""
        kept = rows[self.named]
        named = np.union1d(kept[kept >= 0], self._naming(new))
        return Members(self.spec, self.exact, self.searches, self.labels, self.problems, named)

    def nodes(self, facts: NodeFacts) -> Rows:
        """All of them, in ascending order."""
        if not self.labels:
            return self.named
        mask = np.zeros(len(facts), np.bool_)
        mask[self.named] = True
        for selector in self.labels:
            mask |= _labelled(selector, facts)
        return np.flatnonzero(mask)

    def _naming(self, nodes: _Nodes) -> Rows:
        """The nodes that it names, in ascending order."""
        found = {nodes[name] for name in self.exact & nodes.keys()}
        for search in self.searches:
            found.update(row for name, row in nodes.items() if search(name) is not None)
        return np.array(sorted(found), np.intp)


def members_of(
    ordered: list[crds.HyperNode], facts: NodeFacts, before: Mapping[str, Members], of: NodeFacts | None
) -> dict[str, Members]:
    """The members by HyperNode name, reusing those found `before`, with the nodes `of` then, where possible."""
    if of is None or of.index is facts.index:
        moved = None
    else:
        moved = np.fromiter(map(facts.index.get, of.index, repeat(-1)), np.intp, len(of.index))
        new = {name: facts.index[name] for name in facts.index.keys() - of.index.keys()}
    found = {}
    for hyper_node in ordered:
        name = hyper_node.metadata.name
        known = before.get(name)
        if known is None or (known.spec is not hyper_node.spec and known.spec != hyper_node.spec):
            found[name] = Members.read(hyper_node, facts)
        else:
            found[name] = known if moved is None else known.among(moved, new)
    return found


def _labelled(selector: crds.LabelSelector, facts: NodeFacts) -> Mask:
    requirements = of_model(selector).requirements
    mask = np.full(len(facts), bool(requirements))
    for requirement in requirements:
        mask &= requirement.mask(facts)
    return mask
