"""The resource requests of a pod, as kube-scheduler computes them.

Containers run concurrently, and init containers before them, one after the other; a sidecar, an init container with
restartPolicy Always, keeps running. So the request of a pod is the maximum of the sum of containers and sidecars, and
of each init container with the sidecars before it. Pod-level resources (`spec.resources`) replace this, and overhead is
added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from stromboli.api import objects
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.quantity import parse

Amount = TypeVar("Amount", int, Fraction)
What = Literal["requests", "limits"]

#: the amounts of a resource list by name
Reader = Callable[[objects.ResourceList | None], dict[str, Amount]]

_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


def is_pod_level(resource: str) -> bool:
    """Whether a resource is supported in pod-level requests; for others the containers' requests count."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def pod_level(spec: objects.PodSpec, what: What) -> objects.ResourceList:
    """The pod-level requests, without unsupported resources."""
    listed = getattr(spec.resources, what) if spec.resources is not None else None
    return {name: value for name, value in (listed or {}).items() if is_pod_level(name)}


def total(
    spec: objects.PodSpec, what: What, read: Reader[Amount], unset: Mapping[str, Amount] | None = None
) -> dict[str, Amount]:
    """The requests of a pod for each resource that it names, including overhead; limits only where set.

    A container that does not name a resource requests `unset` of it.
    """
    out = {**of_containers(spec, what, read, unset), **read(pod_level(spec, what))}
    for name, amount in (read(spec.overhead) if spec.overhead else {}).items():
        if what == "requests" or out.get(name):
            out[name] = out[name] + amount if name in out else amount
    return out


def of_containers(
    spec: objects.PodSpec, what: What, read: Reader[Amount], unset: Mapping[str, Amount] | None = None
) -> dict[str, Amount]:
    """The sum over the containers of a pod; see `total`."""
    out: dict[str, Amount] = {}
    sidecars: dict[str, Amount] = {}
    peaks: list[dict[str, Amount]] = []
    for container in spec.containers or ():
        _add(out, _of(container, what, read, unset))
    for container in spec.init_containers or ():
        own = _of(container, what, read, unset)
        if container.restart_policy == "Always":
            _add(out, own)
            _add(sidecars, own)
        else:
            _add(own, sidecars)
            peaks.append(own)
    for peak in peaks:
        for name, amount in peak.items():
            if name not in out or amount > out[name]:
                out[name] = amount
    return out


def _of(
    container: objects.Container, what: What, read: Reader[Amount], unset: Mapping[str, Amount] | None
) -> dict[str, Amount]:
    listed = getattr(container.resources, what) if container.resources is not None else None
    return {**unset, **read(listed)} if unset else read(listed)


def _add(to: dict[str, Amount], amounts: Mapping[str, Amount]) -> None:
    for name, amount in amounts.items():
        to[name] = to[name] + amount if name in to else amount


# -- pods that are resized -------------------------------------------------------------------------------------------


def counted(pod: objects.Pod) -> objects.Pod:
    """A pod whose spec has its effective requests; the same object if nothing differs.

    While a pod on a node is resized in place, each container counts with the maximum of the requests in the spec, those
    allocated by the node and those in effect; a request that the node reports as infeasible is ignored. The same
    applies to pod-level requests.
    """
    spec, status = pod.spec, pod.status
    if not spec.node_name:
        return pod
    containers = _resized(pod, spec.containers, status.container_statuses)
    sidecars = _resized(pod, spec.init_containers, status.init_container_statuses)
    if containers is not spec.containers or sidecars is not spec.init_containers:
        spec = replace(spec, containers=containers, init_containers=sidecars)
    whole = spec.resources
    if status.resources is not None and whole is not None and whole.requests and pod_level(spec, "requests"):
        in_force = _effective(pod, whole.requests, status.resources.requests, status.allocated_resources)
        requests = {
            name: in_force.get(name, 0) if is_pod_level(name) else value for name, value in whole.requests.items()
        }
        if requests != whole.requests:
            spec = replace(spec, resources=replace(whole, requests=requests))
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _resized(
    pod: objects.Pod, containers: list[objects.Container] | None, statuses: list[objects.ContainerStatus] | None
) -> list[objects.Container] | None:
    """Containers with their effective requests; the same list if nothing differs."""
    if not statuses or not containers:
        return containers
    known = {status.name: status for status in statuses if status.resources is not None}
    if not known:
        return containers
    out, init = containers, containers is pod.spec.init_containers
    for index, container in enumerate(containers):
        status = known.get(container.name)
        if status is None or status.resources is None or (init and container.restart_policy != "Always"):
            continue
        own = (container.resources.requests if container.resources is not None else None) or {}
        requests = _effective(pod, own, status.resources.requests, status.allocated_resources)
        if requests != own:
            out = [*containers] if out is containers else out
            resources = container.resources or objects.ResourceRequirements()
            out[index] = replace(container, resources=replace(resources, requests=requests))
    return out


def _effective(
    pod: objects.Pod,
    spec: objects.ResourceList,
    actual: objects.ResourceList | None,
    allocated: objects.ResourceList | None,
) -> objects.ResourceList:
    """The effective requests, spelled as in the spec where they are equal."""
    if (actual or {}) == spec and (allocated or spec) == spec:
        return spec
    out: objects.ResourceList = {} if _is_infeasible(pod.status.conditions or ()) else dict(spec)
    for listed in (actual, allocated):
        for name, value in (listed or {}).items():
            if name not in out or _exact(value) > _exact(out[name]):
                same = name in spec and _exact(spec[name]) == _exact(value)
                out[name] = spec[name] if same else value
    return out


def _is_infeasible(conditions: Iterable[objects.PodCondition]) -> bool:
    """Whether the node has reported the request as infeasible."""
    pending = next((each for each in conditions if each.type == _RESIZE_PENDING), None)
    return pending is not None and pending.reason == _INFEASIBLE


def _exact(value: objects.Quantity) -> Fraction:
    """A quantity; an invalid one is less than all."""
    try:
        return parse(value)
    except InvalidQuantityError:
        return Fraction(-1)
