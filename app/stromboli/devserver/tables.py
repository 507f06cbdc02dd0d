"""Rows and columns of `meta/v1 Table`, so that `kubectl get` shows what it shows on a real cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from .clock import parse
from .resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTION_BUDGETS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Column,
    Object,
    Resource,
)

Cells: TypeAlias = list[Any]
_ROLE_LABEL = "node-role.kubernetes.io/"


def columns(resource: Resource) -> list[dict[str, Any]]:
    """The columnDefinitions of the resource's table."""
    if resource.key in _TABLES:
        shown = [_definition(Column(name, "", kind, priority=p)) for name, kind, p in _TABLES[resource.key][0]]
    elif resource.columns:
        shown = [_definition(column) for column in resource.columns]
    else:
        shown = [_definition(Column("Age", "", "date"))]
    return [_definition(Column("Name", "", "string", "name")), *shown]


def cells(resource: Resource, body: Object) -> Cells:
    """The cells of the object's row, in the order of `columns`."""
    name = body["metadata"]["name"]
    if resource.key in _TABLES:
        return [name, *_TABLES[resource.key][1](body)]
    if resource.columns:
        return [name, *(_custom_cell(column, body) for column in resource.columns)]
    return [name, _age(body)]


def duration(seconds: float) -> str:
    """A duration in the two largest units that matter, as kubectl writes ages: 45s, 3m20s, 5h, 12d."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    return f"{days}d" if days < 2 * 365 else f"{days // 365}y"


def json_path(body: Any, path: str) -> list[Any]:
    """The values at a JSONPath of keys, indices, [*] and [?(@.key=="value")]."""
    nodes = [body]
    for match in _STEP.finditer(path):
        nodes = [value for node in nodes for value in _step(node, match)]
    return nodes


_STEP = re.compile(
    r"""\[\?\(@\.(?P<filter>[^=\s]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]"""
    r"""|\[(?P<index>\d+|\*)\]|\['(?P<quoted>[^']+)'\]|\.?(?P<key>(?:\\.|[^.\[\]])+)"""
)


def _step(node: Any, match: re.Match[str]) -> Iterator[Any]:
    key = match["quoted"] or (match["key"] or "").replace("\\", "")
    if key:
        if isinstance(node, dict) and key in node:
            yield node[key]
    elif isinstance(node, list):
        if match["filter"]:
            yield from (item for item in node if str(item.get(match["filter"])) == match["value"])
        elif match["index"] == "*":
            yield from node
        elif int(match["index"]) < len(node):
            yield node[int(match["index"])]


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _custom_cell(column: Column, body: Object) -> Any:
    found = json_path(body, column.path)
    if not found or found[0] is None:
        return None
    value = found[0]
    if column.type == "date":
        return _since(str(value))
    if column.type == "string" and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _since(text: str | None) -> str:
    if not text:
        return "<unknown>"
    return duration((datetime.now(UTC) - parse(text)).total_seconds())


def _age(body: Object) -> str:
    return _since(body["metadata"].get("creationTimestamp"))


def _pod(pod: Object) -> Cells:
    spec, status = pod["spec"], pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    ready = sum(1 for c in containers if c.get("ready"))
    restarts = sum(c.get("restartCount", 0) for c in containers)
    conditions = status.get("conditions") or ()
    gates = spec.get("readinessGates") or ()
    passed = sum(any(c["type"] == g["conditionType"] and c["status"] == "True" for c in conditions) for g in gates)
    return [
        f"{ready}/{len(spec['containers'])}",
        _pod_status(pod),
        str(restarts),
        _age(pod),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{passed}/{len(gates)}" if gates else "<none>",
    ]


def _pod_status(pod: Object) -> str:
    """One word for the state of a pod: what keeps it from running, else its phase."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        for phase in ("waiting", "terminated"):
            if reason := (state.get(phase) or {}).get("reason"):
                return str(reason)
    gated = pod["spec"].get("schedulingGates") and not pod["spec"].get("nodeName")
    return "SchedulingGated" if gated else str(status.get("reason") or status.get("phase") or "Unknown")


def _node(node: Object) -> Cells:
    metadata, status = node["metadata"], node.get("status") or {}
    ready = next((c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = metadata.get("labels") or {}
    roles = sorted(label.removeprefix(_ROLE_LABEL) for label in labels if label.startswith(_ROLE_LABEL))
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or ()}
    info = status.get("nodeInfo") or {}
    return [
        ",".join(words),
        ",".join(roles) or "<none>",
        _age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(event: Object) -> Cells:
    involved = event.get("involvedObject") or {}
    seen = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return [
        _since(seen),
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        str(event.get("message", "")).strip(),
    ]


def _budget(budget: Object) -> Cells:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        _age(budget),
    ]


def _deployment(workload: Object) -> Cells:
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(workload),
    ]


def _job(job: Object) -> Cells:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    finished = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    word = "Complete" if "Complete" in finished else "Failed" if "Failed" in finished else "Running"
    return [word, f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}", _age(job)]


_Layout: TypeAlias = Sequence[tuple[str, str, int]]
"""(name, type, priority) of each column after the name; priority 1 is shown by `-o wide` only."""

_TABLES: Mapping[tuple[str, str], tuple[_Layout, Callable[[Object], Cells]]] = {
    PODS: (
        (
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            ("Age", "string", 0),
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ),
        _pod,
    ),
    NODES: (
        (
            ("Status", "string", 0),
            ("Roles", "string", 0),
            ("Age", "string", 0),
            ("Version", "string", 0),
            ("Internal-IP", "string", 1),
            ("External-IP", "string", 1),
            ("OS-Image", "string", 1),
            ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ),
        _node,
    ),
    NAMESPACES: (
        (("Status", "string", 0), ("Age", "string", 0)),
        lambda body: [body.get("status", {}).get("phase", ""), _age(body)],
    ),
    EVENTS: (
        (
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Message", "string", 0),
        ),
        _event,
    ),
    PRIORITY_CLASSES: (
        (
            ("Value", "integer", 0),
            ("Global-Default", "boolean", 0),
            ("Age", "string", 0),
            ("PreemptionPolicy", "string", 0),
        ),
        lambda body: [body["value"], body.get("globalDefault", False), _age(body), body["preemptionPolicy"]],
    ),
    DISRUPTION_BUDGETS: (
        (
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            ("Age", "string", 0),
        ),
        _budget,
    ),
    CUSTOM_RESOURCE_DEFINITIONS: (
        (("Created At", "date", 0),),
        lambda body: [body["metadata"]["creationTimestamp"]],
    ),
    ("coordination.k8s.io", "leases"): (
        (("Holder", "string", 0), ("Age", "string", 0)),
        lambda body: [(body.get("spec") or {}).get("holderIdentity", ""), _age(body)],
    ),
    ("apps", "deployments"): (
        (
            ("Ready", "string", 0),
            ("Up-to-date", "integer", 0),
            ("Available", "integer", 0),
            ("Age", "string", 0),
        ),
        _deployment,
    ),
    ("batch", "jobs"): (
        (("Status", "string", 0), ("Completions", "string", 0), ("Age", "string", 0)),
        _job,
    ),
}
