"""Manifests that controllers make of workloads, for kinds where that is more than a spec inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stromboli.api import objects
from stromboli.api.crds import SCHEDULING
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import did_you_mean, shown
from stromboli.state.nodes import NodeFacts
from stromboli.state.pods import GROUP_ANNOTATION
from stromboli.workloads.amounts import pod_spec, total
from stromboli.workloads.daemons import daemon_pods
from stromboli.workloads.gangs import number
from stromboli.workloads.paths import Object, at, described, items, labels, mapping, notes, text
from stromboli.workloads.ray import made_of_ray_job
from stromboli.workloads.said import QUEUE, first


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects that exist besides a workload."""

    #: the runtime of a kind and name that it may refer to
    runtime: Callable[[str, str], Object | None]
    nodes: Callable[[], NodeFacts]
    #: is told what is made later, by its name, and in a few words when
    told_later: Callable[[str, str], None] = lambda name, when: None


Maker: TypeAlias = Callable[[Object, Surroundings], Iterator[Object]]
"""The objects that are made of a workload, without their owner."""

RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime", "JobTemplate")
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
#: the names of the Job and of the container that train
_NODE = "node"
_TARGETS = "targetJobs"
#: the annotation with which the page of notebooks stops one
_STOPPED = "kubeflow-resource-stopped"


def daemon_set(owner: Object, there: Surroundings) -> Iterator[Object]:
    """A pod for each node that is to run one."""
    yield from daemon_pods(owner, there.nodes())


def notebook(owner: Object, _: Surroundings) -> Iterator[Object]:
    """A StatefulSet, which has no pod while the notebook is stopped."""
    spec = mapping(owner, "spec") | ({"replicas": 0} if _STOPPED in notes(owner) else {})
    yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec}


def disaggregated_set(owner: Object, there: Surroundings) -> Iterator[Object]:
    """A LeaderWorkerSet for each role."""
    for _, role in items(owner, "spec.roles"):
        metadata = {**mapping(role, "metadata"), "name": f"{text(owner, 'metadata.name')}-{text(role, 'name')}"}
        made = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata}
        yield {**made, "spec": mapping(role, "spec")}


def ray_job(owner: Object, _: Surroundings) -> Iterator[Object]:
    """A RayCluster, unless it names an existing one, and the submitter Job, if there is one."""
    yield from made_of_ray_job(owner)


def job_flow(owner: Object, there: Surroundings) -> Iterator[Object]:
    """A Volcano Job by its JobTemplate for each flow that waits for no other; of the others it is told when they come.

    Raises InvalidObjectError for a flow or a template that is not there.
    """
    flows = {text(flow, "name"): flow for _, flow in items(owner, "spec.flows")}
    for place, (name, flow) in enumerate(flows.items()):
        path, before = f"spec.flows[{place}]", at(flow, "dependsOn.targets") or ()
        for target in before:
            if target not in flows:
                problem = f"there is no flow {shown(target)}{did_you_mean(target, flows)}"
                raise InvalidObjectError(described(owner), f"{path}.dependsOn.targets", problem)
        template = there.runtime("JobTemplate", name)
        if template is None:
            raise InvalidObjectError(described(owner), f"{path}.name", f"there is no JobTemplate {shown(name)}: add it")
        called = f"{text(owner, 'metadata.name')}-{name}"
        if before:
            there.told_later(called, f"makes Job {called} when {', '.join(before)} completed")
            continue
        said = {key: mapping(template, f"metadata.{key}") for key in ("labels", "annotations")}
        spec = _merged(mapping(template, "spec"), mapping(flow, "patch.spec"))
        metadata = {**said, "name": called}
        yield {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def train_job(owner: Object, there: Surroundings) -> Iterator[Object]:
    """The JobSet of a runtime's template, with the number of nodes and what else the TrainJob says.

    Beside it the PodGroup that the trainer makes where the runtime has a policy of Volcano's.

    Raises InvalidObjectError where there is no such runtime.
    """
    reference = mapping(owner, "spec.runtimeRef")
    kind, name = text(reference, "kind") or "ClusterTrainingRuntime", text(reference, "name")
    found = there.runtime(kind, name)
    if found is None:
        problem = (
            f"its pods follow from {kind} {name or 'NAME'}, which does not exist: add it, or what it makes, or its pods"
        )
        raise InvalidObjectError(described(owner), "spec.runtimeRef", problem)
    template = _patched(mapping(found, "spec.template"), owner)
    spec = mapping(template, "spec")
    jobs = [_trained(each, owner, found) for _, each in items(spec, "replicatedJobs")]
    said = {
        key: {**mapping(template, f"metadata.{key}"), **mapping(owner, f"spec.{key}")}
        for key in ("labels", "annotations")
    }
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": said}
    if at(found, "spec.podGroupPolicy.volcano") is not None:
        yield _group_of_trainer(owner, found, jobs, first([{"metadata": said}], QUEUE[:1]))
        jobs = [_merged(each, _in_group(text(owner, "metadata.name"))) for each in jobs]
    yield {**made, "spec": {**spec, "replicatedJobs": jobs}}


def _patched(template: Object, owner: Object) -> Object:
    """The template of a runtime with the changes by each manager of a TrainJob, in order."""
    for _, patch in items(owner, "spec.runtimePatches"):
        template = _merged(template, mapping(patch, "trainingRuntimeSpec.template"))
    return template


def _group_of_trainer(owner: Object, runtime: Object, jobs: Sequence[Object], queue: str) -> Object:
    """The PodGroup that the trainer makes: its pods start together, those that have to complete before others, too."""
    spec: Object = {"minMember": 0}
    asked: list[tuple[objects.PodSpec, int]] = []
    for job in jobs:
        template = "template.spec.template.spec"
        pods = number(owner, job, "replicas") * number(owner, job, "template.spec.parallelism")
        spec["minMember"] += pods
        asked.append((pod_spec(mapping(job, template), described(owner)), pods))
        spec |= {"priorityClassName": called} if (called := text(job, f"{template}.priorityClassName")) else {}
    spec["minResources"] = total(asked)
    topology = mapping(runtime, "spec.podGroupPolicy.volcano.networkTopology")
    spec |= {"queue": queue} if queue else {}
    spec |= {"networkTopology": topology} if topology else {}
    return {"apiVersion": SCHEDULING, "kind": "PodGroup", "metadata": {}, "spec": spec}


def _in_group(name: str) -> Object:
    """Part of a replicated job that puts its pods into a PodGroup."""
    return {"template": {"spec": {"template": {"metadata": {"annotations": {GROUP_ANNOTATION: name}}}}}}


def _trained(job: Object, owner: Object, runtime: Object) -> Object:
    """A replicated job of a runtime as a TrainJob has it."""
    template = mapping(job, "template")
    spec = mapping(template, "spec")
    pods = mapping(spec, "template")
    trains = labels(template).get(_STEP) == "trainer"
    nodes = _nodes(text(job, "name"), owner, runtime, trains=trains)
    for kind in ("podSpecOverrides", "podTemplateOverrides"):
        for _, each in items(owner, f"spec.{kind}"):
            if text(job, "name") in [text(target, "name") for _, target in items(each, _TARGETS)]:
                change = {key: value for key, value in each.items() if key != _TARGETS}
                pods = _merged(pods, {"spec": change} if kind == "podSpecOverrides" else change)
    resources = mapping(owner, "spec.trainer.resourcesPerNode")
    launches = at(runtime, "spec.mlPolicy.mpi.runLauncherAsNode") is True and text(job, "name") == _NODE
    if resources and (trains or launches):
        pods = _merged(pods, {"spec": {"containers": [{"name": _NODE, "resources": resources}]}})
    counted = {} if nodes is None else {"parallelism": nodes, "completions": nodes}
    return {**job, "template": {**template, "spec": {**spec, "template": pods, **counted}}}


def _nodes(name: str, owner: Object, runtime: Object, *, trains: bool) -> Any:
    """Number of pods of a replicated job; None where the runtime's own number stays."""
    asked = at(owner, "spec.trainer.numNodes")
    policy = mapping(runtime, "spec.mlPolicy")
    mpi = mapping(policy, "mpi")
    if "mpi" in policy:
        if name == _NODE and isinstance(asked, int):
            return max(asked - 1, 1) if mpi.get("runLauncherAsNode") is True else asked
        return 1 if trains else None
    if not trains:
        return None
    return policy.get("numNodes", 1) if asked is None else asked


def _merged(base: Any, change: Any) -> Any:
    """A change merged into a value: mappings key by key, lists of named entries by name."""
    if isinstance(base, dict) and isinstance(change, dict):
        return base | {key: _merged(base.get(key), value) for key, value in change.items()}
    if not (isinstance(base, list) and isinstance(change, list) and all(map(_is_named, [*base, *change]))):
        return change
    changes = {each["name"]: each for each in change}
    kept = [_merged(each, changes.pop(each["name"], {})) for each in base]
    return [*kept, *changes.values()]


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and "name" in value


MAKERS: Mapping[str, Maker] = {
    each.__name__: each for each in (daemon_set, disaggregated_set, job_flow, notebook, ray_job, train_job)
}
