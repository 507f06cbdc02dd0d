"""RayClusters and RayJobs, with the containers that KubeRay adds to their pods."""

from __future__ import annotations

from collections.abc import Iterator

from stromboli.api import readers
from stromboli.workloads.gangs import Gang, Role, Workload, number, workload
from stromboli.workloads.model import WorkloadKind
from stromboli.workloads.paths import Object, at, count, items, mapping, text

#: the labels of a worker with its group and, where a replica has several hosts, with its replica
_GROUP, _REPLICA = "ray.io/group", "ray.io/worker-group-replica-name"
#: containers that KubeRay adds, with the resources that it gives them
_AUTOSCALER: Object = {"name": "autoscaler", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}
_WAITS_FOR_HEAD: Object = {"name": "wait-gcs-ready", "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}}
_SUBMITTER: Object = {"name": "ray-job-submitter", "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}


def ray_cluster(owner: Object, kind: WorkloadKind) -> Workload:
    """The head and the workers; with the autoscaler only those that are always there start together.

    A replica of several hosts starts whole, also one that comes later.
    """
    spec, name = mapping(owner, "spec"), text(owner, "metadata.name")
    scales = at(spec, "enableInTreeAutoscaling") is True
    head = mapping(spec, "headGroupSpec.template")
    if scales:
        resources = at(spec, "autoscalerOptions.resources")
        head = _with(head, {**_AUTOSCALER, "resources": resources} if isinstance(resources, dict) else _AUTOSCALER)
    sub_groups: list[Object] = []
    roles = [Role("headgroup", head, 1, 1, f"{name}-head")]
    for _, group in items(spec, "workerGroupSpecs"):
        called, hosts = text(group, "groupName") or "worker", number(owner, group, "numOfHosts")
        least = count(owner, group, "minReplicas", 0) or 0
        most = count(owner, group, "maxReplicas", readers.INT32) or 0
        # KubeRay makes no fewer than the one number and no more than the other.
        replicas = max(least, min(most, count(owner, group, "replicas", least) or 0))
        pods = 0 if at(group, "suspend") is True else replicas * hosts
        needed = min(least * hosts, pods) if scales else pods
        template = _with(mapping(group, "template"), _WAITS_FOR_HEAD, "initContainers")
        divided = (_REPLICA, hosts) if hosts > 1 else None
        roles.append(Role(called, template, pods, needed, f"{name}-{called}-worker", divided=divided))
        if divided:
            selector = {"labelSelector": {"matchLabels": {_GROUP: called}}, "matchLabelKeys": [_REPLICA]}
            sub_groups.append({"name": called, **selector, "subGroupSize": hosts, "minSubGroups": 0})
    return workload(owner, kind, Gang(tuple(roles), sub_groups=tuple(sub_groups)))


def made_of_ray_job(owner: Object) -> Iterator[Object]:
    """A RayCluster, unless it names an existing one, and its submitter: a Job, or a container of the head."""
    cluster, mode = mapping(owner, "spec.rayClusterSpec"), text(owner, "spec.submissionMode")
    if cluster and not mapping(owner, "spec.clusterSelector"):
        head = mapping(cluster, "headGroupSpec")
        if mode == "SidecarMode":
            head = {**head, "template": _with(mapping(head, "template"), _SUBMITTER)}
        yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {**cluster, "headGroupSpec": head}}
    template = mapping(owner, "spec.submitterPodTemplate") or _with({}, _SUBMITTER)
    scheduler = "spec.schedulerName"
    # A submitter that names no scheduler, unlike its head, is left to another scheduler.
    ours = text(template, scheduler) or not text(cluster, f"headGroupSpec.template.{scheduler}")
    if ours and mode in ("", "K8sJobMode"):
        yield {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}


def _with(template: Object, container: Object, field: str = "containers") -> Object:
    """A template with one more container."""
    spec = mapping(template, "spec")
    return {**template, "spec": {**spec, field: [*(each for _, each in items(spec, field)), container]}}
