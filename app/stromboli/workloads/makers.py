"""What controllers make of workloads, for kinds of which that is more than a spec that is written in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from stromboli.api.errors import InvalidObjectError
from stromboli.state.nodes import NodeFacts
from stromboli.workloads.daemons import daemon_pods
from stromboli.workloads.paths import Object, at, described, items, labels, mapping, notes, text
from stromboli.workloads.ray import made_of_ray_job
from stromboli.workloads.said import TOPOLOGY_MODE, TOPOLOGY_TIER


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What there is beside a workload."""

    #: the runtime of a kind and name that it may refer to
    runtime: Callable[[str, str], Object | None]
    nodes: Callable[[], NodeFacts]


Maker: TypeAlias = Callable[[Object, Surroundings], Iterator[Object]]
"""The objects that are made of a workload, without their owner."""

RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")
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
    """A RayCluster, unless it names one that is there, and the Job that submits what is run, if one does."""
    yield from made_of_ray_job(owner)


def train_job(owner: Object, there: Surroundings) -> Iterator[Object]:
    """The JobSet of a runtime's template, with the number of nodes and what else the TrainJob says.

    Raises InvalidObjectError where there is no such runtime.
    """
    reference = mapping(owner, "spec.runtimeRef")
    kind, name = text(reference, "kind") or "ClusterTrainingRuntime", text(reference, "name")
    found = there.runtime(kind, name)
    if found is None:
        problem = (
            f"its pods follow from {kind} {name or 'NAME'}, which is not there: add it, or what it makes, or its pods"
        )
        raise InvalidObjectError(described(owner), "spec.runtimeRef", problem)
    template = _patched(mapping(found, "spec.template"), owner)
    spec = mapping(template, "spec")
    jobs = [_trained(each, owner, found) for _, each in items(spec, "replicatedJobs")]
    said = {
        key: {**mapping(template, f"metadata.{key}"), **mapping(owner, f"spec.{key}")}
        for key in ("labels", "annotations")
    }
    said["annotations"] |= _volcano_topology(mapping(found, "spec.podGroupPolicy.volcano.networkTopology"))
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": said}
    yield {**made, "spec": {**spec, "replicatedJobs": jobs}}


def _patched(template: Object, owner: Object) -> Object:
    """The template of a runtime with what each manager of a TrainJob changes of it, in order."""
    for _, patch in items(owner, "spec.runtimePatches"):
        template = _merged(template, mapping(patch, "trainingRuntimeSpec.template"))
    return template


def _volcano_topology(said: Object) -> dict[str, str]:
    """How close together the trainer has pods placed, where it makes a PodGroup of Volcano's for them."""
    keys = {TOPOLOGY_MODE: "mode", TOPOLOGY_TIER: "highestTierAllowed"}
    return {key: str(said[field]) for key, field in keys.items() if said.get(field) is not None}


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
    """How many pods a replicated job has; None where the runtime's own number stays."""
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
    """A change laid over what is there: mappings key by key, lists of what has names by these."""
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
    each.__name__: each for each in (daemon_set, disaggregated_set, notebook, ray_job, train_job)
}
