"""Claims, volumes and storage classes, read from the session's plain objects when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from stromboli.api import objects
from stromboli.api.objects import LabelSelector, NodeSelector, Record, ResourceList

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Meta(Record, frozen=True):
    """The part of the metadata that placement reads."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: Any = None


class ClaimSpec(Record, frozen=True):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: objects.ResourceRequirements | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Record, frozen=True):
    phase: str | None = None


class PersistentVolumeClaim(Record, frozen=True):
    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def storage_class(self) -> str:
        """The name of its class, empty for none."""
        annotated = (self.metadata.annotations or {}).get(_CLASS_ANNOTATION)
        return annotated if annotated is not None else self.spec.storage_class_name or ""

    @property
    def bound(self) -> bool:
        """Whether it has its volume for good."""
        return bool(self.spec.volume_name) and _BIND_COMPLETED in (self.metadata.annotations or {})

    @property
    def selected_node(self) -> str | None:
        """The node for which its volume is being made."""
        return (self.metadata.annotations or {}).get(_SELECTED_NODE)


class ClaimReference(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str | None = None


class CsiSource(Record, frozen=True):
    driver: str
    volume_handle: str = ""


class VolumeAffinity(Record, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Record, frozen=True):
    capacity: ResourceList | None = None
    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolume(Record, frozen=True):
    metadata: Meta
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()

    @property
    def storage_class(self) -> str:
        """The name of its class, empty for none."""
        annotated = (self.metadata.annotations or {}).get(_CLASS_ANNOTATION)
        return annotated if annotated is not None else self.spec.storage_class_name or ""

    def reserved_for(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the volume names this claim as its own."""
        ref = self.spec.claim_ref
        return (
            ref is not None
            and f"{ref.namespace}/{ref.name}" == claim.key
            and (not ref.uid or ref.uid == claim.metadata.uid)
        )


class TopologyExpression(Record, frozen=True):
    key: str
    values: list[str] | None = None


class TopologyTerm(Record, frozen=True):
    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(Record, frozen=True):
    metadata: Meta
    provisioner: str = ""
    parameters: dict[str, str] | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None

    @property
    def delayed(self) -> bool:
        """Whether claims wait for their first pod."""
        return self.volume_binding_mode == "WaitForFirstConsumer"


class DriverLimit(Record, frozen=True):
    count: int | None = None


class Driver(Record, frozen=True):
    name: str
    allocatable: DriverLimit | None = None


class CSINodeSpec(Record, frozen=True):
    drivers: list[Driver] | None = None


class CSINode(Record, frozen=True):
    metadata: Meta
    spec: CSINodeSpec = CSINodeSpec()


R = TypeVar("R", bound=Record)


class Storage:
    """The storage objects of one session."""

    def __init__(self, plain: Mapping[str, Mapping[str, Any]]) -> None:
        self._plain = plain
        self._read: dict[tuple[str, str], Record] = {}

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim, None when there is none of that name."""
        return self._get(PersistentVolumeClaim, f"{namespace}/{name}")

    def volume(self, name: str) -> PersistentVolume | None:
        """A volume, None when there is none of that name."""
        return self._get(PersistentVolume, name)

    def storage_class(self, name: str) -> StorageClass | None:
        """A storage class, None when there is none of that name."""
        return self._get(StorageClass, name)

    def volumes(self, storage_class: str) -> list[PersistentVolume]:
        """All volumes of a class."""
        named = [self.volume(name) for name in self._plain.get("PersistentVolume", {})]
        return [volume for volume in named if volume is not None and volume.storage_class == storage_class]

    def csi_nodes(self) -> list[CSINode]:
        """What the storage drivers of each node can do."""
        found = [self._get(CSINode, name) for name in self._plain.get("CSINode", {})]
        return [node for node in found if node is not None]

    def _get(self, kind: type[R], key: str) -> R | None:
        name = kind.__name__
        found = self._read.get((name, key))
        if found is None:
            plain = self._plain.get(name, {}).get(key)
            if plain is None:
                return None
            found = self._read[name, key] = msgspec.convert(plain, kind, strict=False)
        assert isinstance(found, kind)
        return found
