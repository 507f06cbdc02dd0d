"""ProvisioningRequests, by which cluster autoscalers are asked for nodes, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stromboli.api.crds import SCHEDULING
from stromboli.api.keys import inner_name, namespace_of
from stromboli.state.snapshot import Snapshot
from stromboli.workloads.native import is_native

#: conditions after which a request is worth nothing
OVER = ("Failed", "BookingExpired", "CapacityRevoked")


def nodes_asked_for(snapshot: Snapshot, job: str) -> str:
    """State of the requests for the nodes of a job, by its key; empty without one."""
    requests: Mapping[str, Any] = snapshot.objects.get("ProvisioningRequest", {})
    beside = (requests[key] for key in requests if namespace_of(key) == namespace_of(job))
    own = (each for each in beside if group_of_request(each) == job)
    return "; ".join(f"ProvisioningRequest {each['metadata']['name']}: {_told(each)}" for each in own)


def _told(request: Mapping[str, Any]) -> str:
    said = news_of(request)
    if said is None:
        return "the autoscaler has not answered yet"
    word, message = said
    return f"no nodes yet: {message or 'no reason'}" if word == "NodesNotFound" else message


def group_of_request(request: Mapping[str, Any]) -> str:
    """The key of the PodGroup for which a request was made here; empty for requests of others."""
    meta = request["metadata"]
    for each in meta.get("ownerReferences") or ():
        if each.get("kind") == "PodGroup" and each.get("apiVersion") == SCHEDULING:
            return f"{meta['namespace']}/{each['name']}"
        if is_native(each):
            return f"{meta['namespace']}/{inner_name(each['name'])}"
    return ""


def answer_of(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The condition that says what became of a request; None while there is no answer."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    found = {each.get("type"): each for each in conditions if each.get("status") == "True"}
    return next((found[type] for type in (*OVER, "Provisioned") if type in found), None)


def news_of(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """The reason of the Event about what became of a request, and its message; None where there is nothing to tell."""
    said = answer_of(request)
    if said is not None:
        word = "NodesRefused" if said["type"] in OVER else "NodesProvisioned"
        return word, f"{said['type']}: {said.get('message') or 'no reason'}"
    conditions = (request.get("status") or {}).get("conditions") or ()
    looks = next((each for each in conditions if each.get("type") == "Provisioned"), None)
    return None if looks is None else ("NodesNotFound", str(looks.get("message") or looks.get("reason") or ""))
