"""PodGroups by the names that people know: those of their workloads."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api.crds import PodGroup
from stromboli.workloads.groups import WORKLOAD_ANNOTATION, group_uid
from stromboli.workloads.said import MIN_MEMBER, QUEUE
from stromboli.workloads.table import known_kinds


def names_of(group: PodGroup) -> Iterator[tuple[str, str]]:
    """Kind and name of what owns a PodGroup, and of what owns that."""
    for owner in group.metadata.owner_references:
        yield str(owner.get("kind", "")), str(owner.get("name", ""))
    for listed in group.metadata.annotations.get(WORKLOAD_ANNOTATION, "").split(","):
        kind, slash, name = listed.partition("/")
        if slash:
            yield kind, name


def workload_of(group: PodGroup) -> str:
    """The workload of a PodGroup as people call it, `RayJob/train`; empty where it has none but a pod."""
    found = [f"{kind}/{name}" for kind, name in names_of(group) if kind != "Pod"]
    return found[-1] if found else ""


def in_queue(group: PodGroup, queue: str) -> str:
    """What people change so that a PodGroup is in another queue: what owns it would undo a change of it."""
    for owner in group.metadata.owner_references:
        version, kind, name = (str(owner.get(key, "")) for key in ("apiVersion", "kind", "name"))
        known = known_kinds().get(version, kind)
        if kind == "Pod" or not (known or group_uid(group.metadata.name)):
            continue
        if known is not None and known.row.queue:
            return f"set {known.row.queue}: {queue} in {kind} {group.metadata.namespace}/{name}"
        return f"set the annotation {QUEUE[0]}: {queue} on {kind} {group.metadata.namespace}/{name}"
    return f"set queue: {queue} in PodGroup {group.key}"


def smaller_gang(group: PodGroup, number: int) -> str:
    """What people change so that fewer pods of a PodGroup start together: what owns it would undo a change of it."""
    namespace, owners = group.metadata.namespace, group.metadata.owner_references
    for owner in owners:
        version, kind, name = (str(owner.get(key, "")) for key in ("apiVersion", "kind", "name"))
        known = known_kinds().get(version, kind)
        if known is None or kind == "Pod":
            continue
        if known.row.min_member:
            return f"set {known.row.min_member}: {number} in {kind} {namespace}/{name}"
        if group_uid(group.metadata.name):
            return f"set the annotation {MIN_MEMBER[0]}: {number} on {kind} {namespace}/{name}"
        return f"lower the replicas of {kind} {namespace}/{name} so that {number} of its pods start together"
    return f"set minMember: {number} in PodGroup {group.key}"
