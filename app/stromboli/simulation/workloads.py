"""What becomes of workloads: the pods that their controllers make, and the PodGroup where the controller makes one.

Names are those that the controllers give, with numbers where they draw at random. An object that an API server has
seen (it has a uid) has its pods beside it and becomes none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from stromboli.api import objects, quantity
from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import field_path, shown
from stromboli.simulation.defaults import with_requests
from stromboli.simulation.schema import converted
from stromboli.state.podgroups import formatted, min_resources
from stromboli.state.pods import GROUP_ANNOTATION

Manifest: TypeAlias = dict[str, Any]

#: pods that the workloads of one run may become: more are a slip of the pen
MOST_PODS = 100_000
#: fields that number the pods of a workload, or of a part of one
_COUNTS = frozenset(("completions", "minAvailable", "minReplicas", "numOfHosts", "parallelism", "replicas"))
#: the jobs that the training operator knows
_KUBEFLOW = frozenset(("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"))
_ROLE_ANNOTATION = "volcano.sh/task-spec"
_QUEUE_LABEL = "volcano.sh/queue-name"
_PRIORITY_CLASS_LABEL = "ray.io/priority-class-name"


@dataclass(slots=True)
class Role:
    """Pods of one template; what a role is called matters to a gang only."""

    #: names of the pods but for the number at their end
    prefix: str
    template: Manifest
    count: int
    name: str = ""
    #: how many of them the gang cannot do without
    needed: int = 0


@dataclass(slots=True)
class Gang:
    """The PodGroup that a controller makes; what the spec leaves out is None."""

    name: str
    min_member: int | None = None
    min_resources: Manifest | None = None
    min_task_member: Manifest | None = None
    queue: str | None = None
    priority_class: str | None = None
    network_topology: Manifest | None = None


@dataclass(slots=True)
class Parts:
    """What a workload consists of."""

    roles: list[Role]
    gang: Gang | None = None
    scheduler_name: str | None = None


@dataclass(slots=True)
class Expansion:
    """Makes the objects of workloads, not too many all in all."""

    #: the workloads whose pods were made, by uid
    owners: dict[str, Manifest]
    #: whether there is a pod of such a key
    is_taken: Callable[[str], bool]
    most: int = MOST_PODS
    pods: int = 0

    def expand(self, manifest: Manifest, where: str) -> Iterator[tuple[str, Manifest]]:
        """The PodGroup and the pods of a workload, as (kind, manifest). Raises InvalidObjectError."""
        uid = manifest["metadata"].get("uid")
        if uid:
            self.owners[uid] = manifest
            return
        kind = _kind(manifest)
        assert kind is not None
        parts = kind[1](manifest["metadata"], manifest.get("spec") or {})
        pods = self.pods + sum(role.count for role in parts.roles)
        if pods > self.most:
            raise InvalidObjectError(where, "spec", f"would be pod number {self.most:,} and more")
        self.pods = pods
        owner = _owner(manifest)
        self.owners[owner["uid"]] = manifest
        if parts.gang is not None:
            yield "PodGroup", _pod_group(manifest, parts.gang, parts.roles, owner, where)
        for role in parts.roles:
            # A Deployment and a StatefulSet may have one name: what stands for a drawn name is not the other's.
            prefix = f"{manifest['metadata']['namespace']}/{role.prefix}"
            free = (number for number in itertools.count() if not self.is_taken(f"{prefix}-{number}"))
            for number in itertools.islice(free, role.count):
                yield "Pod", _pod(manifest, parts, role, number, owner)


def type_of(manifest: Manifest) -> str | None:
    """The type in the schema of a workload; None for what is none."""
    found = _kind(manifest)
    return found[0] if found else None


def _kind(manifest: Manifest) -> _Kind | None:
    version, kind = manifest.get("apiVersion"), manifest["kind"]
    group = version.rpartition("/")[0] if isinstance(version, str) else None
    if kind in _KUBEFLOW if group is None else group == "kubeflow.org" and kind.endswith("Job"):
        return "KubeflowJob", _kubeflow_job
    if group is None:
        return next((found for (_, known), found in _KINDS.items() if known == kind), None)
    return _KINDS.get((group, kind))


def check_counts(value: Any, where: str, path: tuple[int | str, ...] = ()) -> None:
    """Raise InvalidObjectError at the first number of pods of a workload that is negative."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        if key in _COUNTS and isinstance(each, int) and each < 0:
            raise InvalidObjectError(where, field_path((*path, key)), f"should be at least 0, not {shown(each)}")
        if key not in ("template", "metadata"):
            check_counts(each, where, (*path, key))


# -- kinds -----------------------------------------------------------------------------------------------------------


def _replicas(metadata: Manifest, spec: Manifest) -> Parts:
    return Parts([Role(metadata["name"], spec.get("template") or {}, _count(spec, "replicas"))])


def _job(metadata: Manifest, spec: Manifest) -> Parts:
    pods = _count(spec, "parallelism")
    if spec.get("completions") is not None:
        pods = min(pods, spec["completions"])
    return Parts([Role(metadata["name"], spec.get("template") or {}, 0 if spec.get("suspend") else max(0, pods))])


def _volcano_job(metadata: Manifest, spec: Manifest) -> Parts:
    name, roles = metadata["name"], []
    for index, task in enumerate(spec.get("tasks") or ()):
        task_name, count = task.get("name") or f"default{index}", _count(task, "replicas")
        needed = task.get("minAvailable")
        template = task.get("template") or {}
        roles.append(Role(f"{name}-{task_name}", template, count, task_name, count if needed is None else needed))
    gang = Gang(
        name,
        spec.get("minAvailable"),
        min_task_member={role.name: role.needed for role in roles},
        queue=spec.get("queue"),
        priority_class=spec.get("priorityClassName"),
        network_topology=spec.get("networkTopology"),
    )
    return Parts(roles, gang, spec.get("schedulerName") or "volcano")


def _kubeflow_job(metadata: Manifest, spec: Manifest) -> Parts:
    """A PyTorchJob, TFJob, MPIJob ...: its roles are in `pytorchReplicaSpecs`, `tfReplicaSpecs` ..."""
    name, roles = metadata["name"], []
    for key, replicas in spec.items():
        if key.endswith("ReplicaSpecs"):
            for role, of in (replicas or {}).items():
                count = _count(of or {}, "replicas")
                template = (of or {}).get("template") or {}
                roles.append(Role(f"{name}-{role.lower()}", template, count, role.lower(), count))
    run = spec.get("runPolicy") or {}
    scheduling = run.get("schedulingPolicy") or {}
    gang = Gang(
        name,
        scheduling.get("minAvailable"),
        scheduling.get("minResources"),
        queue=scheduling.get("queue"),
        priority_class=scheduling.get("priorityClass"),
    )
    return Parts([] if run.get("suspend") else roles, gang)


def _ray_cluster(metadata: Manifest, spec: Manifest) -> Parts:
    """The head and the workers; with the autoscaler only those that are always there start together."""
    name = metadata["name"]
    head = Role(f"{name}-head", (spec.get("headGroupSpec") or {}).get("template") or {}, 1, "headgroup", 1)
    roles = [head]
    for group in spec.get("workerGroupSpecs") or ():
        called, hosts = group.get("groupName") or "worker", _count(group, "numOfHosts")
        least = (group.get("minReplicas") or 0) * hosts
        count = least if group.get("replicas") is None else max(0, group["replicas"]) * hosts
        needed = least if spec.get("enableInTreeAutoscaling") else count
        roles.append(Role(f"{name}-{called}-worker", group.get("template") or {}, count, called, needed))
    labels = metadata.get("labels") or {}
    gang = Gang(
        f"ray-{name}-pg",
        sum(role.needed for role in roles),
        queue=labels.get(_QUEUE_LABEL),
        priority_class=labels.get(_PRIORITY_CLASS_LABEL),
    )
    return Parts([] if spec.get("suspend") else roles, gang)


def _count(of: Manifest, key: str) -> int:
    """A number of replicas: one if nothing is said."""
    count = of.get(key)
    return 1 if count is None else max(0, count)


_Kind: TypeAlias = tuple[str, Callable[[Manifest, Manifest], Parts]]
#: (group, kind) -> type in the schema, and what reads it
_KINDS: Mapping[tuple[str, str], _Kind] = {
    ("apps", "Deployment"): ("V1Deployment", _replicas),
    ("apps", "ReplicaSet"): ("V1ReplicaSet", _replicas),
    ("apps", "StatefulSet"): ("V1StatefulSet", _replicas),
    ("", "ReplicationController"): ("V1ReplicationController", _replicas),
    ("batch", "Job"): ("V1Job", _job),
    ("batch.volcano.sh", "Job"): ("VolcanoJob", _volcano_job),
    ("ray.io", "RayCluster"): ("RayCluster", _ray_cluster),
}


# -- objects ---------------------------------------------------------------------------------------------------------


def _owner(manifest: Manifest) -> Manifest:
    """The reference of a pod to what made it."""
    metadata = manifest["metadata"]
    uid = f"{manifest['kind'].lower()}-{metadata['namespace']}-{metadata['name']}"
    owner = {"apiVersion": manifest.get("apiVersion", ""), "kind": manifest["kind"], "name": metadata["name"]}
    return {**owner, "uid": uid, "controller": True}


def _pod(manifest: Manifest, parts: Parts, role: Role, number: int, owner: Manifest) -> Manifest:
    made = manifest["metadata"]
    metadata = dict(role.template.get("metadata") or {})
    metadata |= {"name": f"{role.prefix}-{number}", "namespace": made["namespace"], "ownerReferences": [owner]}
    metadata["creationTimestamp"] = made.get("creationTimestamp")
    spec = dict(role.template.get("spec") or {})
    if parts.scheduler_name:
        spec.setdefault("schedulerName", parts.scheduler_name)
    if parts.gang is not None:
        annotations = {GROUP_ANNOTATION: parts.gang.name, _ROLE_ANNOTATION: role.name}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        if parts.gang.priority_class:
            spec.setdefault("priorityClassName", parts.gang.priority_class)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_group(manifest: Manifest, gang: Gang, roles: list[Role], owner: Manifest, where: str) -> Manifest:
    made = manifest["metadata"]
    together = sum(role.count for role in roles) if gang.min_member is None else gang.min_member
    spec = {
        "minMember": together,
        "minTaskMember": gang.min_task_member,
        "minResources": gang.min_resources or _least(roles, together, where),
        "queue": gang.queue,
        "priorityClassName": gang.priority_class,
        "networkTopology": gang.network_topology,
    }
    metadata = {key: made[key] for key in ("namespace", "labels", "annotations", "creationTimestamp") if key in made}
    metadata |= {"name": gang.name, "ownerReferences": [owner]}
    spec = {key: value for key, value in spec.items() if value is not None}
    return {"apiVersion": SCHEDULING, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def _least(roles: Iterable[Role], pods: int, where: str) -> Manifest:
    """What so many pods ask for, those that are needed first."""
    amounts: dict[str, Fraction] = {}
    for counts in ([role.needed for role in roles], [role.count - role.needed for role in roles]):
        for role, count in zip(roles, counts, strict=True):
            taken = max(0, min(count, pods))
            pods -= taken
            spec = with_requests(converted(role.template.get("spec") or {}, objects.PodSpec, where))
            for name, amount in min_resources(spec, taken).items():
                amounts[name] = amounts.get(name, Fraction(0)) + quantity.parse(amount)
    return {name: formatted(amount) for name, amount in amounts.items()}
