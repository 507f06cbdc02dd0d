"""Existing workloads that are replaced on trial: their running pods stay, up to the new number of pods.

A state has the pods and PodGroups of workloads and not the workloads themselves, which are known by kind and name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.crds import PodGroup
from stromboli.state.cluster import ClusterState
from stromboli.state.pods import GROUP_ANNOTATION, PodRecord
from stromboli.workloads import known_kinds
from stromboli.workloads.daemons import node_of_daemon
from stromboli.workloads.groups import ROLE_ANNOTATION
from stromboli.workloads.paths import Object, text


class Standing:
    """The PodGroups and pods of an existing workload."""

    def __init__(self, name: tuple[str, str], groups: list[PodGroup], pods: Mapping[str, list[PodRecord]]) -> None:
        """`name` is its kind and name, and `pods` are those that there are, by the key of their PodGroup."""
        self._name = name
        self._groups = groups
        self._pods = pods

    def removed(self) -> Iterator[tuple[str, str]]:
        """Kind and key of all objects that are removed with it."""
        for group in self._groups:
            yield "PodGroup", group.key
            yield from (("Pod", pod.key) for pod in self._pods.get(group.key, ()))

    def continued(self, made: list[tuple[str, Any]]) -> tuple[list[tuple[str, Any]], list[tuple[str, str]]]:
        """Objects to add, adjusted to existing ones that stay; and kind and key of objects to remove."""
        anew = [obj for kind, obj in made if kind == "PodGroup" and self._name in obj.owners]
        stands = dict(self._pairs(anew))
        kept = {("PodGroup", group.key) for group in stands.values()}
        found: list[tuple[str, Any]] = []
        wanted: defaultdict[tuple[str, str, str], list[objects.Pod]] = defaultdict(list)
        for kind, obj in made:
            group = stands.get(_group_of(kind, obj))
            if group is None:
                found.append((kind, obj))
            elif kind == "PodGroup":
                found.append((kind, _in_place_of(group, obj)))
            else:
                wanted[group.key, _role(obj), node_of_daemon(obj.spec)].append(_in_group(obj, group))
        for (key, role, node), pods in wanted.items():
            stay = [pod.key for pod in self._running(key, role, node)[: len(pods)]]
            kept.update(("Pod", each) for each in stay)
            others = [pod for pod in pods if pod.metadata.key not in stay]
            found += [("Pod", pod) for pod in others[: len(pods) - len(stay)]]
        return found, [each for each in self.removed() if each not in kept]

    def _pairs(self, anew: Iterable[PodGroup]) -> Iterator[tuple[str, PodGroup]]:
        """The existing group for each key of one that would be made: of the same part of the workload."""
        new, parts = list(anew), {_part(group): group for group in self._groups}
        for group in new:
            only = self._groups[0] if len(new) == len(self._groups) == 1 else None
            there = parts.get(_part(group)) or only
            if there is not None:
                yield group.key, there

    def _running(self, group: str, role: str, node: str) -> list[PodRecord]:
        """The pods of a role in a group that are on a node, or on any where none is named."""
        pods = (pod for pod in self._pods.get(group, ()) if pod.role == role and pod.node_name)
        pods = (pod for pod in pods if not node or pod.node_name == node)
        return sorted(pods, key=lambda pod: (pod.index, pod.name))


class Workloads:
    """The workloads of a state."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    def of(self, manifest: Object) -> Standing | None:
        """The existing workload of a manifest; None if it is no workload, or does not exist."""
        kind, namespace = known_kinds().of(manifest), text(manifest, "metadata.namespace") or "default"
        if kind is None or kind.row.kind in ("Pod", "PodGroup"):
            # Nothing is made of these.
            return None
        name = kind.row.kind, text(manifest, "metadata.name")
        groups = self._groups.get((namespace, *name))
        return Standing(name, groups, self._pods) if groups else None

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str, str], list[PodGroup]]:
        found: defaultdict[tuple[str, str, str], list[PodGroup]] = defaultdict(list)
        for group in filter(None, self.state.jobs.pod_groups):
            for name in set(group.owners):
                found[(group.metadata.namespace, *name)].append(group)
        return found

    @cached_property
    def _pods(self) -> Mapping[str, list[PodRecord]]:
        found: defaultdict[str, list[PodRecord]] = defaultdict(list)
        for pod in self.state.pods.records:
            if pod is not None:
                found[pod.job].append(pod)
        return found


def _group_of(kind: str, obj: Any) -> str:
    """The key of the PodGroup that an object is or is in."""
    if kind == "PodGroup":
        return str(obj.key)
    name = (obj.metadata.annotations or {}).get(GROUP_ANNOTATION, "") if kind == "Pod" else ""
    return f"{obj.metadata.namespace}/{name}" if name else ""


def _part(group: PodGroup) -> str:
    """Suffix of a group's name, which identifies its gang in the workload."""
    owners = group.metadata.owner_references
    return group.metadata.name.removeprefix(f"podgroup-{owners[0].get('uid') if owners else ''}")


def _role(pod: objects.Pod) -> str:
    return (pod.metadata.annotations or {}).get(ROLE_ANNOTATION, "")


def _in_place_of(group: PodGroup, anew: PodGroup) -> PodGroup:
    """An existing group, updated to the one that would be made."""
    metadata = group.metadata.model_copy(update={"annotations": anew.metadata.annotations})
    return anew.model_copy(update={"metadata": metadata, "status": group.status})


def _in_group(pod: objects.Pod, group: PodGroup) -> objects.Pod:
    annotations = {**(pod.metadata.annotations or {}), GROUP_ANNOTATION: group.metadata.name}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
