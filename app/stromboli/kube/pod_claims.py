"""Which claims a pod's volumes stand for: those that it names, and those that are made for its ephemeral volumes.

The claim of a generic ephemeral volume is called `POD-VOLUME`. Kubernetes' ephemeral volume controller makes it and has
the pod own it; a claim of that name that the pod does not own is not the pod's.
"""

from __future__ import annotations

from stromboli.kube.storage import PersistentVolumeClaim, Storage
from stromboli.state.pods import PodRecord


def claims_of(pod: PodRecord, storage: Storage) -> list[PersistentVolumeClaim]:
    """The claims of a pod's volumes that exist, in the order of the volumes."""
    found = (storage.claim(pod.namespace, name) for name in pod.pod_class.claims)
    return [claim for claim in found if claim is not None]


def missing_claim(pod: PodRecord, storage: Storage) -> str | None:
    """Which of its claims the pod does not have, in kube-scheduler's words; None when it has them all."""
    for name in pod.pod_class.claims:
        claim, ephemeral = storage.claim(pod.namespace, name), name in pod.pod_class.ephemeral_claims
        if claim is None and ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if ephemeral and claim.controller != pod.uid:
            return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return None


def claim_obstacle(pod: PodRecord, storage: Storage) -> str | None:
    """Why the pod cannot use its claims on whatever node, in kube-scheduler's words; None when it can."""
    return missing_claim(pod, storage) or next(filter(None, map(_unusable, claims_of(pod, storage))), None)


def _unusable(claim: PersistentVolumeClaim) -> str | None:
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name or ""}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return None
