"""Validation of objects before they enter the state; errors name the field that cannot be read.

API servers accept more than the scheduler can use. An unusable object is an error, and the caller sets it aside; an
invalid annotation counts as absent and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from stromboli.api import conditions, duration, objects, readers
from stromboli.api.crds import KINDS, RUN_TIME, HyperNode, LabelSelector, Member, PodGroup, Queue, run_time
from stromboli.api.errors import InvalidObjectError, InvalidQuantityError, misfit
from stromboli.api.keys import is_name
from stromboli.api.resources import amount, is_scheduled
from stromboli.api.validation import field_path, shown
from stromboli.framework.cluster.tenants import NAMESPACES, SELECTOR
from stromboli.kube import storage
from stromboli.kube.dra import objects as devices
from stromboli.state import selectors
from stromboli.state.cluster import object_key
from stromboli.state.pods import PREEMPTABLE

Reader: TypeAlias = Callable[[str], object]
"""Reads an annotation; None or a ValueError means that it is invalid."""
Path: TypeAlias = tuple[int | str, ...]

#: Limit on a pod's conditions about other pods, about nodes, on its tolerations and host ports; on the subgroup
#: policies of a PodGroup; and on the node patterns of a HyperNode. Each is evaluated against all nodes or pods.
_MOST_CONDITIONS = 256
#: limit on the keys and conditions of a PodGroup's sub group policies together: each is asked of all its pods
_MOST_OF_GROUPS = 1_024
#: limit on the entries of a list or a map of a PodGroup or Queue
_MOST_ENTRIES = 1_024
_LONGEST = 64
#: the schema of kinds that rules and plugins read as plain data
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


def _topology_mode(text: str) -> str | None:
    return text if text.lower() in ("hard", "soft") else None


def _namespaces(text: str) -> list[str] | None:
    """Names of namespaces; patterns are none."""
    found = [*filter(None, map(str.strip, text.split(",")))]
    return found if all(map(is_name, found)) else None


def _boolean(text: str) -> bool | None:
    """Whether a text says yes or no, in the spellings that Go reads."""
    known = {"1": True, "t": True, "T": True, "0": False, "f": False, "F": False}
    known |= {spelt: word == "true" for word in ("true", "false") for spelt in (word, word.upper(), word.title())}
    return known.get(text)


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
        PREEMPTABLE: _boolean,
        "volcano.sh/network-topology-mode": _topology_mode,
        "volcano.sh/task-priority": _priority,
        "volcano.sh/cooldown-time": duration.parse,
        "volcano.sh/network-topology-highest-tier": readers.count,
        "volcano.sh/resource-strategy-weight": lambda text: readers.json(text, dict[str, readers.Integer]),
    },
    "PodGroup": {
        PREEMPTABLE: _boolean,
        "volcano.sh/network-topology-mode": _topology_mode,
        RUN_TIME: run_time,
        "volcano.sh/sla-waiting-time": duration.parse,
        "sla-waiting-time": duration.parse,
        "stromboli.io/max-run-time": duration.parse,
        "volcano.sh/jdb-min-available": _pods,
        "volcano.sh/jdb-max-unavailable": _pods,
    },
    "Queue": {
        "volcano.sh/hierarchy-weights": _weights,
        "volcano.sh/nodegroup-resource-limits": _limits,
        NAMESPACES: _namespaces,
        SELECTOR: selectors.parsed,
    },
    "Node": {
        "volcano.sh/oversubscription-cpu": readers.surplus,
        "volcano.sh/oversubscription-memory": readers.surplus,
    },
}


@dataclass(frozen=True, slots=True)
class _Lists:
    """Annotations of a kind of object that are lists: their separators, and their maximum number of entries."""

    separators: Mapping[str, str]
    most: int

    def check(self, described: str, annotations: Mapping[str, str] | None) -> None:
        """Raises InvalidObjectError that names the first that is too long."""
        if not annotations or self.separators.keys().isdisjoint(annotations):
            return
        for key, separators in self.separators.items():
            entries = 1 + sum(map(annotations.get(key, "").count, separators))
            if entries > self.most:
                problem = f"has {entries} entries, more than {self.most}"
                raise InvalidObjectError(described, field_path(("metadata", "annotations", key)), problem)


#: annotations that name cards, and those that a pod holds
_LISTS_OF_PODS = _Lists(
    {
        "volcano.sh/vgpu-use-gpuuuid": ",",
        "volcano.sh/vgpu-nouse-gpuuuid": ",",
        "nvidia.com/use-gputype": ",",
        "nvidia.com/nouse-gputype": ",",
        "volcano.sh/vgpu-ids-new": ":;",
        "volcano.sh/gpu-index": ",",
    },
    _MOST_ENTRIES,
)
#: annotations about roles: each is compared with each
_LISTS_OF_POD_GROUPS = _Lists(
    {
        "volcano.sh/task-topology-affinity": ",;",
        "volcano.sh/task-topology-anti-affinity": ",;",
        "volcano.sh/task-topology-task-order": ",",
    },
    _MOST_CONDITIONS,
)
#: the path of a queue
_LISTS_OF_QUEUES = _Lists(
    {"volcano.sh/hierarchy": "/", "volcano.sh/hierarchy-weights": "/"},
    _LONGEST,
)


def read(kind: str, obj: Any) -> Any:
    """The object as the state takes it, a custom resource as plain data or parsed.

    Raises InvalidObjectError, which names the first invalid field.
    """
    if isinstance(obj, objects.Pod):
        _check_pod(obj)
    elif isinstance(obj, objects.Node):
        _check_amounts(obj, ("status", "allocatable"), obj.status.allocatable)
        _check_amounts(obj, ("status", "capacity"), obj.status.capacity)
    elif kind in KINDS:
        obj = KINDS[kind].parse(obj) if isinstance(obj, dict) else obj
        if isinstance(obj, PodGroup):
            _check_pod_group(obj)
        if isinstance(obj, Queue):
            _check_queue(obj)
        if isinstance(obj, HyperNode) and (asked := sum(map(_asked_of_nodes, obj.spec.members))) > _MOST_CONDITIONS:
            problem = f"selects nodes by {asked} patterns and conditions, more than {_MOST_CONDITIONS}"
            raise InvalidObjectError(f"HyperNode {obj.key}", "spec.members", problem)
    elif kind in _SHAPES:
        _check_shape(kind, obj)
    return obj


def shape(kind: str) -> Any:
    """The struct with the fields of a plain kind that rules and plugins read; None for kinds that none reads."""
    return _SHAPES.get(kind)


def unread(kind: str, obj: Any) -> list[str]:
    """The invalid annotations of an object with their problems, in order."""
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
    _LISTS_OF_PODS.check(_described(pod), meta.annotations)
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
        problem = f"has {len(spec.tolerations or ())} tolerations, more than {_MOST_CONDITIONS}"
        raise InvalidObjectError(_described(pod), "spec.tolerations", problem)
    if ports > _MOST_CONDITIONS:
        _check_ports(pod)


def _check_pod_group(pod_group: PodGroup) -> None:
    spec, described = pod_group.spec, f"PodGroup {pod_group.key}"
    policies = spec.sub_group_policy
    if len(policies) > _MOST_CONDITIONS:
        problem = f"has {len(policies)} entries, more than {_MOST_CONDITIONS}"
        raise InvalidObjectError(described, "spec.subGroupPolicy", problem)
    asked = sum(len(policy.match_label_keys) + _asked_of_labels(policy.label_selector) for policy in policies)
    if asked > _MOST_OF_GROUPS:
        problem = f"divides pods by {asked} keys and conditions, more than {_MOST_OF_GROUPS}"
        raise InvalidObjectError(described, "spec.subGroupPolicy", problem)
    _check_size(described, "spec.minTaskMember", spec.min_task_member)
    _check_size(described, "spec.minResources", spec.min_resources)
    _LISTS_OF_POD_GROUPS.check(described, pod_group.metadata.annotations)


def _check_queue(queue: Queue) -> None:
    spec, described = queue.spec, f"Queue {queue.metadata.name}"
    for path, amounts in (
        ("spec.capability", spec.capability),
        ("spec.deserved", spec.deserved),
        ("spec.guarantee.resource", spec.guarantee.resource),
        ("spec.borrowingLimit", spec.borrowing_limit),
        ("spec.lendingLimit", spec.lending_limit),
        *(
            (f"spec.pools[{at}].{word}", amounts)
            for at, pool in enumerate(spec.pools)
            for word, amounts in pool.amounts.items()
        ),
    ):
        _check_size(described, path, amounts)
    _LISTS_OF_QUEUES.check(described, queue.metadata.annotations)


def _check_size(described: str, path: str, entries: Sized | None) -> None:
    if entries is not None and len(entries) > _MOST_ENTRIES:
        raise InvalidObjectError(described, path, f"has {len(entries)} entries, more than {_MOST_ENTRIES}")


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
    # Cached texts are short: longer quantities are invalid.
    known = not isinstance(value, str) or len(value) <= _LONGEST
    return (_amount_problem if known else _amount_problem.__wrapped__)(name, value)


@lru_cache(maxsize=4096, typed=True)
def _amount_problem(name: str, value: objects.Quantity) -> str:
    """The problem of an amount in a resource list, empty for none."""
    try:
        negative = is_scheduled(name) and amount(name, value) < 0
    except InvalidQuantityError as error:
        return str(error)
    return f"should not be negative, but is {shown(value)}" if negative else ""


def _check_ports(pod: objects.Pod) -> None:
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    of_nodes = sum(bool(port.host_port) for each in containers for port in each.ports or ())
    if of_nodes > _MOST_CONDITIONS:
        problem = f"has {of_nodes} host ports, more than {_MOST_CONDITIONS}"
        raise InvalidObjectError(_described(pod), "spec.containers", problem)


def _check_time(pod: objects.Pod, path: str, time: str | None) -> None:
    if time and readers.seconds(time) is None:
        raise InvalidObjectError(_described(pod), path, f"should be an RFC 3339 time, not {shown(time)}")


def _check_conditions(pod: objects.Pod) -> None:
    for what, count in (("pods", conditions.on_pods(pod.spec)), ("nodes", conditions.on_nodes(pod.spec))):
        if count > _MOST_CONDITIONS:
            problem = f"selects {what} by {count} conditions, more than {_MOST_CONDITIONS}"
            raise InvalidObjectError(_described(pod), "spec", problem)


def _asked_of_nodes(member: Member) -> int:
    """The conditions of a HyperNode's member that are evaluated for every node."""
    return _asked_of_labels(member.selector.label_match) + (member.selector.regex_match is not None)


def _asked_of_labels(selector: LabelSelector | None) -> int:
    """The conditions of a selector of a custom resource."""
    return 0 if selector is None else len(selector.match_labels) + len(selector.match_expressions)


def _described(obj: objects.Pod | objects.Node) -> str:
    return f"{type(obj).__name__} {object_key(obj)}"
