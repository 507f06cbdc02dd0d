"""Claims, volumes and storage classes, decoded from plain objects on first use.

Decoded objects are kept for later sessions while the plain objects are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from stromboli.api import keys, objects, readers
from stromboli.api.objects import LabelSelector, NodeSelector, Record, ResourceList
from stromboli.api.quantity import units
from stromboli.state.plain import NO_OBJECTS, PlainObjects
from stromboli.state.snapshot import Snapshot

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
#: provisioner of classes whose volumes are created manually
NO_PROVISIONER = "kubernetes.io/no-provisioner"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: Annotations that the service adds for sessions to the API server's claims: since when a binding is awaited, in
#: seconds since the epoch, and the nodes that were refused recently, separated by commas.
WAITING_SINCE, REFUSED_ON = "stromboli.io/volume-waits-since", "stromboli.io/volume-refused-on"
_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


class Meta(Record, frozen=True):
    """The metadata that placement reads."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: Any = None
    owner_references: list[objects.OwnerReference] | None = None


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
        """The name of the class, empty for none."""
        annotated = (self.metadata.annotations or {}).get(_CLASS_ANNOTATION)
        return annotated if annotated is not None else self.spec.storage_class_name or ""

    @property
    def requested(self) -> int:
        """The requested size in bytes."""
        requests = (self.spec.resources.requests if self.spec.resources else None) or {}
        return units(requests.get("storage", 0))

    @property
    def bound(self) -> bool:
        """Whether the claim is bound."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in (self.metadata.annotations or {})

    @property
    def controller(self) -> str | None:
        """The uid of the owner, None without one."""
        return next((owner.uid for owner in self.metadata.owner_references or () if owner.controller), None)

    @property
    def selected_node(self) -> str | None:
        """The node that the volume is being provisioned for."""
        return (self.metadata.annotations or {}).get(SELECTED_NODE)

    @property
    def refused_on(self) -> list[str]:
        """The nodes that were refused recently."""
        names = (self.metadata.annotations or {}).get(REFUSED_ON)
        return names.split(",") if names else []

    @property
    def waiting_since(self) -> float | None:
        """Time when the service began to wait for the volume, in seconds since the epoch."""
        return readers.number((self.metadata.annotations or {}).get(WAITING_SINCE))


class ClaimReference(Record, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str | None = None


class CsiSource(Record, frozen=True):
    driver: str
    volume_handle: str = ""


class VolumeAffinity(Record, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(objects.Disks, frozen=True):
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
        """The name of the class, empty for none."""
        annotated = (self.metadata.annotations or {}).get(_CLASS_ANNOTATION)
        return annotated if annotated is not None else self.spec.storage_class_name or ""

    @property
    def capacity(self) -> int:
        """The capacity in bytes."""
        return units((self.spec.capacity or {}).get("storage", 0))

    def reserved_for(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the volume refers to a claim."""
        ref = self.spec.claim_ref
        return (
            ref is not None
            and keys.key(ref.namespace, ref.name) == claim.key
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
        """Whether claims wait for their first consumer."""
        return self.volume_binding_mode == "WaitForFirstConsumer"


class DriverLimit(Record, frozen=True):
    count: readers.Integer | None = None


class Driver(Record, frozen=True):
    name: str
    allocatable: DriverLimit | None = None


class CSINodeSpec(Record, frozen=True):
    drivers: list[Driver] | None = None


class CSINode(Record, frozen=True):
    metadata: Meta
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def migrated(self) -> frozenset[str]:
        """The in-tree plugins whose volumes the driver handles on the node."""
        listed = (self.metadata.annotations or {}).get(_MIGRATED_PLUGINS, "")
        return frozenset(filter(None, listed.split(",")))


class AttachedSource(Record, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Record, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = AttachedSource()


class VolumeAttachment(Record, frozen=True):
    metadata: Meta
    spec: AttachmentSpec = AttachmentSpec()


class CSIDriverSpec(Record, frozen=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Record, frozen=True):
    metadata: Meta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Record, frozen=True):
    """The storage capacity of a class for some nodes."""

    metadata: Meta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: objects.Quantity | None = None
    maximum_volume_size: objects.Quantity | None = None


R = TypeVar("R", bound=Record)


#: number of decoded objects that are kept; others are decoded on each use
_MOST_READ = 10_000


class Storage:
    """The storage objects of one session."""

    def __init__(self, plain: Mapping[str, PlainObjects], before: Storage | None = None) -> None:
        """`before` is the storage of an earlier session, for decoded objects that are unchanged."""
        self._plain = plain
        #: by namespace and names
        self._claims: dict[tuple[str, tuple[str, ...]], tuple[PersistentVolumeClaim | None, ...]] = {}
        #: decoded objects, with the version that they were decoded from
        self._read: dict[tuple[str, str], tuple[Any, Record]] = {} if before is None else before._read

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A claim, None if it does not exist."""
        return self._get(PersistentVolumeClaim, keys.key(namespace, name))

    def claims(self, namespace: str, names: tuple[str, ...]) -> tuple[PersistentVolumeClaim | None, ...]:
        """The claims with some names, None for each missing one; several rules ask about each pod."""
        found = self._claims.get((namespace, names))
        if found is None:
            found = self._claims[namespace, names] = tuple([self.claim(namespace, name) for name in names])
        return found

    def volume(self, name: str) -> PersistentVolume | None:
        """A volume, None if it does not exist."""
        return self._get(PersistentVolume, name)

    def storage_class(self, name: str) -> StorageClass | None:
        """A storage class, None if it does not exist."""
        return self._get(StorageClass, name)

    def driver(self, name: str) -> CSIDriver | None:
        """A CSI driver, None if it does not exist."""
        return self._get(CSIDriver, name)

    def plain(self, kind: str) -> PlainObjects:
        """The plain objects of a kind, by key."""
        return self._plain.get(kind, NO_OBJECTS)

    def _get(self, kind: type[R], key: str) -> R | None:
        name = kind.__name__
        plain = self.plain(name)
        version = plain.version(key)
        if version is None:
            return None
        found = self._read.get((name, key))
        if found is None or found[0] is not version:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            found = self._read[name, key] = version, plain.read(key, kind)
        assert isinstance(found[1], kind)
        return found[1]


def storage_of(snapshot: Snapshot) -> Storage:
    """The storage objects of a snapshot."""
    before = snapshot.derived.get(Storage)
    assert before is None or isinstance(before, Storage)
    storage = snapshot.derived[Storage] = Storage(snapshot.objects, before)
    return storage
