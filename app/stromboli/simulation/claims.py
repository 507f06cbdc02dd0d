"""The claims that a cluster makes of templates for pods that are new: for devices, and for ephemeral volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.workloads.makers import RUNTIMES

_CLAIM_TEMPLATE = "ResourceClaimTemplate"
#: kinds of which other objects are made
TEMPLATES = (*RUNTIMES, _CLAIM_TEMPLATE)
_VOLUME_CLAIM = "PersistentVolumeClaim"
#: annotation of the StorageClass of claims that name none
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def with_claims(
    pod: objects.Pod, templates: Mapping[tuple[str, str, str], Mapping[str, Any]]
) -> tuple[objects.Pod, list[dict[str, Any]]]:
    """A pod whose status names the claims that are made for it, and these; it has a uid then."""
    meta, status = pod.metadata, pod.status
    known = {each.name for each in status.resource_claim_statuses or ()}
    wanted = [
        (each.name, templates[template])
        for each in pod.spec.resource_claims or ()
        if each.name not in known
        and (template := (_CLAIM_TEMPLATE, meta.namespace or "default", each.resource_claim_template_name or ""))
        in templates
    ]
    if not wanted or pod.spec.node_name:
        return pod, []
    pod = _with_uid(pod)
    statuses = [objects.PodResourceClaimStatus(name, f"{meta.name}-{name}") for name, _ in wanted]
    told = [*(status.resource_claim_statuses or ()), *statuses]
    return replace(pod, status=replace(status, resource_claim_statuses=told)), list(_made(pod, wanted))


class VolumeClaims:
    """Makes the claims of pods' ephemeral volumes, but for those that there are."""

    def __init__(self, loaded: Iterable[tuple[str, Any]]) -> None:
        self._there: set[tuple[str, str]] = set()
        self._default_class = ""
        for kind, obj in loaded:
            if kind == _VOLUME_CLAIM:
                self._there.add((obj["metadata"].get("namespace") or "default", obj["metadata"]["name"]))
            elif kind == "StorageClass" and (obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true":
                self._default_class = obj["metadata"]["name"]

    def made_for(self, pod: objects.Pod) -> tuple[objects.Pod, list[dict[str, Any]]]:
        """A pod, which has a uid then, and the claims that are made for it; none for one that a cluster knows."""
        meta = pod.metadata
        if meta.uid or pod.spec.node_name:
            return pod, []
        wanted = [
            (each.name, template)
            for each in pod.spec.volumes or ()
            if (template := (each.ephemeral or {}).get("volumeClaimTemplate"))
            and (meta.namespace or "default", f"{meta.name}-{each.name}") not in self._there
        ]
        if not wanted:
            return pod, []
        pod = _with_uid(pod)
        return pod, [self._claim(pod, name, template) for name, template in wanted]

    def _claim(self, pod: objects.Pod, name: str, template: Mapping[str, Any]) -> dict[str, Any]:
        spec = template.get("spec") or {}
        if spec.get("storageClassName") is None and self._default_class:
            spec = {**spec, "storageClassName": self._default_class}
        head = {"apiVersion": "v1", "kind": _VOLUME_CLAIM, "metadata": _metadata(pod, name, template)}
        return {**head, "spec": spec, "status": {"phase": "Pending"}}


def _with_uid(pod: objects.Pod) -> objects.Pod:
    meta = pod.metadata
    return replace(pod, metadata=replace(meta, uid=meta.uid or f"{meta.namespace}-{meta.name}"))


def _made(pod: objects.Pod, wanted: list[tuple[str, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    for name, template in wanted:
        made = template.get("spec") or {}
        yield {
            "apiVersion": template.get("apiVersion") or "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": _metadata(pod, name, made),
            "spec": made.get("spec") or {},
        }


def _metadata(pod: objects.Pod, name: str, template: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a pod's claim, with what its template says of it."""
    meta, said = pod.metadata, template.get("metadata") or {}
    kept = {key: said[key] for key in ("labels", "annotations") if key in said}
    own = {"name": f"{meta.name}-{name}", "namespace": meta.namespace or "default", "uid": f"{meta.uid}-{name}"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    return {**kept, **own, "ownerReferences": [owner]}
