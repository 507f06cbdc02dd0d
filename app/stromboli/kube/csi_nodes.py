"""CSINodes: limits and capabilities of storage drivers on nodes, kept from session to session while unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from stromboli.api.resources import Mask, Vector
from stromboli.kube.storage import CSINode
from stromboli.state.columns import Column
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.snapshot import Snapshot

#: number of volumes of each driver that a node takes; infinite without a limit
_Drivers = tuple[tuple[str, float], ...]
_NOTHING: frozenset[str] = frozenset()


def csi_nodes(snapshot: Snapshot) -> CsiNodes:
    """The CSINodes of a snapshot."""
    before = cast("CsiNodes | None", snapshot.derived.get(CsiNodes))
    plain = snapshot.objects.get("CSINode", NO_OBJECTS)
    if before is not None and not plain.changed_since(before.plain):
        return before
    found = snapshot.derived[CsiNodes] = CsiNodes(plain, before)
    return found


class CsiNodes:
    """The CSINodes of one snapshot; objects that are unchanged since `before` are not read again."""

    def __init__(self, plain: PlainObjects, before: CsiNodes | None) -> None:
        self.plain = plain
        self._drivers: dict[str, _Drivers] = {} if before is None else before._drivers.copy()
        #: CSINodes by name of the node
        self._plugins: dict[str, frozenset[str]] = {} if before is None else before._plugins.copy()
        for name in plain.changed_since(NO_OBJECTS if before is None else before.plain):
            self._drivers.pop(name, None)
            self._plugins.pop(name, None)
            if name in plain:
                node = plain.read(name, CSINode)
                self._drivers[name] = _drivers(node)
                if node.migrated:
                    self._plugins[name] = node.migrated
        #: the nodes of the last query, and its answer
        self._known: tuple[NodeFacts, Mapping[str, Vector]] | None = None
        self._migrated: dict[str, tuple[NodeFacts, Mask]] = {}

    def limits(self, facts: NodeFacts) -> Mapping[str, Vector]:
        """Number of volumes that each node takes, by driver, shape (nodes,): infinite without a limit, NaN
        without driver."""
        known = self._known
        if known is None or known[0] is not facts:
            known = self._known = facts, self._of_nodes(facts)
        return known[1]

    def present(self, facts: NodeFacts) -> Mask:
        """The nodes that have a CSINode, shape (nodes,)."""
        return np.array([record.name in self._drivers for record in facts.records], np.bool_)

    def migrated(self, plugin: str, facts: NodeFacts) -> Mask:
        """The nodes whose driver has taken over an in-tree plugin's volumes, shape (nodes,)."""
        known = self._migrated.get(plugin)
        if known is None or known[0] is not facts:
            found = (self._plugins.get(record.name, _NOTHING) for record in facts.records)
            known = self._migrated[plugin] = facts, np.array([plugin in plugins for plugins in found], np.bool_)
        return known[1]

    def _of_nodes(self, facts: NodeFacts) -> Mapping[str, Vector]:
        listed = [self._drivers.get(record.name, ()) for record in facts.records]
        column = Column.read(listed, tuple, None, np.full(len(listed), -1))
        kinds = [dict(drivers) for drivers in column.values]
        names = dict.fromkeys(name for kind in kinds for name in kind)
        return {name: np.array([kind.get(name, np.nan) for kind in kinds])[column.numbers] for name in names}


def _drivers(node: CSINode) -> _Drivers:
    counts = ((each.name, each.allocatable.count if each.allocatable else None) for each in node.spec.drivers or ())
    return tuple((name, np.inf if count is None else count) for name, count in counts)
