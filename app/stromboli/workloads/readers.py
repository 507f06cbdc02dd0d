"""Kinds whose gangs do not follow from paths alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from stromboli.api import readers
from stromboli.workloads.exclusive import exclusive_topology
from stromboli.workloads.gangs import DEADLINE, EACH, Gang, Role, Workload, by_paths, makes_in_order, number, workload
from stromboli.workloads.model import WorkloadKind
from stromboli.workloads.paths import Object, at, count, items, mapping, notes, seconds, text
from stromboli.workloads.ray import ray_cluster
from stromboli.workloads.said import noted_count
from stromboli.workloads.spark import spark_application, spark_connect, spark_driver

Reader: TypeAlias = Callable[[Object, WorkloadKind], Workload]

#: Kueue's way to say how many pods of a Job have to start together
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
#: where a Job says how its pods start, as PodGroups of Kubernetes do
_POLICY = "spec.scheduling.schedulingPolicy"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
#: the labels of a Volcano Job's pods with the task and the number of their partition
TASK, PARTITION = "volcano.sh/task-spec", "volcano.sh/partition-id"
_PARTITIONS = "partitionPolicy"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"


def job(owner: Object, kind: WorkloadKind) -> Workload:
    """A batch Job: as many pods as run at a time, and no more than are still to complete."""
    pods = _job_pods(owner, owner)
    asked = noted_count(owner, MIN_PARALLELISM) if MIN_PARALLELISM in notes(owner) else None
    if asked is None:
        asked = 1 if at(owner, f"{_POLICY}.basic") is not None else count(owner, owner, f"{_POLICY}.gang.minCount")
    needed = pods if asked is None else min(asked, pods)
    name = text(owner, "metadata.name")
    template = mapping(owner, "spec.template")
    gang = Gang((Role("", template, pods, needed, name, _job_deadline(owner, owner)),))
    return replace(workload(owner, kind, gang), dwindles=at(owner, "spec.completions") is not None)


def _job_pods(owner: Object, batch_job: Object) -> int:
    parallel = number(owner, batch_job, "spec.parallelism")
    completions = count(owner, batch_job, "spec.completions")
    if completions is None:
        return parallel
    status = mapping(batch_job, "status")
    done = (readers.count(str(status.get("succeeded") or 0)) or 0) + _indexes(status.get("failedIndexes"))
    return min(parallel, max(0, completions - done))


def _job_deadline(owner: Object, batch_job: Object) -> int | None:
    """Deadline of a Job's pods in seconds: the Job's, or their own where none come after them."""
    found = [seconds(batch_job, DEADLINE)]
    if (count(owner, batch_job, "spec.completions", 0) or 0) <= number(owner, batch_job, "spec.parallelism"):
        found.append(seconds(batch_job, f"spec.template.{DEADLINE}"))
    return min((each for each in found if each is not None), default=None)


def _indexes(listed: object) -> int:
    """Number of indexes in a list such as `1,3-5`."""
    total = 0
    for part in listed.split(",") if isinstance(listed, str) and listed else ():
        first, _, last = part.partition("-")
        begin, end = readers.count(first), readers.count(last or first)
        total += end - begin + 1 if begin is not None and end is not None and end >= begin else 0
    return total


def job_set(owner: Object, kind: WorkloadKind) -> Workload:
    """All Jobs of a JobSet together; one kind of Job after the other where its startup policy has them wait.

    Jobs that have succeeded have no pods any more.
    """
    gangs: list[Gang] = []
    succeeded = _succeeded_jobs(owner)
    done = 0
    name, waits = text(owner, "metadata.name"), False
    in_order = text(owner, "spec.startupPolicy.startupPolicyOrder") == "InOrder"
    for _, each in items(owner, "spec.replicatedJobs"):
        called, template = text(each, "name"), mapping(each, "template")
        jobs, of_job = number(owner, each, "replicas"), _job_pods(owner, template)
        replicas = max(0, jobs - succeeded.get(called, 0))
        pods = replicas * of_job
        done += jobs * of_job - pods
        exclusive = exclusive_topology(notes(template), notes(owner))
        needed = pods if exclusive is None else min(replicas, pods)
        alone = None if exclusive is None else (exclusive, replicas)
        ends = _job_deadline(owner, template)
        role = Role(called, mapping(template, "spec.template"), pods, needed, f"{name}-{called}", ends, exclusive=alone)
        waits = waits or in_order or bool(each.get("dependsOn"))
        gangs.append(_after(_begun_by_needed(role, part=called), each, gangs, in_order=in_order))
    together = _begun_by_needed(*(role for gang in gangs for role in gang.roles))
    found = workload(owner, kind, *gangs, part_label=REPLICATED_JOB) if waits else workload(owner, kind, together)
    return replace(found, dwindles=True, done=done)


def _succeeded_jobs(owner: Object) -> dict[str, int]:
    """Number of Jobs of each replicated job of a JobSet that have succeeded."""
    counted = (each for _, each in items(owner, "status.replicatedJobsStatus"))
    return {text(each, "name"): readers.count(str(each.get("succeeded") or 0)) or 0 for each in counted}


def _begun_by_needed(*roles: Role, part: str = "") -> Gang:
    """The gang of roles that make other pods when those that they need have their places."""
    needed, pods = (sum(getattr(role, what) for role in roles) for what in ("needed", "count"))
    return Gang(roles, part, at_first=needed if needed < pods else None)


def _after(gang: Gang, replicated: Object, before: Sequence[Gang], *, in_order: bool) -> Gang:
    """The gang of a replicated job with its predecessors: those before it that it depends on, or all in order.

    One that depends on a job which itself waits for another to complete waits for that.
    """
    depends = {text(said, "name"): text(said, "status") == "Complete" for _, said in items(replicated, "dependsOn")}
    found = [(each, depends.get(each.part, False)) for each in before if in_order or each.part in depends]
    for on, ends in found:
        if on.ends_first:
            return replace(gang, after=on.after, ends_first=True)
        if ends and on.pods:
            gang = replace(gang, after=on.part, ends_first=True)
        elif on.pods and not gang.after:
            gang = replace(gang, after=on.part)
    return gang


def leader_worker_set(owner: Object, kind: WorkloadKind) -> Workload:
    """Each replica is a gang of a leader and its workers.

    These come when it is ready where the startup policy says so, or when it has found them an exclusive topology.
    """
    spec, name = mapping(owner, "spec.leaderWorkerTemplate"), text(owner, "metadata.name")
    size, replicas = number(owner, spec, "size"), number(owner, owner, "spec.replicas")
    workers = mapping(spec, "workerTemplate")
    exclusive = exclusive_topology(notes(owner))
    alone = None if exclusive is None else (exclusive, 1)
    leader = Role("leader", mapping(spec, "leaderTemplate") or workers, 1, 1, name, exclusive=alone)
    rest = Role("worker", workers, max(0, size - 1), max(0, size - 1), f"{name}-worker", exclusive=alone)
    late = text(owner, "spec.startupPolicy") == "LeaderReady" or exclusive is not None
    at_first = 1 if late else None
    gang = Gang((leader, rest), part=EACH, copies=replicas, least=at_first, at_first=at_first)
    return replace(workload(owner, kind, gang, part_label=GROUP_INDEX), size_note=GROUP_SIZE)


def kubeflow_job(owner: Object, kind: WorkloadKind) -> Workload:
    """All replicas; of workers that are elastic the least number, and no launcher that waits for the workers."""
    found = by_paths(owner, kind)
    elastic = count(owner, owner, "spec.elasticPolicy.minReplicas")
    (gang,) = found.gangs
    workers = sum(role.count for role in gang.roles if role.name != "launcher")
    late = workers > 0 and text(owner, "spec.launcherCreationPolicy") == "WaitForWorkersReady"

    def adjusted(role: Role) -> Role:
        if role.name == "worker" and elastic is not None:
            return replace(role, needed=min(elastic, role.count))
        return replace(role, needed=0, later=True) if role.name == "launcher" and late else role

    roles = tuple(map(adjusted, gang.roles))
    return replace(found, gangs=(replace(gang, roles=roles, at_first=workers if late else None),))


def pod_group(owner: Object, kind: WorkloadKind) -> Workload:
    """A PodGroup of the coscheduling plugin, whose pods name it by a label."""
    return by_paths(owner, kind)


def volcano_job(owner: Object, kind: WorkloadKind) -> Workload:
    """The tasks of a Volcano Job; some may come once others run."""
    roles, sub_groups, name = [], list[Object](), text(owner, "metadata.name")
    for index, (_, task) in enumerate(items(owner, "spec.tasks")):
        called, pods = text(task, "name") or f"default{index}", number(owner, task, "replicas")
        named, size = at(task, "dependsOn.name"), count(owner, task, f"{_PARTITIONS}.partitionSize", 0) or 0
        after = " and ".join(map(str, named)) if isinstance(named, list) else ""
        parts = count(owner, task, f"{_PARTITIONS}.minPartitions")
        needed = count(owner, task, "minAvailable", pods if parts is None else min(pods, parts * size)) or 0
        template, prefix = mapping(task, "template"), f"{name}-{called}"
        divided = (PARTITION, size) if size else None
        roles.append(Role(called, template, pods, needed, prefix, later=bool(named), after=after, divided=divided))
        if size:
            sub_groups.append(_sub_groups(called, size, parts, mapping(task, _PARTITIONS)))
    least = count(owner, owner, "spec.minAvailable", sum(role.count for role in roles))
    at_first = sum(role.count for role in roles if not role.later) if any(role.later for role in roles) else None
    gang = Gang(tuple(roles), least=least, at_first=at_first, by_role=True, sub_groups=tuple(sub_groups))
    return workload(owner, kind, gang)


def _sub_groups(task: str, size: int, least: int | None, said: Object) -> Object:
    """The policy of a PodGroup for the partitions of a task."""
    selector = {"labelSelector": {"matchLabels": {TASK: task}}, "matchLabelKeys": [PARTITION]}
    policy = {"name": task, **selector, "subGroupSize": size, "minSubGroups": least or 0}
    topology = mapping(said, "networkTopology")
    return {**policy, "networkTopology": topology} if topology else policy


def app_wrapper(owner: Object, kind: WorkloadKind) -> Workload:
    """All pods of the wrapped object, by its pod sets, as far as they can exist at first."""
    roles, name = [], text(owner, "metadata.name")
    for index, (_, component) in enumerate(items(owner, "spec.components")):
        in_order = makes_in_order(mapping(component, "template"))
        for at_, (_, pod_set) in enumerate(items(component, "podSets")):
            pods = number(owner, pod_set, "replicas")
            called = f"{index}-{at_}"
            template = _indexed(component, text(pod_set, "path"))
            roles.append(Role(called, template, pods, min(1, pods) if in_order else pods, f"{name}-{called}"))
    at_first = sum(role.needed for role in roles)
    gang = Gang(tuple(roles), at_first=at_first if at_first < sum(role.count for role in roles) else None)
    return workload(owner, kind, gang) if roles else Workload()


def _indexed(obj: Any, path: str) -> Object:
    """The mapping at a path such as `template.spec.tasks[0].template`."""
    for part in path.replace("[", ".").replace("]", "").split(".") if path else ():
        if isinstance(obj, list) and (index := readers.count(part)) is not None and index < len(obj):
            obj = obj[index]
        else:
            obj = obj.get(part) if isinstance(obj, dict) else None
    return obj if isinstance(obj, dict) else {}


READERS: Mapping[str, Reader] = {
    each.__name__: each
    for each in (
        app_wrapper,
        job,
        job_set,
        kubeflow_job,
        leader_worker_set,
        pod_group,
        ray_cluster,
        spark_application,
        spark_connect,
        spark_driver,
        volcano_job,
    )
}
