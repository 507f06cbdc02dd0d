"""Knows the workloads that are suspended: most have neither pods nor a PodGroup, so that sessions see nothing."""

from __future__ import annotations

from stromboli.api import keys
from stromboli.live.client import Object
from stromboli.workloads import Kinds
from stromboli.workloads.gangs import suspended
from stromboli.workloads.paths import text


class Suspended:
    """The workloads that are suspended, as far as they are watched."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        #: what is said of each, by uid within each key
        self._told: dict[str, dict[str, str]] = {}

    def seen(self, owner: Object) -> None:
        """Take a workload that is there."""
        kind = self._kinds.of(owner)
        told = suspended(owner, kind.row) if kind is not None else ""
        if told:
            self._told.setdefault(_key(owner), {})[text(owner, "metadata.uid")] = told
        else:
            self.gone(owner)

    def gone(self, owner: Object) -> None:
        """Forget a workload that was deleted."""
        of_name = self._told.get(_key(owner), {})
        of_name.pop(text(owner, "metadata.uid"), None)
        if not of_name:
            self._told.pop(_key(owner), None)

    def why(self, key: str) -> str:
        """That the workload of a key is suspended; empty if none is."""
        return next(iter(self._told.get(key, {}).values()), "")


def _key(owner: Object) -> str:
    return keys.key(text(owner, "metadata.namespace"), text(owner, "metadata.name"))
