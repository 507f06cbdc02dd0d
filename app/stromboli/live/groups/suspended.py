"""Knows the workloads that are suspended or lack pods: most have no PodGroup either, so that sessions see nothing."""

from __future__ import annotations

from collections import defaultdict

from stromboli.live.api_server.client import Object
from stromboli.state.cluster import object_key
from stromboli.workloads import Kind, Kinds
from stromboli.workloads.gangs import suspended, unmade
from stromboli.workloads.paths import text


class Suspended:
    """The watched workloads that are suspended or whose controllers create no pods."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        #: the key of each workload and its problem, by uid within its kind
        self._told: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)

    def seen(self, owner: Object) -> None:
        """Take an existing workload."""
        kind = self._kinds.of(owner)
        told = suspended(owner, kind.row) or unmade(owner) if kind is not None else ""
        if kind is not None and told:
            self._told[kind.name][text(owner, "metadata.uid")] = object_key(owner), told
        else:
            self.gone(owner)

    def gone(self, owner: Object) -> None:
        """Forget a workload that was deleted."""
        kind = self._kinds.of(owner)
        if kind is not None:
            self._told[kind.name].pop(text(owner, "metadata.uid"), None)

    def listed(self, kind: Kind) -> None:
        """A new list of all workloads of a kind begins: some may have been deleted unseen."""
        self._told.pop(kind.name, None)

    def why(self, key: str) -> str:
        """Why the workload of a key has no pods; empty for others."""
        return next((told for of in self._told.values() for known, told in of.values() if known == key), "")
