"""Nodes."""

from __future__ import annotations

from stromboli.api import readers
from stromboli.api.objects.base import Metadata, Record, ResourceList


class Taint(Record, frozen=True):
    key: str
    value: str | None = ""
    effect: str = ""


class NodeSpec(Record, frozen=True):
    unschedulable: bool | None = False
    taints: list[Taint] | None = None


class ContainerImage(Record, frozen=True):
    names: list[str] | None = None
    size_bytes: readers.Integer | None = 0


class NodeCondition(Record, frozen=True):
    type: str | None = ""
    status: str | None = ""


class NodeStatus(Record, frozen=True):
    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None
    conditions: list[NodeCondition] | None = None


class Node(Record, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
