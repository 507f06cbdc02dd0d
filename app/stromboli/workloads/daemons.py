"""The pods of a DaemonSet: one for each node that its selector and affinity admit and whose taints it tolerates.

Whether there is room on the node is left to the scheduler, as its controller does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from stromboli.api import objects
from stromboli.api.errors import misfit
from stromboli.kube.node_affinity import required_nodes
from stromboli.kube.taints import REPELLING, tolerated
from stromboli.state.nodes import NodeFacts
from stromboli.workloads.paths import Object, described, mapping, text

#: the taints that pods of DaemonSets tolerate whatever their template says
_TOLERATED = (
    *((f"node.kubernetes.io/{key}", "NoExecute") for key in ("not-ready", "unreachable")),
    *(
        (f"node.kubernetes.io/{key}", "NoSchedule")
        for key in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_OF_HOSTS = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_FIELD = "metadata.name"


def daemon_pods(owner: Object, facts: NodeFacts) -> Iterator[Object]:
    """The pods of a DaemonSet, each bound by its affinity to its node, after which it is named.

    Raises InvalidObjectError for a template that cannot be read.
    """
    template = mapping(owner, "spec.template")
    spec = mapping(template, "spec")
    added = [*_TOLERATED, *((_OF_HOSTS,) if spec.get("hostNetwork") is True else ())]
    tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in added]
    spec = {**spec, "tolerations": [*(spec.get("tolerations") or ()), *tolerations]}
    try:
        typed = msgspec.convert(spec, objects.PodSpec)
    except msgspec.ValidationError as error:
        raise misfit(error, described(owner)) from None
    for node in _nodes(typed, facts):
        metadata = {**mapping(template, "metadata"), "name": f"{text(owner, 'metadata.name')}-{node}"}
        affinity = {**mapping(spec, "affinity"), "nodeAffinity": _only(node, mapping(spec, "affinity.nodeAffinity"))}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "affinity": affinity}}


def node_of_daemon(spec: objects.PodSpec) -> str:
    """The node to which a pod of a DaemonSet is bound by its affinity; empty for other pods."""
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    terms = (required.node_selector_terms if required else None) or ()
    fields = [field for term in terms for field in term.match_fields or ()]
    if len(terms) != 1 or len(fields) != 1 or fields[0].key != _FIELD or fields[0].operator != "In":
        return ""
    return (fields[0].values or [""])[0]


def _nodes(spec: objects.PodSpec, facts: NodeFacts) -> Iterator[str]:
    """The names of the nodes that are to run a pod."""
    admitted = required_nodes(spec, facts)
    for row in range(len(facts)) if admitted is None else np.flatnonzero(admitted):
        node = facts.records[row]
        taints = (taint for taint in node.taints if taint.effect in REPELLING)
        named = not spec.node_name or spec.node_name == node.name
        if named and all(tolerated(spec.tolerations or (), taint) for taint in taints):
            yield node.name


def _only(node: str, affinity: Object) -> Object:
    """A node affinity that requires one node, in place of what it required."""
    terms = [{"matchFields": [{"key": _FIELD, "operator": "In", "values": [node]}]}]
    return {**affinity, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
