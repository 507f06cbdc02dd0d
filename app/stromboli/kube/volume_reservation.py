"""Claims and volumes as plain data, when they are bound for a pod and when that is undone.

As in kube-scheduler, controllers do the binding: an existing volume gets the claim's reference, by which the persistent
volume controller binds both; for a volume to be provisioned, the claim names the pod's node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from stromboli.api import keys
from stromboli.api.errors import StromboliError
from stromboli.kube.storage import BIND_COMPLETED, SELECTED_NODE

Plain: TypeAlias = Mapping[str, Any]

#: marks a reference that no user wrote, so that it can be removed again
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class StaleVolumeError(StromboliError):
    """A claim or volume has changed since a session decided that a pod uses it."""


class VolumeRefusedError(StromboliError):
    """No volume was provisioned for a node, or not in time."""


def annotations_of(obj: Plain) -> Mapping[str, Any]:
    """The annotations of an object."""
    return (obj.get("metadata") or {}).get("annotations") or {}


def annotated(obj: Plain, more: Mapping[str, str]) -> dict[str, Any]:
    """An object with additional annotations."""
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations_of(obj), **more}}}


def volume_name(claim: Plain) -> str:
    """The name of the volume of a claim, bound or about to be; empty for none."""
    return str((claim.get("spec") or {}).get("volumeName") or "")


def is_bound(claim: Plain) -> bool:
    """Whether a claim is bound."""
    return bool(volume_name(claim)) and BIND_COMPLETED in annotations_of(claim)


def selected_node(claim: Plain) -> str:
    """The node that a claim's volume is being provisioned for, empty for none."""
    return str(annotations_of(claim).get(SELECTED_NODE) or "")


def claim_of(volume: Plain) -> str:
    """`NAMESPACE/NAME` of the claim that a volume refers to, empty for none."""
    ref = (volume.get("spec") or {}).get("claimRef") or {}
    return keys.key(ref.get("namespace") or "default", ref["name"]) if ref.get("name") else ""


def names(volume: Plain, claim: Plain) -> bool:
    """Whether a volume refers to a claim, including its uid."""
    ref = (volume.get("spec") or {}).get("claimRef") or {}
    return claim_of(volume) == _key(claim) and ref.get("uid") == claim["metadata"].get("uid")


def is_returnable(volume: Plain) -> bool:
    """Whether a volume's reference was written by a controller, and the volume is not bound yet."""
    phase = (volume.get("status") or {}).get("phase")
    return BY_CONTROLLER in annotations_of(volume) and phase in (None, "", "Available", "Pending")


def is_written_by_another(obj: Plain, manager: str) -> bool:
    """Whether a field manager, but not this one, wrote the node that a claim names or the claim of a volume."""
    writers = set()
    for entry in (obj.get("metadata") or {}).get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        annotations = (fields.get("f:metadata") or {}).get("f:annotations") or {}
        if f"f:{SELECTED_NODE}" in annotations or "f:claimRef" in (fields.get("f:spec") or {}):
            writers.add(entry.get("manager"))
    return bool(writers) and manager not in writers


def check_claim(claim: Plain | None, key: str, uid: str) -> Plain:
    """A claim that can still be bound for a pod. Raises StaleVolumeError."""
    metadata = (claim.get("metadata") or {}) if claim is not None else {}
    if claim is None or metadata.get("uid") != uid or metadata.get("deletionTimestamp"):
        raise StaleVolumeError(f"persistentvolumeclaim {key} was deleted")
    return claim


def check_volume(volume: Plain | None, name: str, claim: Plain) -> Plain:
    """A volume that can still be bound to a claim. Raises StaleVolumeError."""
    if volume is None or (volume.get("metadata") or {}).get("deletionTimestamp"):
        raise StaleVolumeError(f"persistentvolume {name} was deleted")
    ref = (volume.get("spec") or {}).get("claimRef") or {}
    free = not ref or (claim_of(volume) == _key(claim) and ref.get("uid") in (None, "", claim["metadata"].get("uid")))
    if not free:
        raise StaleVolumeError(f"persistentvolume {name} was bound to another claim in the meantime")
    if volume_name(claim) not in ("", name):
        raise StaleVolumeError(f"persistentvolumeclaim {_key(claim)} was bound to another volume in the meantime")
    return volume


def bound_to(volume: Plain, claim: Plain) -> dict[str, Any]:
    """The patch that makes a volume refer to a claim."""
    metadata = claim["metadata"]
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.get("namespace") or "default",
        "name": metadata["name"],
        "uid": metadata.get("uid"),
        "resourceVersion": metadata.get("resourceVersion"),
    }
    by_us = {} if claim_of(volume) else {"metadata": {"annotations": {BY_CONTROLLER: "yes"}}}
    return {**by_us, "spec": {"claimRef": {name: value for name, value in ref.items() if value}}}


def selecting(node: str | None) -> dict[str, Any]:
    """The patch that has a claim's volume provisioned for a node, None for none."""
    return {"metadata": {"annotations": {SELECTED_NODE: node}}}


#: the patch that releases a volume
RETURNED: Plain = {"metadata": {"annotations": {BY_CONTROLLER: None}}, "spec": {"claimRef": None}}


def on_version(obj: Plain, patch: Plain) -> dict[str, Any]:
    """The patch with a resourceVersion, so that it fails if the object has changed."""
    own = {name: obj["metadata"][name] for name in ("uid", "resourceVersion") if obj["metadata"].get(name)}
    return {**patch, "metadata": {**patch.get("metadata", {}), **own}}


def shown_bound(volume: Plain, claim: Plain) -> dict[str, Any]:
    """A volume with the patch `bound_to` applied."""
    patch = bound_to(volume, claim)
    changed = {**volume, "spec": {**(volume.get("spec") or {}), **patch["spec"]}}
    return annotated(changed, patch["metadata"]["annotations"]) if "metadata" in patch else changed


def completed(claim: Plain, volume: str) -> dict[str, Any]:
    """A claim bound to its volume."""
    return annotated({**claim, "spec": {**(claim.get("spec") or {}), "volumeName": volume}}, {BIND_COMPLETED: "yes"})


def _key(claim: Plain) -> str:
    return keys.key(claim["metadata"].get("namespace") or "default", claim["metadata"]["name"])
