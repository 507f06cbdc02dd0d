"""What a pod asks for, as kube-scheduler counts it.

Containers run together, and init containers before them, one after the other; a sidecar, an init container that is
restarted always, runs from its turn on. So a pod asks for the larger of all containers with all sidecars, and of each
init container with the sidecars before it. What the pod asks for as a whole (`spec.resources`) stands in place of that,
and overhead comes on top.
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

#: of a resource list the amounts by name
Reader = Callable[[objects.ResourceList | None], dict[str, Amount]]

_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


def is_pod_level(resource: str) -> bool:
    """Whether a pod can ask for a resource as a whole; of others what containers ask for counts."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def pod_level(spec: objects.PodSpec, what: What) -> objects.ResourceList:
    """What a pod asks for as a whole, resources left out for which it cannot."""
    listed = getattr(spec.resources, what) if spec.resources is not None else None
    return {name: value for name, value in (listed or {}).items() if is_pod_level(name)}


def total(
    spec: objects.PodSpec, what: What, read: Reader[Amount], unset: Mapping[str, Amount] | None = None
) -> dict[str, Amount]:
    """What a pod asks for of each resource that it names, overhead included; of limits only where there is one.

    A container that does not name a resource asks for `unset` of it.
    """
    out = {**of_containers(spec, what, read, unset), **read(pod_level(spec, what))}
    for name, amount in (read(spec.overhead) if spec.overhead else {}).items():
        if what == "requests" or out.get(name):
            out[name] = out[name] + amount if name in out else amount
    return out


def of_containers(
    spec: objects.PodSpec, what: What, read: Reader[Amount], unset: Mapping[str, Amount] | None = None
) -> dict[str, Amount]:
    """What the containers of a pod ask for in all; see `total`."""
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
    """A pod with the requests by which it counts in its spec; the same object where those are the spec's.

    While a pod on a node is resized, each container counts with the largest of what the spec requests, what the node
    allocated and what is in force; where the node can never grant what the spec requests, with that left out. The same
    goes for what the pod requests as a whole.
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
    """Containers with the requests by which they count; the same list where those are the spec's."""
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
    """The requests that count, as the spec writes them where it requests as much."""
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
    """Whether the node can never grant what the spec requests."""
    pending = next((each for each in conditions if each.type == _RESIZE_PENDING), None)
    return pending is not None and pending.reason == _INFEASIBLE


def _exact(value: objects.Quantity) -> Fraction:
    """A quantity; what is none is less than all."""
    try:
        return parse(value)
    except InvalidQuantityError:
        return Fraction(-1)
