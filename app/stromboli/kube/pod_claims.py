"""The claims behind a pod's volumes: those that it names, and those of its generic ephemeral volumes.

The claim of an ephemeral volume is called `POD-VOLUME`, created by the ephemeral volume controller and owned by the
pod; a claim of that name with another owner is not the pod's.
"""

from __future__ import annotations

from stromboli.framework.plugin.causes import Anywhere, Unprovided
from stromboli.kube.storage import PersistentVolumeClaim, Storage
from stromboli.state.pods import PodRecord


def claims_of(pod: PodRecord, storage: Storage) -> list[PersistentVolumeClaim]:
    """The existing claims of a pod's volumes, in the order of the volumes."""
    return [claim for claim in storage.claims(pod.namespace, pod.pod_class.claims) if claim is not None]


def missing_claim(pod: PodRecord, storage: Storage) -> Anywhere | None:
    """The missing claim of a pod, in kube-scheduler's words; None if there is none."""
    names = pod.pod_class.claims
    for name, claim in zip(names, storage.claims(pod.namespace, names), strict=True):
        ephemeral = name in pod.pod_class.ephemeral_claims
        if claim is None and ephemeral:
            return Unprovided(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        if claim is None:
            return Anywhere(f'persistentvolumeclaim "{name}" not found')
        if ephemeral and claim.controller != pod.uid:
            return Anywhere(f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)")
    return None


def claim_obstacle(pod: PodRecord, storage: Storage) -> Anywhere | None:
    """Why a pod cannot use its claims on any node, in kube-scheduler's words; None if it can."""
    missing = missing_claim(pod, storage)
    if missing is not None:
        return missing
    for claim in claims_of(pod, storage):
        unusable = _unusable(claim)
        if unusable is not None:
            return Anywhere(unusable)
    return None


def _unusable(claim: PersistentVolumeClaim) -> str | None:
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name or ""}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return None
