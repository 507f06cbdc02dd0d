"""What the API server has or fills in without being told."""

from __future__ import annotations

from msgspec.structs import replace

from stromboli.api import objects, requests
from stromboli.state.podgroups import exact, formatted

#: the priority classes that every cluster has, and their values
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def with_requests(spec: objects.PodSpec) -> objects.PodSpec:
    """The spec with containers that request what they are limited to, where they say nothing else, and pods, too."""
    both = (spec.containers, spec.init_containers)
    if any(each.resources and each.resources.limits for containers in both for each in containers or ()):
        containers, init = (None if each is None else [_container(one) for one in each] for each in both)
        spec = replace(spec, containers=containers, init_containers=init)
    whole = spec.resources
    if whole is None or not (whole.limits or whole.requests):
        return spec
    return replace(spec, resources=_pod_level(spec, whole))


def _pod_level(spec: objects.PodSpec, whole: objects.ResourceRequirements) -> objects.ResourceRequirements:
    """What a pod asks for as a whole.

    Its limits of huge pages are those of its containers. Where it has limits, it requests of cpu and memory what its
    containers do, and of what they do not request, its limits.
    """
    given, limits = whole.requests or {}, dict(whole.limits or {})
    for name, amount in requests.of_containers(spec, "limits", exact).items():
        if name.startswith("hugepages-") and name not in given:
            limits.setdefault(name, formatted(amount))
    if not limits:
        return whole
    requested = dict(given)
    for name, amount in requests.of_containers(spec, "requests", exact).items():
        if name in ("cpu", "memory"):
            requested.setdefault(name, formatted(amount))
    for name, value in limits.items():
        if requests.is_pod_level(name):
            requested.setdefault(name, value)
    return replace(whole, requests=requested, limits=limits)


def _container(container: objects.Container) -> objects.Container:
    resources = container.resources
    if resources is None or not resources.limits:
        return container
    requests = {**resources.limits, **(resources.requests or {})}
    return replace(container, resources=replace(resources, requests=requests))


def with_allocatable(node: objects.Node) -> objects.Node:
    """The node with all of its capacity for pods, where nothing else is said."""
    status = node.status
    if status.allocatable is not None or status.capacity is None:
        return node
    return replace(node, status=replace(status, allocatable=status.capacity))
