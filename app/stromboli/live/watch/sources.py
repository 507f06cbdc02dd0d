"""The kinds of objects that the service watches, and the API paths that list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stromboli.api import objects
from stromboli.api.crds import SCHEDULING, TOPOLOGY


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of object and the API path that lists it."""

    kind: str
    path: str
    #: the type that the JSON is decoded into
    type: Any = dict[str, Any]
    #: whether sessions wait for its first list
    required: bool = False
    #: query parameters of the list and the watch
    params: Mapping[str, str] = field(default_factory=dict)
    #: paths of other API versions, tried in turn when `path` is not found
    others: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths to try, the preferred one first."""
        return (self.path, *self.others)


def _devices(kind: str, plural: str) -> Source:
    """A kind of `resource.k8s.io`, whose version depends on the cluster's; the decoder handles all three."""
    path, *others = (f"/apis/resource.k8s.io/{version}/{plural}" for version in ("v1", "v1beta2", "v1beta1"))
    return Source(kind, path, others=tuple(others))


SOURCES = (
    Source("Pod", "/api/v1/pods", objects.Pod, required=True),
    Source("Node", "/api/v1/nodes", objects.Node, required=True),
    Source("Queue", f"/apis/{SCHEDULING}/queues", required=True),
    Source("PodGroup", f"/apis/{SCHEDULING}/podgroups", required=True),
    Source("Namespace", "/api/v1/namespaces"),
    Source("HyperNode", f"/apis/{TOPOLOGY}/hypernodes"),
    Source("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", objects.PriorityClass),
    Source("PersistentVolume", "/api/v1/persistentvolumes"),
    Source("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Source("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    Source("CSINode", "/apis/storage.k8s.io/v1/csinodes"),
    Source("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers"),
    Source("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities"),
    Source("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments"),
    Source("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Source("ResourceQuota", "/api/v1/resourcequotas"),
    _devices("ResourceClaim", "resourceclaims"),
    _devices("ResourceSlice", "resourceslices"),
    _devices("DeviceClass", "deviceclasses"),
    Source("DeviceTaintRule", "/apis/resource.k8s.io/v1/devicetaintrules"),
    Source("Numatopology", "/apis/nodeinfo.volcano.sh/v1alpha1/numatopologies"),
    Source("NodeShard", "/apis/shard.volcano.sh/v1alpha1/nodeshards"),
)
