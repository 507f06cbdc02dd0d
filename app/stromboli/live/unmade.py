"""Knows why pods have no PodGroup yet: their owner cannot be read, or the API server refuses it."""

from __future__ import annotations

from stromboli.api import objects


class Unmade:
    """PodGroups that could not be made, by the uid of what manages their pods."""

    def __init__(self) -> None:
        #: one of the pods, and why
        self._why: dict[str, tuple[objects.Pod, str]] = {}

    def put(self, uid: str, pod: objects.Pod, why: str) -> None:
        """The PodGroup for a pod could not be made."""
        self._why[uid] = pod, why

    def forget(self, uid: str) -> None:
        """It was made, or its pods are gone."""
        self._why.pop(uid, None)

    def of(self, uid: str) -> str:
        """Why there is none for the pods of a manager; empty where none is known."""
        return self._why[uid][1] if uid in self._why else ""

    def of_workload(self, key: str) -> str:
        """Why there is none for a workload, which manages pods or is named as what cannot be read; empty for others."""
        namespace, _, name = key.partition("/")
        for pod, why in self._why.values():
            managed = any(each.name == name for each in pod.metadata.owner_references or ())
            if f" {key}: " in why or (managed and (pod.metadata.namespace or "default") == namespace):
                return why
        return ""
