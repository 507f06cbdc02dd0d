"""The ResourceClaims that a cluster makes of templates for pods that are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.workloads.makers import RUNTIMES

_CLAIM_TEMPLATE = "ResourceClaimTemplate"
#: kinds of which other objects are made
TEMPLATES = (*RUNTIMES, _CLAIM_TEMPLATE)


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
    pod = replace(pod, metadata=replace(meta, uid=meta.uid or f"{meta.namespace}-{meta.name}"))
    statuses = [objects.PodResourceClaimStatus(name, f"{meta.name}-{name}") for name, _ in wanted]
    told = [*(status.resource_claim_statuses or ()), *statuses]
    return replace(pod, status=replace(status, resource_claim_statuses=told)), list(_made(pod, wanted))


def _made(pod: objects.Pod, wanted: list[tuple[str, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    for name, template in wanted:
        made, own = (
            template.get("spec") or {},
            {"name": f"{meta.name}-{name}", "namespace": meta.namespace or "default"},
        )
        said = made.get("metadata") or {}
        kept = {key: said[key] for key in ("labels", "annotations") if key in said}
        yield {
            "apiVersion": template.get("apiVersion") or "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {**kept, **own, "uid": f"{meta.uid}-{name}", "ownerReferences": [owner]},
            "spec": made.get("spec") or {},
        }
