"""What the API server has or fills in without being told."""

from __future__ import annotations

from msgspec.structs import replace

from stromboli.api import objects

#: the priority classes that every cluster has, and their values
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def with_requests(spec: objects.PodSpec) -> objects.PodSpec:
    """The spec with containers that request what they are limited to, where they say nothing else."""
    both = (spec.containers, spec.init_containers)
    if not any(each.resources and each.resources.limits for containers in both for each in containers or ()):
        return spec
    containers, init = (None if each is None else [_container(one) for one in each] for each in both)
    return replace(spec, containers=containers, init_containers=init)


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
