"""The parts of objects that are written when they change."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stromboli.api.crds import PodGroup
from stromboli.explain.rehearsal import node_of
from stromboli.journal import wire
from stromboli.journal.redaction import Redaction
from stromboli.state.nodes import NodeRecord

_GROUP_STATUS = wire.tag(wire.GroupStatus)


def node(record: NodeRecord, redaction: Redaction) -> wire.Node:
    """A node, reduced to the fields that are read."""
    node = node_of(record)
    annotations = redaction.annotations(node.metadata.annotations)
    return wire.Node(replace(node, metadata=replace(node.metadata, annotations=annotations)))


def object_(kind: str, obj: Any, redaction: Redaction) -> wire.Object:
    """Any other object, reduced to the fields that are read."""
    return wire.Object(kind, redaction.manifest(kind, obj))


def pod_group(before: PodGroup | None, now: PodGroup, redaction: Redaction) -> wire.Written:
    """A PodGroup: a `wire.GroupStatus` if nothing but its status changed."""
    if before is not None and _differs_in_status(before, now):
        return _GROUP_STATUS, now.key, now.metadata.generation, now.status
    return object_("PodGroup", now, redaction)


def _differs_in_status(before: PodGroup, now: PodGroup) -> bool:
    """Whether a PodGroup differs from before only in its status and its version."""
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
