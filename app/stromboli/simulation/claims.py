"""The claims that a cluster makes of templates for pods that are new: for devices and for volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.workloads.groups import controller
from stromboli.workloads.makers import RUNTIMES
from stromboli.workloads.paths import at, items, notes, text

_CLAIM_TEMPLATE = "ResourceClaimTemplate"
#: kinds from which other objects are made
TEMPLATES = (*RUNTIMES, _CLAIM_TEMPLATE)
_VOLUME_CLAIM = "PersistentVolumeClaim"
#: where workloads have claim templates; each pod gets its own claim
_CLAIM_TEMPLATES = ("spec.volumeClaimTemplates", "spec.leaderWorkerTemplate.volumeClaimTemplates")
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
    """Creates claims that exist in no cluster yet: those of ephemeral volumes, and those of workloads.

    Existing claims stay. Those of a workload are created if their StorageClass is known: files without any describe no
    storage, and their pods then mount nothing.
    """

    def __init__(self, loaded: Iterable[tuple[str, Any]], owners: Mapping[str, Mapping[str, Any]]) -> None:
        self._owners = owners
        self._there: set[tuple[str, str]] = set()
        self._classes: set[str] = set()
        self._default_class = ""
        for kind, obj in loaded:
            if kind == _VOLUME_CLAIM:
                self._there.add((obj["metadata"].get("namespace") or "default", obj["metadata"]["name"]))
            elif kind == "StorageClass":
                self._classes.add(obj["metadata"]["name"])
                if notes(obj).get(_DEFAULT_CLASS) == "true":
                    self._default_class = obj["metadata"]["name"]

    def made_for(self, pod: objects.Pod) -> tuple[objects.Pod, list[dict[str, Any]]]:
        """A pod with the volumes and the uid that it has then, and the claims that are made for it."""
        if pod.metadata.uid or pod.spec.node_name:
            return pod, []
        pod, of_workload = self._of_workload(pod)
        templates = [
            (each.name, template)
            for each in pod.spec.volumes or ()
            if (template := (each.ephemeral or {}).get("volumeClaimTemplate"))
            and not self._is_there(pod, f"{pod.metadata.name}-{each.name}")
        ]
        if templates:
            pod = _with_uid(pod)
        own = [self._claim(_metadata(pod, name, template), template) for name, template in templates]
        return pod, [*of_workload, *own]

    def _of_workload(self, pod: objects.Pod) -> tuple[objects.Pod, list[dict[str, Any]]]:
        """A pod that mounts the claims of its workload's templates, and the new ones of these."""
        manager = controller(pod)
        owner = self._owners.get(manager.uid) if manager is not None else None
        volumes, made = {each.name: each for each in pod.spec.volumes or ()}, []
        for volume, claim, template in (*_of_each(pod, owner), *_of_all(owner)):
            if not self._is_there(pod, claim):
                if not template.get("spec") or self._class_of(template) not in self._classes:
                    continue
                metadata = {"name": claim, "namespace": pod.metadata.namespace or "default"}
                made.append(self._claim(metadata, template))
                self._there.add((metadata["namespace"], claim))
            volumes[volume] = objects.Volume(volume, persistent_volume_claim=objects.ClaimVolume(claim))
        if not volumes:
            return pod, made
        return replace(pod, spec=replace(pod.spec, volumes=list(volumes.values()))), made

    def _is_there(self, pod: objects.Pod, claim: str) -> bool:
        return (pod.metadata.namespace or "default", claim) in self._there

    def _class_of(self, template: Mapping[str, Any]) -> str:
        named = at(template, "spec.storageClassName")
        return self._default_class if named is None else str(named)

    def _claim(self, metadata: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
        spec = dict(template.get("spec") or {})
        if spec.get("storageClassName") is None and self._default_class:
            spec["storageClassName"] = self._default_class
        head = {"apiVersion": "v1", "kind": _VOLUME_CLAIM, "metadata": metadata}
        return {**head, "spec": spec, "status": {"phase": "Pending"}}


def _of_each(pod: objects.Pod, owner: object) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The volumes with a claim of each pod's own: volume, claim and template."""
    for _, template in (found for path in _CLAIM_TEMPLATES for found in items(owner, path)):
        volume = text(template, "metadata.name")
        yield volume, f"{volume}-{pod.metadata.name}", template


def _of_all(owner: object) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The volumes that all pods of a Volcano Job mount."""
    if text(owner, "kind") == "Job" and text(owner, "apiVersion").startswith("batch.volcano.sh/"):
        for number, (_, volume) in enumerate(items(owner, "spec.volumes")):
            name = f"{text(owner, 'metadata.name')}-volume-{number}"
            yield name, text(volume, "volumeClaimName") or name, {"spec": volume.get("volumeClaim")}


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
    """The metadata of a pod's claim, with those of its template."""
    meta, said = pod.metadata, template.get("metadata") or {}
    kept = {key: said[key] for key in ("labels", "annotations") if key in said}
    own = {"name": f"{meta.name}-{name}", "namespace": meta.namespace or "default", "uid": f"{meta.uid}-{name}"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    return {**kept, **own, "ownerReferences": [owner]}
