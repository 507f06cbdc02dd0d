"""Which resources have a column: those that nodes have or queues are limited in, whatever else pods ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from stromboli.api.resources import is_scheduled
from stromboli.state.nodes import NodeRecord


class ResourceNames:
    """Counts by how many nodes and limits of queues each resource is named, in order of appearance."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: Counter[str] = Counter()

    def copy(self) -> ResourceNames:
        """An independent copy."""
        out = ResourceNames()
        out._named = self._named.copy()
        return out

    @property
    def names(self) -> Iterable[str]:
        """The names of the resources that have a column."""
        return self._named.keys()

    def change(self, before: Iterable[str], after: Iterable[str]) -> bool:
        """A node or queue names other resources than before. Returns whether other resources are offered now."""
        old, new = (dict.fromkeys(filter(is_scheduled, names)) for names in (before, after))
        known = len(self._named)
        self._named.update(name for name in new if name not in old)
        changed = len(self._named) > known
        for name in old.keys() - new.keys():
            self._named[name] -= 1
            if not self._named[name]:
                del self._named[name]
                changed = True
        return changed


def resources_of(kind: str, obj: Any) -> Iterable[str]:
    """The resources that a node has or a queue is limited in; none for other kinds."""
    if kind == "Node":
        return obj.status.allocatable or ()
    return (obj.spec.capability or ()) if kind == "Queue" else ()


def allocatable_of(node: NodeRecord | None) -> Iterable[str]:
    """The resources that a node has; none when it is not known."""
    return node.allocatable if node is not None else ()
