"""Changes of the cluster as they are written, made while what they are made of is still at hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stromboli.api.crds import PodGroup, dumped
from stromboli.explain.rehearsal import node_of
from stromboli.journal import wire
from stromboli.journal.redaction import Redaction
from stromboli.state.nodes import NodeRecord


class Changes:
    """Changes one after the other, in bytes."""

    __slots__ = ("content", "count")

    def __init__(self) -> None:
        self.content = bytearray()
        self.count = 0

    def add(self, change: wire.Written) -> None:
        """One more."""
        wire.encode_into(change, self.content, -1)
        self.count += 1


def node(record: NodeRecord, redaction: Redaction) -> wire.Node:
    """A node as far as it is read."""
    node = node_of(record)
    annotations = redaction.annotations(node.metadata.annotations)
    return wire.Node(replace(node, metadata=replace(node.metadata, annotations=annotations)))


def object_(kind: str, obj: Any, redaction: Redaction) -> wire.Object:
    """Any other object as far as it is read."""
    return wire.Object(kind, redaction.manifest(kind, obj))


def pod_group(before: PodGroup | None, now: PodGroup, redaction: Redaction) -> wire.GroupStatus | wire.Object:
    """A PodGroup: its status when all else is what it was."""
    if before is not None and _differs_in_status(before, now):
        return wire.GroupStatus(now.key, now.metadata.generation, dumped(now.status))
    return object_("PodGroup", now, redaction)


def _differs_in_status(before: PodGroup, now: PodGroup) -> bool:
    """Whether no more than its status and what counts versions tells a PodGroup from what it was."""
    one, other = before.metadata, now.metadata
    return (
        before.spec == now.spec
        and one.uid == other.uid
        and one.labels == other.labels
        and one.annotations == other.annotations
        and one.owner_references == other.owner_references
        and one.creation_timestamp == other.creation_timestamp
        and one.deletion_timestamp == other.deletion_timestamp
    )
