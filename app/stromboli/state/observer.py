"""Observers, such as the journal, are notified of changes in a state."""

from __future__ import annotations

from typing import Any

from stromboli.api.crds import PodGroup
from stromboli.state.nodes import NodeRecord
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot


class Observer:
    """Is notified of each change of a `ClusterState` after it took effect, in the thread that made it.

    Events that change nothing, such as heartbeats of nodes, cause no notification. Each method does nothing until it is
    overridden; none may change the state, and an error aborts the event.
    """

    def pod_put(self, before: PodRecord | None, now: PodRecord, state: int, *, stays: bool) -> None:
        """A pod was added or changed; `stays` says that its state, class and node are unchanged."""

    def pod_gone(self, row: int) -> None:
        """The pod in a row was deleted."""

    def pod_assumed(self, row: int, node: str) -> None:
        """A pod counts on a node before its binding is confirmed."""

    def pod_forgotten(self, row: int) -> None:
        """An assumed binding was given up: the pod is pending again."""

    def node_put(self, record: NodeRecord) -> None:
        """A node was added or changed."""

    def object_put(self, kind: str, before: PodGroup | None, now: Any) -> None:
        """An object of another kind was added or changed; `before` is the previous version of a PodGroup."""

    def object_gone(self, kind: str, key: str) -> None:
        """A node or an object of another kind was deleted; it may never have been known."""

    def snapshot_taken(self, snapshot: Snapshot) -> None:
        """A snapshot was taken that includes all changes reported so far."""


#: for a state without an observer
UNOBSERVED = Observer()
