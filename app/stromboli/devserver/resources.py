"""The served resource types: what discovery lists and what routing, strategies and tables ask.

The built-in types are those that schedulers, kubectl and operators look for. Types of
CustomResourceDefinitions are added and taken away while the server runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A decoded JSON object. Objects in the store are never changed in place."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom resource: a JSONPath and how kubectl shows its value."""

    name: str
    path: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served resource type."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    #: has a /status subresource; then the main resource ignores status
    status: bool = False
    #: names of the further subresources, with the (group, version, kind) of their body
    subresources: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    #: metadata.generation counts changes of the desired state
    generation: bool = False
    #: a PUT without resourceVersion is accepted
    unconditional_update: bool = True
    #: paths that field selectors may use besides metadata.name and metadata.namespace
    selectable: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    #: comes from a CustomResourceDefinition
    custom: bool = False
    columns: tuple[Column, ...] = ()
    #: OpenAPI v3 schema of a custom resource
    schema: Object | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(group, plural): the identity of the type."""
        return self.group, self.plural

    @property
    def storage_key(self) -> tuple[str, str]:
        """(group, plural) of the collection that holds the objects: both event APIs show the same ones."""
        return EVENTS if self.key == EVENTS_V1 else self.key

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def has(self, subresource: str) -> bool:
        return subresource in self.subresources or (self.status and subresource == "status")


class ResourceTable:
    """Every served resource type, in the order in which discovery lists them."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_key: dict[tuple[str, str], Resource] = {}
        for resource in _builtin():
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def add(self, resource: Resource) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_key[resource.key] = resource

    def remove(self, resource: Resource) -> None:
        self._by_path.pop((resource.group, resource.version, resource.plural), None)
        self._by_key.pop(resource.key, None)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def by_key(self, key: tuple[str, str]) -> Resource:
        """The resource with this (group, plural); KeyError if it is not served."""
        return self._by_key[key]

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        return next((r for r in self if r.kind == kind and r.api_version == api_version), None)

    def groups(self) -> dict[str, dict[str, list[Resource]]]:
        """group -> version -> its resources; the core group, "", is the first."""
        found: dict[str, dict[str, list[Resource]]] = {}
        for resource in self:
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found


PODS = ("", "pods")
NODES = ("", "nodes")
NAMESPACES = ("", "namespaces")
PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")
DISRUPTION_BUDGETS = ("policy", "poddisruptionbudgets")
CUSTOM_RESOURCE_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
EVENTS = ("", "events")
EVENTS_V1 = ("events.k8s.io", "events")

_WORKLOAD: dict[str, Any] = {"status": True, "generation": True, "categories": ("all",)}
_POD_FIELDS = (
    "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName"
)
_CORE_EVENT_FIELDS = (
    "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath "
    "reason reportingComponent source type"
)
_EVENT_FIELDS = _CORE_EVENT_FIELDS.replace("involvedObject", "regarding").replace(
    "reportingComponent source", "reportingController"
)


def _builtin() -> Iterator[Resource]:
    yield from _core()
    yield from _workloads()
    yield from _scheduling()
    yield from _storage()
    yield from _machinery()


def _core() -> Iterator[Resource]:
    yield _r("v1", "namespaces", "Namespace", "ns", namespaced=False, status=True, fields="status.phase")
    yield _r("v1", "nodes", "Node", "no", namespaced=False, status=True, fields="spec.unschedulable")
    yield _r(
        "v1",
        "pods",
        "Pod",
        "po",
        status=True,
        generation=True,
        categories=("all",),
        fields=_POD_FIELDS,
        subresources={
            "binding": ("", "v1", "Binding"),
            "eviction": ("policy", "v1", "Eviction"),
            "portforward": ("", "v1", "PodPortForwardOptions"),
        },
    )
    yield _r("v1", "events", "Event", "ev", fields=_CORE_EVENT_FIELDS)
    yield _r("v1", "configmaps", "ConfigMap", "cm")
    yield _r("v1", "secrets", "Secret", fields="type")
    yield _r("v1", "serviceaccounts", "ServiceAccount", "sa")
    yield _r(
        "v1",
        "services",
        "Service",
        "svc",
        status=True,
        categories=("all",),
        fields="spec.clusterIP spec.type",
    )
    yield _r("v1", "endpoints", "Endpoints", "ep")
    yield _r("v1", "podtemplates", "PodTemplate")
    yield _r("v1", "resourcequotas", "ResourceQuota", "quota", status=True)
    yield _r("v1", "limitranges", "LimitRange", "limits")
    yield _r("v1", "persistentvolumes", "PersistentVolume", "pv", namespaced=False, status=True)
    yield _r("v1", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", status=True)
    yield _r("v1", "replicationcontrollers", "ReplicationController", "rc", fields="status.replicas", **_WORKLOAD)


def _workloads() -> Iterator[Resource]:
    yield _r("apps/v1", "deployments", "Deployment", "deploy", **_WORKLOAD)
    yield _r("apps/v1", "replicasets", "ReplicaSet", "rs", fields="status.replicas", **_WORKLOAD)
    yield _r("apps/v1", "statefulsets", "StatefulSet", "sts", **_WORKLOAD)
    yield _r("apps/v1", "daemonsets", "DaemonSet", "ds", **_WORKLOAD)
    yield _r("batch/v1", "jobs", "Job", fields="status.successful", **_WORKLOAD)
    yield _r("batch/v1", "cronjobs", "CronJob", "cj", **_WORKLOAD)
    yield _r(
        "policy/v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "pdb",
        status=True,
        generation=True,
        unconditional_update=False,
    )


def _scheduling() -> Iterator[Resource]:
    yield _r("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", "pc", namespaced=False, generation=True)
    yield _r("coordination.k8s.io/v1", "leases", "Lease", unconditional_update=False)
    yield _r("events.k8s.io/v1", "events", "Event", fields=_EVENT_FIELDS)
    yield _r("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False, generation=True)
    yield _r("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", status=True)
    yield _r("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate")
    yield _r(
        "resource.k8s.io/v1",
        "resourceslices",
        "ResourceSlice",
        namespaced=False,
        generation=True,
        fields="spec.nodeName spec.driver",
    )


def _storage() -> Iterator[Resource]:
    yield _r("storage.k8s.io/v1", "storageclasses", "StorageClass", "sc", namespaced=False)
    yield _r("storage.k8s.io/v1", "csinodes", "CSINode", namespaced=False)
    yield _r("storage.k8s.io/v1", "csidrivers", "CSIDriver", namespaced=False)
    yield _r("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity")
    yield _r("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", namespaced=False, status=True)


def _machinery() -> Iterator[Resource]:
    yield _r(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd",
        "crds",
        namespaced=False,
        status=True,
        generation=True,
        unconditional_update=False,
    )
    rbac = "rbac.authorization.k8s.io/v1"
    yield _r(rbac, "clusterroles", "ClusterRole", namespaced=False)
    yield _r(rbac, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    yield _r(rbac, "roles", "Role")
    yield _r(rbac, "rolebindings", "RoleBinding")
    for group, plural, kind in (
        ("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview"),
        ("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview"),
    ):
        yield _r(group, plural, kind, namespaced=False, verbs=("create",))


def _r(api_version: str, plural: str, kind: str, *short_names: str, fields: str = "", **traits: Any) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        short_names=short_names,
        selectable=frozenset(fields.split()),
        **traits,
    )
