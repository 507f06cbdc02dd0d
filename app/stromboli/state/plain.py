"""Objects of kinds that only plugins read, as plain data by key, and which of them differ from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: changes that are remembered, beyond as many as there are objects
_SLACK = 1_000


class PlainObjects(dict[str, Any]):
    """The objects of a kind in one snapshot. They are shared and not changed."""

    __slots__ = ("_at", "_changes")

    def __init__(self, objects: Mapping[str, Any], changes: list[str]) -> None:
        """`changes` are the keys that changed until now; more are added by and by."""
        super().__init__(objects)
        self._changes = changes
        self._at = len(changes)

    def changes_since(self, before: Mapping[str, Any]) -> list[str] | None:
        """The keys that changed between an earlier snapshot and this one; None when nobody knows."""
        if not isinstance(before, PlainObjects) or before._changes is not self._changes:
            return None
        return list(dict.fromkeys(self._changes[before._at : self._at]))

    def is_long(self) -> bool:
        """Whether more changes are remembered than it takes to look at all objects."""
        return self._at > len(self) + _SLACK


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys whose object is not the one from before, and of those that are gone."""
    if before is now:
        return []
    keys = now.changes_since(before) if isinstance(now, PlainObjects) else None
    if keys is not None:
        return [key for key in keys if before.get(key) is not now.get(key)]
    if before == now:
        return []
    changed = [key for key, obj in now.items() if before.get(key) is not obj]
    if len(before) + sum(key not in before for key in changed) != len(now):
        changed += [key for key in before if key not in now]
    return changed
