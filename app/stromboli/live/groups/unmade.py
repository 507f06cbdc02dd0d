"""Knows why pods have no PodGroup yet: their owner cannot be read, or the API server refuses it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class _Missing(NamedTuple):
    why: str
    #: the keys of the workloads of its pods: their controller, its controller, and the object that a label names
    workloads: Collection[str]


class Unmade:
    """PodGroups that could not be made, by the uid of their pods' controller."""

    def __init__(self) -> None:
        self._missing: dict[str, _Missing] = {}

    def put(self, uid: str, why: str, workloads: Collection[str]) -> None:
        """The PodGroup for the pods of workloads, by key, could not be made."""
        self._missing[uid] = _Missing(why, workloads)

    def forget(self, uid: str) -> None:
        """Forget a group that was made, or whose pods are gone."""
        self._missing.pop(uid, None)

    def of(self, uid: str) -> str:
        """Why the pods of a controller have no PodGroup; empty if no reason is known."""
        return self._missing[uid].why if uid in self._missing else ""

    def of_workload(self, key: str) -> str:
        """Why the pods of a workload have no PodGroup; empty if no reason is known."""
        return next((each.why for each in self._missing.values() if key in each.workloads), "")
