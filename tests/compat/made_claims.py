"""Claims that controllers make for a pod: of its ephemeral volumes, and of its templates of ResourceClaims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.compat.scenes import OWNER, Object


def claims_of(pod: Object, specs: Mapping[str, Object]) -> Iterator[tuple[str, Object]]:
    """The claims of a pod, each with its collection; `specs` are those of the claims that templates are named after."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
    for volume, template in _ephemeral(pod):
        owners = [] if OWNER in template.get("metadata", {}).get("labels", ()) else [owner]
        metadata = {"name": f"{name}-{volume}", "ownerReferences": owners}
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        yield path, {"metadata": metadata, "spec": template["spec"]}
    for template in _templates(pod):
        if template in specs:
            metadata = {"name": f"{name}-{template}", "ownerReferences": [owner]}
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
            yield path, {"metadata": metadata, "spec": specs[template]}


def statuses_of(pod: Object, specs: Mapping[str, Object]) -> list[Object]:
    """What the pod's status says of the claims that were made of templates."""
    name = pod["metadata"]["name"]
    return [{"name": each, "resourceClaimName": f"{name}-{each}"} for each in _templates(pod) if each in specs]


def named_claims(pod: Object) -> list[str]:
    """The ResourceClaims of a pod; empty names stand for those that are not made."""
    made = {each["name"]: each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())}
    claims = pod["spec"].get("resourceClaims", ())
    return [each.get("resourceClaimName") or made.get(each["name"], "") for each in claims]


def of_templates(pod: Object) -> bool:
    """Whether controllers make claims for a pod."""
    return any(_ephemeral(pod)) or any(_templates(pod))


def _ephemeral(pod: Object) -> Iterator[tuple[str, Object]]:
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" in volume:
            yield volume["name"], volume["ephemeral"]["volumeClaimTemplate"]


def _templates(pod: Object) -> Iterator[str]:
    for claim in pod["spec"].get("resourceClaims", ()):
        if "resourceClaimTemplateName" in claim:
            yield claim["resourceClaimTemplateName"]
