"""Changes and refusals by the API server itself, per resource.

Only what schedulers and their clients can tell: defaults, initial status, priority admission and immutable
fields. Real servers validate much more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from stromboli.api.structural import conform, problems

from .crds import checked_definition, established
from .errors import bad_request, forbidden, invalid
from .resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Object,
    Resource,
)

PriorityClasses: TypeAlias = Callable[[], Sequence[Object]]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
#: fields of a bound pod's spec that an update may change, besides the images of its containers
_MUTABLE_POD_FIELDS = ("tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
#: bytes of an event's note
_LONGEST_NOTE = 1_024
#: further fields that may change while the pod has scheduling gates
_GATED_POD_FIELDS = ("nodeSelector", "affinity", "schedulingGates")


def check_shape(body: Object) -> None:
    """BadRequest (400) for a body whose parts are not what everything else takes them for."""
    for name in ("metadata", "spec", "status"):
        if not isinstance(body.get(name), dict | None):
            raise bad_request(f"{name} must be an object, not {body[name]!r}")
    metadata = body.get("metadata") or {}
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(name), str | None):
            raise bad_request(f"metadata.{name} must be a string, not {metadata[name]!r}")
    for name in ("labels", "annotations"):
        found = metadata.get(name) or {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise bad_request(f"metadata.{name} must map strings to strings, not {found!r}")
    if not isinstance(metadata.get("finalizers"), list | None):
        raise bad_request(f"metadata.finalizers must be a list, not {metadata['finalizers']!r}")


def prepare_create(resource: Resource, body: Object, priority_classes: PriorityClasses) -> Object:
    """The new object with defaults and its initial status; changes `body` where that is simplest."""
    name = body["metadata"]["name"]
    # rbac names may hold any path segment ("system:node").
    if len(name) > 253 or (not resource.group.startswith("rbac.") and not _SUBDOMAIN.match(name)):
        raise invalid(resource, name, [("metadata.name", f'Invalid value: "{name}": {_SUBDOMAIN_RULE}')])
    # A kubelet registers its node with a status; every other status is written by a controller later.
    if resource.status and resource.key != NODES:
        body.pop("status", None)
    if resource.custom:
        return conformed(resource, body)
    if resource.status:
        body.setdefault("status", {})
    if resource.key == PODS:
        _prepare_pod(resource, body, priority_classes)
    elif resource.key == CUSTOM_RESOURCE_DEFINITIONS:
        body = checked_definition(resource, body)
        body["status"] = established(body)
    elif resource.key == EVENTS:
        _check_event(resource, body)
    elif prepare := _PREPARE.get(resource.key):
        prepare(body)
    return body


def prepare_update(resource: Resource, old: Object, new: Object) -> Object:
    """The changed object, checked; neither argument is changed."""
    if resource.custom:
        return conformed(resource, new)
    if resource.key == PODS:
        _check_pod_update(resource, old, new)
    elif resource.key == CUSTOM_RESOURCE_DEFINITIONS:
        return checked_definition(resource, new)
    elif resource.key == PRIORITY_CLASSES and new.get("value") != old.get("value"):
        what = "Forbidden: may not be changed in an update."
        raise invalid(resource, old["metadata"]["name"], [("value", what)])
    return new


def conformed(resource: Resource, body: Object) -> Object:
    """A custom resource as its schema wants it; Invalid (422) with every value that breaks the schema."""
    if resource.schema is None:
        return body
    shaped = conform(body, resource.schema)
    if found := problems(shaped, resource.schema):
        raise invalid(resource, body["metadata"]["name"], found)
    return shaped


def _prepare_pod(resource: Resource, pod: Object, priority_classes: PriorityClasses) -> None:
    name = pod["metadata"]["name"]
    spec = pod.setdefault("spec", {})
    if not spec.get("containers"):
        raise invalid(resource, name, [("spec.containers", "Required value")])
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        _default_requests(container)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    _admit_priority(resource, name, spec, priority_classes())
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}


def _default_requests(container: dict[str, Any]) -> None:
    """A limit without a request is also the request."""
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _admit_priority(resource: Resource, name: str, spec: dict[str, Any], classes: Sequence[Object]) -> None:
    wanted = spec.get("priorityClassName")
    if wanted:
        found = next((c for c in classes if c["metadata"]["name"] == wanted), None)
        if found is None:
            raise forbidden(resource, name, f"no PriorityClass with name {wanted} was found")
    else:
        found = max((c for c in classes if c.get("globalDefault")), key=lambda c: -int(c["value"]), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = int(found["value"]) if found else 0
    if spec.setdefault("priority", value) != value:
        why = "the integer value of priority must not be provided in pod spec; priority admission controller "
        raise forbidden(
            resource,
            name,
            f"{why}computed {value} from the given PriorityClass name and got {spec['priority']}",
        )
    policy = found.get("preemptionPolicy") if found else None
    spec.setdefault("preemptionPolicy", policy or "PreemptLowerPriority")


def _qos_class(spec: Mapping[str, Any]) -> str:
    resources = [c["resources"] for c in (*spec["containers"], *(spec.get("initContainers") or ()))]
    requests = [r.get("requests") or {} for r in resources]
    limits = [r.get("limits") or {} for r in resources]
    if not any(amounts.keys() & {"cpu", "memory"} for amounts in (*requests, *limits)):
        return "BestEffort"
    for request, limit in zip(requests, limits, strict=True):
        if any(not limit.get(unit) or request.get(unit) != limit[unit] for unit in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def _check_pod_update(resource: Resource, old: Object, new: Object) -> None:
    before, after = old["spec"], new.get("spec") or {}
    if before == after:
        return
    mutable: tuple[str, ...] = _MUTABLE_POD_FIELDS
    if before.get("schedulingGates"):
        mutable += _GATED_POD_FIELDS
    if _without(before, mutable) != _without(after, mutable):
        what = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`,"
            "`spec.terminationGracePeriodSeconds`"
        )
        raise invalid(resource, old["metadata"]["name"], [("spec", what)])


def _without(spec: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if key not in fields}
    for key in ("containers", "initContainers"):
        if key in kept:
            kept[key] = [{k: v for k, v in c.items() if k != "image"} for c in kept[key] or ()]
    return kept


def _check_event(resource: Resource, event: Object) -> None:
    # Those of core/v1 have no time of this name, and any length.
    if event.get("eventTime") and len(str(event.get("message") or "").encode()) > _LONGEST_NOTE:
        what = f'Invalid value: "": can have at most {_LONGEST_NOTE} characters'
        raise invalid(resource, event["metadata"]["name"], [("note", what)])


def _prepare_namespace(namespace: Object) -> None:
    metadata = namespace["metadata"]
    labels = metadata.get("labels") or {}
    metadata["labels"] = {**labels, "kubernetes.io/metadata.name": metadata["name"]}
    namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _prepare_node(node: Object) -> None:
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])


def _prepare_priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority_class.setdefault("value", 0)


def _prepare_volume(volume: Object) -> None:
    volume["status"] = {"phase": "Pending"}


_PREPARE: Mapping[tuple[str, str], Callable[[Object], None]] = {
    NAMESPACES: _prepare_namespace,
    NODES: _prepare_node,
    PRIORITY_CLASSES: _prepare_priority_class,
    ("", "persistentvolumes"): _prepare_volume,
    ("", "persistentvolumeclaims"): _prepare_volume,
}
