"""The gate: every object on its way into the state is read here, or the field that cannot be read is named.

API servers accept more than can be scheduled with. What cannot be used at all is an error, and whoever feeds the state
sets the object aside; an annotation that is not what it should be counts as absent, and is named as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from stromboli.api import duration, objects, readers
from stromboli.api.crds import KINDS, HyperNode, Member, PodGroup
from stromboli.api.errors import InvalidObjectError, InvalidQuantityError, misfit
from stromboli.api.resources import amount, is_scheduled
from stromboli.api.validation import field_path, shown
from stromboli.kube import storage
from stromboli.kube.dra import objects as devices
from stromboli.state.cluster import object_key

Reader: TypeAlias = Callable[[str], object]
"""Reads an annotation; None or a ValueError means that it cannot be read."""
Path: TypeAlias = tuple[int | str, ...]

#: A pod may ask so many things about other pods, as many about nodes, tolerate as many taints and take as many ports of
#: its node; a group may divide its pods in as many ways, and a HyperNode select nodes by as many. Each is asked of all.
_MOST_CONDITIONS = 256
_LONGEST = 64
#: what must be readable of kinds that rules and plugins read as plain data
_SHAPES: Mapping[str, Any] = {
    "PersistentVolume": storage.PersistentVolume,
    "PersistentVolumeClaim": storage.PersistentVolumeClaim,
    "StorageClass": storage.StorageClass,
    "CSINode": storage.CSINode,
    "CSIDriver": storage.CSIDriver,
    "CSIStorageCapacity": storage.CSIStorageCapacity,
    "VolumeAttachment": storage.VolumeAttachment,
    "ResourceClaim": devices.ResourceClaim,
    "ResourceSlice": devices.ResourceSlice,
    "DeviceClass": devices.DeviceClass,
    "DeviceTaintRule": devices.DeviceTaintRule,
    "PodDisruptionBudget": objects.DisruptionBudget,
    "ResourceQuota": objects.ResourceQuota,
}


def _priority(text: str) -> int | None:
    return readers.integer(text, -readers.INT32, readers.INT32)


def _pods(text: str) -> int | None:
    """A number of pods, or a percentage of them."""
    return readers.integer(text.removesuffix("%"))


def _weights(text: str) -> list[float] | None:
    """The weights of the parts of a path."""
    found = [readers.number(part) for part in text.split("/") if part]
    return None if None in found else [weight for weight in found if weight is not None]


def _limits(text: str) -> object:
    return readers.json(text, dict[str, dict[str, objects.Quantity]])


_ANNOTATIONS: Mapping[str, Mapping[str, Reader]] = {
    "Pod": {
        "volcano.sh/task-priority": _priority,
        "volcano.sh/cooldown-time": duration.parse,
        "volcano.sh/network-topology-highest-tier": readers.count,
        "volcano.sh/resource-strategy-weight": lambda text: readers.json(text, dict[str, readers.Integer]),
    },
    "PodGroup": {
        "volcano.sh/sla-waiting-time": duration.parse,
        "sla-waiting-time": duration.parse,
        "volcano.sh/jdb-min-available": _pods,
        "volcano.sh/jdb-max-unavailable": _pods,
    },
    "Queue": {
        "volcano.sh/hierarchy-weights": _weights,
        "volcano.sh/nodegroup-resource-limits": _limits,
    },
    "Node": {
        "volcano.sh/oversubscription-cpu": readers.surplus,
        "volcano.sh/oversubscription-memory": readers.surplus,
    },
}


def read(kind: str, obj: Any) -> Any:
    """The object as the state takes it, a custom resource as plain data or parsed.

    Raises InvalidObjectError, which names the first field that cannot be used.
    """
    if isinstance(obj, objects.Pod):
        _check_pod(obj)
    elif isinstance(obj, objects.Node):
        _check_amounts(obj, ("status", "allocatable"), obj.status.allocatable)
        _check_amounts(obj, ("status", "capacity"), obj.status.capacity)
    elif kind in KINDS:
        obj = KINDS[kind].parse(obj) if isinstance(obj, dict) else obj
        if isinstance(obj, PodGroup) and len(obj.spec.sub_group_policy) > _MOST_CONDITIONS:
            problem = f"has {len(obj.spec.sub_group_policy)} entries, more than {_MOST_CONDITIONS}"
            raise InvalidObjectError(f"PodGroup {obj.key}", "spec.subGroupPolicy", problem)
        if isinstance(obj, HyperNode) and (asked := sum(map(_asked_of_nodes, obj.spec.members))) > _MOST_CONDITIONS:
            problem = f"selects nodes by {asked} patterns and conditions, more than {_MOST_CONDITIONS}"
            raise InvalidObjectError(f"HyperNode {obj.key}", "spec.members", problem)
    elif kind in _SHAPES:
        _check_shape(kind, obj)
    return obj


def shape(kind: str) -> Any:
    """The struct with all that rules and plugins read of a kind that stays plain data; None where nobody says."""
    return _SHAPES.get(kind)


def unread(kind: str, obj: Any) -> list[str]:
    """The annotations of an object that are not what they should be, each with its problem, in order."""
    known = _ANNOTATIONS.get(kind)
    annotations: Mapping[str, str] | None = obj.metadata.annotations if known else None
    if not known or not annotations or known.keys().isdisjoint(annotations):
        return []
    return [
        f"{field_path(('metadata', 'annotations', key))}: cannot be read: {shown(annotations[key])}"
        for key in sorted(known.keys() & annotations.keys())
        if not _is_readable(known[key], annotations[key])
    ]


def _is_readable(reader: Reader, text: str) -> bool:
    try:
        return reader(text) is not None
    except ValueError:
        return False


def _check_shape(kind: str, plain: Any) -> None:
    try:
        msgspec.convert(plain, _SHAPES[kind])
    except msgspec.ValidationError as error:
        raise misfit(error, f"{kind} {object_key(plain)}") from None


def _check_pod(pod: objects.Pod) -> None:
    meta, spec = pod.metadata, pod.spec
    if spec.overhead:
        _check_amounts(pod, ("spec", "overhead"), spec.overhead)
    if spec.resources is not None:
        for what, listed in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
            _check_amounts(pod, ("spec", "resources", what), listed)
    ports = 0
    for container in spec.containers or ():
        if container.resources is not None:
            _check_container(pod, "containers", container, container.resources)
        if container.ports:
            ports += len(container.ports)
    for container in spec.init_containers or ():
        if container.resources is not None:
            _check_container(pod, "initContainers", container, container.resources)
        if container.ports:
            ports += len(container.ports)
    _check_time(pod, "metadata.creationTimestamp", meta.creation_timestamp)
    _check_time(pod, "status.startTime", pod.status.start_time)
    if spec.affinity is not None or spec.topology_spread_constraints or spec.node_selector:
        _check_conditions(pod)
    if len(spec.tolerations or ()) > _MOST_CONDITIONS:
        problem = f"holds {len(spec.tolerations or ())} tolerations, more than {_MOST_CONDITIONS}"
        raise InvalidObjectError(_described(pod), "spec.tolerations", problem)
    if ports > _MOST_CONDITIONS:
        _check_ports(pod)


def _check_container(
    pod: objects.Pod, field: str, container: objects.Container, resources: objects.ResourceRequirements
) -> None:
    requests, limits = resources.requests, resources.limits
    if (not requests or _are_amounts(requests)) and (not limits or limits == requests or _are_amounts(limits)):
        return
    containers = pod.spec.containers if field == "containers" else pod.spec.init_containers
    index = next(at for at, each in enumerate(containers or ()) if each is container)
    for what, listed in (("requests", requests), ("limits", limits)):
        _check_amounts(pod, ("spec", field, index, "resources", what), listed)


def _check_amounts(obj: objects.Pod | objects.Node, path: Path, listed: objects.ResourceList | None) -> None:
    for name, value in (listed or {}).items():
        problem = _problem(name, value)
        if problem:
            raise InvalidObjectError(_described(obj), field_path((*path, name)), problem)


def _are_amounts(listed: objects.ResourceList) -> bool:
    for name, value in listed.items():
        if (isinstance(value, str) and len(value) > _LONGEST) or _amount_problem(name, value):
            return False
    return True


def _problem(name: str, value: objects.Quantity) -> str:
    # What the cache keeps is short: no quantity is longer.
    known = not isinstance(value, str) or len(value) <= _LONGEST
    return (_amount_problem if known else _amount_problem.__wrapped__)(name, value)


@lru_cache(maxsize=4096, typed=True)
def _amount_problem(name: str, value: objects.Quantity) -> str:
    """What is wrong with an amount of a resource list, empty when nothing is."""
    try:
        negative = is_scheduled(name) and amount(name, value) < 0
    except InvalidQuantityError as error:
        return str(error)
    return f"should not be negative, but is {shown(value)}" if negative else ""


def _check_ports(pod: objects.Pod) -> None:
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    of_nodes = sum(bool(port.host_port) for each in containers for port in each.ports or ())
    if of_nodes > _MOST_CONDITIONS:
        problem = f"asks for {of_nodes} ports of its node, more than {_MOST_CONDITIONS}"
        raise InvalidObjectError(_described(pod), "spec.containers", problem)


def _check_time(pod: objects.Pod, path: str, time: str | None) -> None:
    if time and readers.seconds(time) is None:
        raise InvalidObjectError(_described(pod), path, f"should be an RFC 3339 time, not {shown(time)}")


def _check_conditions(pod: objects.Pod) -> None:
    of_pods = sum(map(_conditions, _pod_selectors(pod.spec)))
    of_nodes = sum(_requirements(term) for term in _node_terms(pod.spec)) + len(pod.spec.node_selector or ())
    for what, count in (("pods", of_pods), ("nodes", of_nodes)):
        if count > _MOST_CONDITIONS:
            problem = f"selects {what} by {count} conditions, more than {_MOST_CONDITIONS}"
            raise InvalidObjectError(_described(pod), "spec", problem)


def _conditions(selector: objects.LabelSelector | None) -> int:
    """What a selector asks; one that asks nothing is looked at as well."""
    if selector is None:
        return 1
    return 1 + len(selector.match_labels or ()) + len(selector.match_expressions or ())


def _requirements(term: objects.NodeSelectorTerm) -> int:
    return 1 + len(term.match_expressions or ()) + len(term.match_fields or ())


def _node_terms(spec: objects.PodSpec) -> Iterator[objects.NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is not None:
        if affinity.required is not None:
            yield from affinity.required.node_selector_terms or ()
        for weighted in affinity.preferred or ():
            yield weighted.preference


def _pod_selectors(spec: objects.PodSpec) -> Iterator[objects.LabelSelector | None]:
    """The selectors of a pod that are asked about other pods."""
    for spread in spec.topology_spread_constraints or ():
        yield spread.label_selector
    affinity = spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            preferred = (weighted.pod_affinity_term for weighted in part.preferred or ())
            for term in (*(part.required or ()), *preferred):
                yield term.label_selector
                if term.namespace_selector is not None:
                    yield term.namespace_selector


def _asked_of_nodes(member: Member) -> int:
    """What a member of a HyperNode asks of every node."""
    labels = member.selector.label_match
    of_labels = 0 if labels is None else len(labels.match_labels) + len(labels.match_expressions)
    return of_labels + (member.selector.regex_match is not None)


def _described(obj: objects.Pod | objects.Node) -> str:
    return f"{type(obj).__name__} {object_key(obj)}"
