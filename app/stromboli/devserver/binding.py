"""The `binding` subresource of pods: how a scheduler assigns a pod to a node."""

from __future__ import annotations

from .clock import timestamp
from .errors import conflict, unnamed
from .resources import Object, Resource


def bound(pods: Resource, pod: Object, binding: Object) -> Object:
    """The pod on the node that the binding names; Conflict (409) if it may not be assigned, or not again."""
    target = binding.get("target") or {}
    node = target.get("name")
    if not node or target.get("kind", "Node") not in ("", "Node"):
        raise unnamed("target: Required value: the name of a Node")
    _check_bindable(pods, pod)
    metadata = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if added := (binding.get("metadata") or {}).get(field):
            metadata[field] = {**metadata.get(field, {}), **added}
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()}
    others = (c for c in status.get("conditions") or () if c["type"] != "PodScheduled")
    status["conditions"] = [*others, scheduled]
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _check_bindable(pods: Resource, pod: Object) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    raise conflict(pods, name, why, "binding")
