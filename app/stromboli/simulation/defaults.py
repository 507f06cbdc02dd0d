"""Objects and fields that the API server has or fills in by default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.workloads.amounts import with_requests
from stromboli.workloads.paths import mapping, text

#: the priority classes that every cluster has, and their values
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def generated_names() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Function that names manifests with a `generateName` instead of a name, uniquely, by a number."""
    used: Counter[tuple[Any, ...]] = Counter()

    def named(manifest: dict[str, Any]) -> dict[str, Any]:
        metadata, base = mapping(manifest, "metadata"), text(manifest, "metadata.generateName")
        if metadata.get("name") or not base:
            return manifest
        like = (manifest["kind"], str(metadata.get("namespace")), base)
        used[like] += 1
        return {**manifest, "metadata": {**metadata, "name": f"{base}{used[like] - 1}"}}

    return named


def with_defaults(pod: objects.Pod) -> objects.Pod:
    """The pod with the defaults that the API server adds to its spec on creation."""
    spec = with_requests(pod.spec)
    if spec.host_network:
        both = (spec.containers, spec.init_containers)
        containers, init = (None if each is None else [_on_host(one) for one in each] for each in both)
        spec = replace(spec, containers=containers, init_containers=init)
    if spec.affinity and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity):
        labels = pod.metadata.labels or {}
        near, far = (_of_labels(each, labels) for each in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity))
        spec = replace(spec, affinity=replace(spec.affinity, pod_affinity=near, pod_anti_affinity=far))
    return replace(pod, spec=spec)


def of_runtime_class(pod: objects.Pod, runtime: objects.RuntimeClass | None) -> objects.Pod:
    """The pod with the overhead, node selector and tolerations of its RuntimeClass."""
    if runtime is None:
        return pod
    spec, rules = pod.spec, runtime.scheduling or objects.RuntimeClassScheduling()
    given, added = spec.tolerations or [], rules.tolerations or []
    spec = replace(
        spec,
        overhead=spec.overhead or (runtime.overhead.pod_fixed if runtime.overhead else None),
        node_selector={**(spec.node_selector or {}), **(rules.node_selector or {})} or None,
        tolerations=[*given, *(each for each in added if each not in given)] or None,
    )
    return replace(pod, spec=spec)


def with_allocatable(node: objects.Node) -> objects.Node:
    """The node with all of its capacity allocatable, unless it says otherwise."""
    status = node.status
    if status.allocatable is not None or status.capacity is None:
        return node
    return replace(node, status=replace(status, allocatable=status.capacity))


def _on_host(container: objects.Container) -> objects.Container:
    """A container of a pod with its node's network: its ports are ports of the node."""
    ports = [replace(port, host_port=port.host_port or port.container_port) for port in container.ports or ()]
    return replace(container, ports=ports) if ports else container


def _of_labels(affinity: objects.PodAffinity | None, labels: Mapping[str, str]) -> objects.PodAffinity | None:
    """The terms of a pod with these labels, with matchLabelKeys and mismatchLabelKeys in their selectors."""
    if affinity is None:
        return None
    required, preferred = affinity.required, affinity.preferred
    if required is not None:
        required = [_merged(term, labels) for term in required]
    if preferred is not None:
        preferred = [replace(each, pod_affinity_term=_merged(each.pod_affinity_term, labels)) for each in preferred]
    return replace(affinity, required=required, preferred=preferred)


def _merged(term: objects.PodAffinityTerm, labels: Mapping[str, str]) -> objects.PodAffinityTerm:
    selector = term.label_selector
    if selector is None:
        return term
    keys = ((term.match_label_keys, "In"), (term.mismatch_label_keys, "NotIn"))
    same = [objects.Requirement(k, operator, [labels[k]]) for of, operator in keys for k in of or () if k in labels]
    if not same:
        return term
    return replace(
        term, label_selector=replace(selector, match_expressions=[*(selector.match_expressions or ()), *same])
    )
