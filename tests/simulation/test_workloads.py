"""Workloads in files become the pods and PodGroups that their controllers would make."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.engine import Engine
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from tests.simulation import kubernetes_types

CLUSTER = """
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 8, memory: 32Gi, pods: 10, nvidia.com/gpu: 4}}
---
"""
TEMPLATE = {"spec": {"schedulerName": "stromboli", "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}


def simulated(*manifests: dict[str, Any], more: str = "", lenient: bool = False) -> Run:
    """One session over a node with four GPUs and what the manifests become."""
    loaded = load(["-"], io.BytesIO((CLUSTER + more + yaml.safe_dump_all(manifests)).encode()), lenient=lenient)
    assert loaded.problems == []
    engine = Engine()
    state = ClusterState(("stromboli", "volcano"), reads=engine.registry.reads)
    feed(state, admit(loaded, state.scheduler_names))
    return run(engine, state)


def workload(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def replicas(count: int) -> dict[str, Any]:
    return {"replicas": count, "template": TEMPLATE}


PYTORCH_ROLES = {"Master": replicas(1), "Worker": replicas(2)}
VOLCANO_TASKS = [{"name": "ps", **replicas(1)}, {"name": "worker", **replicas(3), "minAvailable": 1}]
RAY_GROUPS = [{"groupName": "small", **replicas(2), "minReplicas": 1}]


@pytest.mark.parametrize(
    ("made", "pods", "group", "min_member"),
    [
        (workload("apps/v1", "Deployment", replicas=2, template=TEMPLATE), ["w-0", "w-1"], "replicaset", 1),
        (workload("apps/v1", "ReplicaSet", template=TEMPLATE), ["w-0"], "replicaset", 1),
        (workload("apps/v1", "StatefulSet", replicas=0, template=TEMPLATE), [], "", 0),
        (workload("batch/v1", "Job", parallelism=4, completions=2, template=TEMPLATE), ["w-0", "w-1"], "job", 2),
        (workload("batch/v1", "Job", suspend=True, template=TEMPLATE), [], "", 0),
        (
            workload("batch.volcano.sh/v1alpha1", "Job", minAvailable=2, tasks=VOLCANO_TASKS),
            ["w-ps-0", "w-worker-0", "w-worker-1", "w-worker-2"],
            "w",
            2,
        ),
        (
            workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=PYTORCH_ROLES),
            ["w-master-0", "w-worker-0", "w-worker-1"],
            "w",
            3,
        ),
        (
            workload("ray.io/v1", "RayCluster", headGroupSpec={"template": TEMPLATE}, workerGroupSpecs=RAY_GROUPS),
            ["w-head-0", "w-small-worker-0", "w-small-worker-1"],
            "ray-w-pg",
            3,
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_workload_becomes_its_pods_and_they_are_placed(
    made: dict[str, Any], pods: list[str], group: str, min_member: int
) -> None:
    session = simulated(made).session.view
    assert sorted(session.record(row).name for row in range(len(session.pods.records))) == pods
    groups = {pg.metadata.name: pg.spec for pg in session.snapshot.pod_groups if pg is not None}
    name = f"podgroup-{group}-default-w" if group in (made["kind"].lower(), "replicaset") else group
    assert {key: spec.min_member for key, spec in groups.items()} == ({name: min_member} if pods else {})
    if pods:
        per_pod = (groups[name].min_resources or {}).get("nvidia.com/gpu")
        assert per_pod == str(min_member)


@pytest.mark.parametrize(
    "manifest",
    [
        workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=None, runPolicy=None),
        workload("ray.io/v1", "RayCluster", headGroupSpec=None, workerGroupSpecs=None),
        workload("batch.volcano.sh/v1alpha1", "Job", tasks=None, minAvailable=None),
        workload("batch/v1", "Job", template=None, parallelism=None),
        workload("apps/v1", "Deployment", template=None, replicas=None, selector=None),
    ],
    ids=lambda manifest: manifest["kind"],
)
def test_null_is_as_good_as_nothing(manifest: dict[str, Any]) -> None:
    assert simulated(manifest, lenient=True).failures == []


def test_the_pods_of_a_stateful_set_are_numbered_from_where_it_begins() -> None:
    made = workload("apps/v1", "StatefulSet", replicas=2, template=TEMPLATE, ordinals={"start": 5})
    assert sorted(simulated(made).bindings) == ["default/w-5", "default/w-6"]


def test_a_gang_that_is_too_large_waits_whole() -> None:
    tasks = [{"name": "worker", **replicas(5)}]
    assert simulated(workload("batch.volcano.sh/v1alpha1", "Job", tasks=tasks)).bindings == {}
    assert len(simulated(workload("batch.volcano.sh/v1alpha1", "Job", minAvailable=4, tasks=tasks)).bindings) == 4


RACKS = "".join(
    f"""
kind: Node
metadata: {{name: r{rack}{node}, labels: {{rack: r{rack}, kubernetes.io/hostname: r{rack}{node}}}}}
status: {{allocatable: {{cpu: 8, memory: 32Gi, pods: 10, nvidia.com/gpu: 2}}}}
---
"""
    for rack in range(3)
    for node in range(3)
)
JOB = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}


JOB_SET = {"replicatedJobs": [{"name": "a", "replicas": 2, "template": JOB}, {"name": "b", "template": JOB}]}
REPLICAS = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}


@pytest.mark.parametrize(
    ("made", "project", "label"),
    [
        (workload("jobset.x-k8s.io/v1alpha2", "JobSet", **JOB_SET), "alpha.jobset", "jobset.sigs.k8s.io/job-key"),
        (
            workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", **REPLICAS),
            "leaderworkerset",
            "leaderworkerset.sigs.k8s.io/group-key",
        ),
    ],
)
def test_what_asks_for_a_topology_of_its_own_is_alone_in_it(made: dict[str, Any], project: str, label: str) -> None:
    """Each rack has room for three parts, and nodes without the label count as none."""
    made["metadata"]["annotations"] = {f"{project}.sigs.k8s.io/exclusive-topology": "rack"}
    done = simulated(made, more=RACKS)
    racks: defaultdict[str, list[str]] = defaultdict(list)
    for pod in done.session.view.pods.records:
        racks[pod.labels[label]].append(done.bindings[pod.key][:2])
    assert sorted(racks.values()) == [["r0", "r0"], ["r1", "r1"], ["r2", "r2"]]


def test_what_an_api_server_has_seen_has_its_pods_beside_it() -> None:
    made = workload("apps/v1", "Deployment", replicas=2, template=TEMPLATE)
    made["metadata"]["uid"] = "7c9e"
    assert len(simulated(made).session.view.pods.records) == 0


COMPLETED = {"type": "Completed", "status": "True"}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
SUCCEEDED = {"conditions": [{"type": "Created", "status": "True"}, {"type": "Succeeded", "status": "True"}]}
JOBS = [{"name": "a", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}]
JOB = workload("batch/v1", "Job", parallelism=2, template=TEMPLATE)
RAY = workload("ray.io/v1", "RayJob", rayClusterSpec={"headGroupSpec": {"template": TEMPLATE}})
WRAPPER = workload("workload.codeflare.dev/v1beta2", "AppWrapper", components=[{"template": JOB}])
SPARK = workload("sparkoperator.k8s.io/v1beta2", "SparkApplication", driver={}, executor={})


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (workload("batch/v1", "Job", completions=4, parallelism=4, template=TEMPLATE), {"succeeded": 1, **COMPLETE}),
        (workload("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=JOBS), {"conditions": [COMPLETED]}),
        (workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=PYTORCH_ROLES), SUCCEEDED),
        (workload("batch.volcano.sh/v1alpha1", "Job", tasks=VOLCANO_TASKS), {"state": {"phase": "Completed"}}),
        (RAY, {"jobDeploymentStatus": "Complete"}),
        (WRAPPER, {"phase": "Succeeded"}),
        (SPARK, {"applicationState": {"state": "FAILED"}}),
    ],
)
def test_a_workload_that_has_ended_has_no_pods(made: dict[str, Any], status: dict[str, Any]) -> None:
    """What it shows is what is said of it, such as by a success policy before all of its pods have succeeded."""
    document = yaml.safe_dump(made | {"status": status})
    loaded = load(["-"], io.BytesIO((CLUSTER + document).encode()))
    assert (loaded.problems, [kind for kind, _ in loaded.objects if kind in ("Pod", "PodGroup")]) == ([], [])
    assert loaded.without_pods() == {"default/w": f"{made['kind']} default/w has ended, so it has no pods"}


def test_a_lone_pod_gets_its_pod_group_and_meets_others_in_the_default_namespace() -> None:
    pods = [{"kind": "Pod", "metadata": {"name": name}, **TEMPLATE} for name in ("lone", "member")]
    pods[1]["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "gang"}
    group = {"kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": 1}}
    done = simulated(*pods, group)
    assert done.bindings == {"default/lone": "n1", "default/member": "n1"}
    assert done.jobs == {"default/lone": "default/podgroup-default-lone", "default/member": "default/gang"}


def test_pods_have_the_priority_of_their_class() -> None:
    classes = "kind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n---\n"
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}
    assert simulated(pod, more=classes).session.view.record(0).spec_priority == 7


@pytest.mark.exhaustive
def test_the_table_of_kubernetes_types_is_what_its_client_says(repository: Path) -> None:
    path = repository / "app" / "stromboli" / "simulation" / "kubernetes_types.json"
    assert json.loads(path.read_text()) == kubernetes_types.table()
