"""What starts together, for each kind of workload that is known: one table for `simulate` and the service."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
import yaml

from stromboli.api import objects
from stromboli.api.crds import PodGroup
from stromboli.api.errors import InvalidObjectError
from stromboli.engine import Engine
from stromboli.framework.diagnosis.ignored import ignored_of_job
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from stromboli.workloads import Kinds, family_of, known_kinds, pod_group_for, said
from tests import builders

Object = dict[str, Any]
UID = "11111111-2222-3333-4444-555555555555"
POD = {"spec": {"schedulerName": "stromboli", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def replicas(count: int | None, **more: Any) -> Object:
    return {**({} if count is None else {"replicas": count}), "template": POD, **more}


def ray(*groups: Object, **more: Any) -> Object:
    return {"headGroupSpec": {"template": POD}, "workerGroupSpecs": list(groups), **more}


def replicated(*jobs: tuple[str, int, int], **more: Any) -> Object:
    listed = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods, "template": POD}}}
        for name, replicas, pods in jobs
    ]
    return {"replicatedJobs": listed, **more}


def leader(size: int, **more: Any) -> Object:
    return {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": POD}, **more}


def wrapped(*pod_sets: Object) -> Object:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "in"}}
    template = {**job, "spec": {"parallelism": 3, "template": POD}}
    return {"components": [{"template": template, **({"podSets": list(pod_sets)} if pod_sets else {})}]}


ELSEWHERE, ARGO = "kueue.x-k8s.io/multikueue", "argoproj.io/v1alpha1"
BATCH, KUBEFLOW, RAY, JOBSET = "batch/v1", "kubeflow.org/v1", "ray.io/v1", "jobset.x-k8s.io/v1alpha2"
STAGE: Object = {"name": "a", "template": {"spec": {"parallelism": 1, "template": POD}}}
FREE = {"resources": {"requests": {"cpu": "0"}}}
FREED = {"autoscalerOptions": {"version": "v2", **FREE}}
TUNED = ray(replicas(2, groupName="a"))
ROLES = {"Master": replicas(1), "Worker": replicas(3)}
SPARK = {"driver": {"cores": 1, "memory": "512m", "schedulerName": "stromboli"}}
EXECUTOR = {"cores": 1, "memory": "1g", "schedulerName": "stromboli"}

#: (apiVersion, kind, spec) and the pods of each group that starts together, then how many pods there are
GANGS: dict[str, tuple[str, str, Object, list[int], int]] = {
    "Job": (BATCH, "Job", {"parallelism": 8, "template": POD}, [8], 8),
    "Job of one": (BATCH, "Job", {"template": POD}, [1], 1),
    "Job with fewer completions": (BATCH, "Job", {"parallelism": 8, "completions": 3, "template": POD}, [3], 3),
    "Job with more completions": (BATCH, "Job", {"parallelism": 2, "completions": 9, "template": POD}, [2], 2),
    "Job with a least number": (
        BATCH,
        "Job",
        {"parallelism": 4, "scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}, "template": POD},
        [2],
        4,
    ),
    "Job without a gang": (
        BATCH,
        "Job",
        {"parallelism": 4, "scheduling": {"schedulingPolicy": {"basic": {}}}, "template": POD},
        [1],
        4,
    ),
    "Job that is indexed": (
        BATCH,
        "Job",
        {
            "parallelism": 4,
            "completions": 4,
            "completionMode": "Indexed",
            "successPolicy": {"rules": []},
            "template": POD,
        },
        [4],
        4,
    ),
    "Job that is suspended": (BATCH, "Job", {"parallelism": 8, "suspend": True, "template": POD}, [], 0),
    "CronJob": (BATCH, "CronJob", {"jobTemplate": {"spec": {"parallelism": 3, "template": POD}}}, [3], 3),
    "JobSet": (JOBSET, "JobSet", replicated(("driver", 1, 1), ("worker", 2, 3)), [7], 7),
    "JobSet in order": (
        JOBSET,
        "JobSet",
        replicated(("driver", 1, 1), ("worker", 2, 3), startupPolicy={"startupPolicyOrder": "InOrder"}),
        [1, 6],
        7,
    ),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(4), [4, 4], 8),
    "LeaderWorkerSet whose workers wait": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        leader(4, startupPolicy="LeaderReady"),
        [1, 1],
        8,
    ),
    "DisaggregatedSet": (
        "disaggregatedset.x-k8s.io/v1",
        "DisaggregatedSet",
        {"roles": [{"name": "prefill", "spec": leader(2)}, {"name": "decode", "spec": leader(3)}]},
        [2, 2, 3, 3],
        10,
    ),
    "RayCluster": (RAY, "RayCluster", ray(replicas(3, groupName="a", minReplicas=1)), [4], 4),
    "RayCluster of hosts": (RAY, "RayCluster", ray(replicas(2, groupName="a", numOfHosts=2)), [5], 5),
    "RayCluster that scales": (
        RAY,
        "RayCluster",
        ray(replicas(3, groupName="a", minReplicas=1), enableInTreeAutoscaling=True, autoscalerOptions=FREE),
        [2],
        4,
    ),
    "RayCluster that is suspended": (RAY, "RayCluster", ray(replicas(3, groupName="a"), suspend=True), [], 0),
    "RayCluster that is asked for fewer than it has at least": (
        RAY,
        "RayCluster",
        ray(replicas(1, groupName="a", minReplicas=3, maxReplicas=5)),
        [4],
        4,
    ),
    "RayCluster that is asked for more than it has at most": (
        RAY,
        "RayCluster",
        ray(replicas(9, groupName="a", minReplicas=0, maxReplicas=5)),
        [6],
        6,
    ),
    "RayCronJob": (RAY, "RayCronJob", {"schedule": "@daily", "jobTemplate": {"rayClusterSpec": TUNED}}, [3], 3),
    "RayJob": (RAY, "RayJob", {"rayClusterSpec": TUNED}, [3], 3),
    "RayService": (RAY, "RayService", {"rayClusterConfig": TUNED}, [3], 3),
    "PyTorchJob": (KUBEFLOW, "PyTorchJob", {"pytorchReplicaSpecs": ROLES}, [4], 4),
    "PyTorchJob that is elastic": (
        KUBEFLOW,
        "PyTorchJob",
        {"pytorchReplicaSpecs": ROLES, "elasticPolicy": {"minReplicas": 2}},
        [3],
        4,
    ),
    "PyTorchJob with a policy": (
        KUBEFLOW,
        "PyTorchJob",
        {"pytorchReplicaSpecs": ROLES, "runPolicy": {"schedulingPolicy": {"minAvailable": 2}}},
        [2],
        4,
    ),
    "TFJob": (KUBEFLOW, "TFJob", {"tfReplicaSpecs": {"PS": replicas(1), "Worker": replicas(2)}}, [3], 3),
    "XGBoostJob": (KUBEFLOW, "XGBoostJob", {"xgbReplicaSpecs": ROLES}, [4], 4),
    "PaddleJob": (KUBEFLOW, "PaddleJob", {"paddleReplicaSpecs": {"Worker": replicas(2)}}, [2], 2),
    "JAXJob": (KUBEFLOW, "JAXJob", {"jaxReplicaSpecs": {"Worker": replicas(2)}}, [2], 2),
    "MPIJob": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {"mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(3)}},
        [4],
        4,
    ),
    "MPIJob whose launcher waits": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "mpiReplicaSpecs": {"Launcher": replicas(None), "Worker": replicas(3)},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        [3],
        4,
    ),
    "SparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {**SPARK, "executor": {**EXECUTOR, "instances": 3}},
        [1, 3],
        4,
    ),
    "SparkApplication that scales": (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {**SPARK, "executor": {**EXECUTOR, "instances": 3}, "dynamicAllocation": {"enabled": True, "minExecutors": 2}},
        [1, 2],
        4,
    ),
    "SparkApplication that begins with more": (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {
            **SPARK,
            "executor": EXECUTOR,
            "dynamicAllocation": {"enabled": True, "minExecutors": 2, "initialExecutors": 4},
        },
        [1, 2],
        5,
    ),
    "SparkApplication that is suspended": (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {**SPARK, "executor": EXECUTOR, "suspend": True},
        [],
        0,
    ),
    "RayCluster of hosts that scales": (
        *(RAY, "RayCluster"),
        ray(replicas(3, groupName="a", minReplicas=2, numOfHosts=4), enableInTreeAutoscaling=True, **FREED),
        [9],
        13,
    ),
    "RayCluster of which one group is suspended": (
        *(RAY, "RayCluster", ray(replicas(2, groupName="a"), replicas(2, groupName="b", suspend=True)), [3], 3),
    ),
    "RayJob that is suspended": (RAY, "RayJob", {"suspend": True, "rayClusterSpec": TUNED}, [], 0),
    "JobSet whose workers wait for another job to be ready": (
        *(JOBSET, "JobSet"),
        {"replicatedJobs": [STAGE, {**STAGE, "name": "b", "replicas": 2, "dependsOn": [{"name": "a"}]}]},
        [1, 2],
        3,
    ),
    "JobSet without replicas of one job": (JOBSET, "JobSet", replicated(("a", 0, 1), ("b", 1, 2)), [2], 2),
    "LeaderWorkerSet of sub groups": (
        *("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        {
            "leaderWorkerTemplate": {"size": 9, "workerTemplate": POD, "subGroupPolicy": {"subGroupSize": 4}},
            "rolloutStrategy": {"rollingUpdateConfiguration": {"partition": 1, "maxSurge": 1}},
        },
        [9],
        9,
    ),
    "TFJob of four roles": (
        *(KUBEFLOW, "TFJob"),
        {"tfReplicaSpecs": {role: replicas(1) for role in ("Chief", "PS", "Worker", "Evaluator")}},
        [4],
        4,
    ),
    "MPIJob whose launcher is a worker": (
        *("kubeflow.org/v2beta1", "MPIJob"),
        {"mpiReplicaSpecs": {"Launcher": replicas(1)}, "runLauncherAsWorker": True},
        [1],
        1,
    ),
    "SparkConnect": (
        "sparkoperator.k8s.io/v1alpha1",
        "SparkConnect",
        {"server": {"template": POD}, "executor": {"instances": 3, "template": POD}},
        [1, 3],
        4,
    ),
    "SparkConnect that scales": (
        "sparkoperator.k8s.io/v1alpha1",
        "SparkConnect",
        {
            "server": {"template": POD},
            "executor": {"template": POD},
            "dynamicAllocation": {"enabled": True, "minExecutors": 2, "initialExecutors": 4},
        },
        [1, 2],
        5,
    ),
    "SparkConnect of which nothing says how many executors it has": (
        *("sparkoperator.k8s.io/v1alpha1", "SparkConnect"),
        {"server": {"template": POD}, "executor": {"template": POD}},
        [1, 2],
        3,
    ),
    "Job of which nothing is asked for": (BATCH, "Job", {"parallelism": 4, "completions": 0, "template": POD}, [], 0),
    "Job whose pods are replaced once they have failed": (
        *(
            BATCH,
            "Job",
            {"parallelism": 3, "completions": 6, "podReplacementPolicy": "Failed", "template": POD},
            [3],
            3,
        ),
    ),
    "Job that another controller manages": (
        *(BATCH, "Job", {"parallelism": 2, "managedBy": "example.com/jobs", "template": POD}, [2], 2),
    ),
    "JobSet with a coordinator": (
        *(JOBSET, "JobSet"),
        replicated(("a", 1, 1), ("b", 2, 2), coordinator={"replicatedJob": "a"}, failurePolicy={"maxRestarts": 3}),
        [5],
        5,
    ),
    "LeaderWorkerSet of leaders alone": (
        *("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(1, startupPolicy="LeaderReady"), [1, 1], 2),
    ),
    "RayCluster of groups of hosts, one of them suspended": (
        *(RAY, "RayCluster"),
        ray(
            replicas(2, groupName="a", numOfHosts=2, minReplicas=1),
            replicas(2, groupName="b", numOfHosts=2, minReplicas=1, suspend=True),
            replicas(3, groupName="c", minReplicas=0),
            enableInTreeAutoscaling=True,
            autoscalerOptions=FREE,
        ),
        [3],
        8,
    ),
    "PyTorchJob of workers alone": (
        *(KUBEFLOW, "PyTorchJob"),
        {"pytorchReplicaSpecs": {"Worker": replicas(4)}, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 8}},
        [2],
        4,
    ),
    "PaddleJob that is elastic": (
        *(KUBEFLOW, "PaddleJob"),
        {"paddleReplicaSpecs": {"Worker": replicas(3)}, "elasticPolicy": {"minReplicas": 2}},
        [2],
        3,
    ),
    "MPIJob whose launcher is a worker and waits for the others": (
        *("kubeflow.org/v2beta1", "MPIJob"),
        {
            "mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(3)},
            "runLauncherAsWorker": True,
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        [3],
        4,
    ),
    "SparkApplication without executors": (
        *("sparkoperator.k8s.io/v1beta2", "SparkApplication", {**SPARK, "executor": {**EXECUTOR, "instances": 0}}),
        [1],
        1,
    ),
    "AppWrapper": ("workload.codeflare.dev/v1beta2", "AppWrapper", wrapped(), [3], 3),
    "AppWrapper with pod sets": (
        "workload.codeflare.dev/v1beta2",
        "AppWrapper",
        wrapped({"replicas": 3, "path": "template.spec.template"}),
        [3],
        3,
    ),
    "MPIJob of the training operator": (
        "kubeflow.org/v1",
        "MPIJob",
        {"cleanPodPolicy": "Running", "mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(2)}},
        [3],
        3,
    ),
    "Volcano CronJob": (
        "batch.volcano.sh/v1alpha1",
        "CronJob",
        {
            "schedule": "@daily",
            "jobTemplate": {
                "spec": {"minAvailable": 2, "schedulerName": "stromboli", "tasks": [{"replicas": 3, "template": POD}]}
            },
        },
        [2],
        3,
    ),
    "Volcano Job": (
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"minAvailable": 2, "schedulerName": "stromboli", "tasks": [{"name": "a", **replicas(3)}]},
        [2],
        3,
    ),
    "Deployment": ("apps/v1", "Deployment", replicas(3), [1], 3),
    "ReplicaSet": ("apps/v1", "ReplicaSet", replicas(3), [1], 3),
    "StatefulSet": ("apps/v1", "StatefulSet", replicas(3), [1], 3),
    "Notebook": ("kubeflow.org/v1", "Notebook", {"template": POD}, [1], 1),
}


def simulated(*manifests: Object) -> Run:
    """One session on a node with room for all pods."""
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": 64, "memory": "64Gi", "pods": 99}},
    }
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all([node, *manifests]).encode()))
    assert loaded.problems == []
    state = ClusterState(("stromboli",), reads=builders.READS)
    feed(state, admit(loaded, state.scheduler_names))
    return run(Engine(), state)


@pytest.mark.parametrize("case", GANGS)
def test_what_starts_together(case: str) -> None:
    version, kind, spec, together, pods = GANGS[case]
    done = simulated({"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    groups = [group for group in done.session.view.snapshot.pod_groups if group is not None]
    assert sorted(group.spec.min_member for group in groups) == together
    assert len(done.bindings) == pods
    for group in groups:
        assert (group.spec.min_resources or {})["cpu"] == str(group.spec.min_member)


def test_each_kind_of_the_table_is_tried_here() -> None:
    tried = {(version.rpartition("/")[0], kind) for version, kind, *_ in GANGS.values()}
    known = {(kind.row.group, kind.row.kind) for kind in known_kinds()}
    elsewhere = {"DaemonSet", "Pod", "ReplicationController", "TrainJob", "Workflow", "CronWorkflow"}
    elsewhere |= {"ScheduledSparkApplication", "PodGroup", "JobFlow"}
    assert known - tried == {(group, kind) for group, kind in known if kind in elsewhere}


@pytest.mark.parametrize(
    ("kind", "version", "spec"),
    [
        ("Job", BATCH, {"managedBy": ELSEWHERE, "parallelism": 2, "template": POD}),
        ("PyTorchJob", KUBEFLOW, {"pytorchReplicaSpecs": ROLES, "runPolicy": {"managedBy": ELSEWHERE}}),
        ("RayJob", RAY, {"managedBy": ELSEWHERE, "rayClusterSpec": ray()}),
    ],
)
def test_what_runs_in_another_cluster_has_no_pods_here(kind: str, version: str, spec: Object) -> None:
    done = simulated({"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    assert not done.bindings


def test_a_job_keeps_to_one_value_of_a_label_as_a_group_of_kubernetes_does() -> None:
    said = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    done = simulated(
        {
            "apiVersion": BATCH,
            "kind": "Job",
            "metadata": {"name": "w"},
            "spec": {"parallelism": 2, "scheduling": said, "template": POD},
        }
    )
    (group,) = [group for group in done.session.view.snapshot.pod_groups if group is not None]
    assert group.spec.network_topology is not None
    assert (group.spec.network_topology.mode, group.spec.network_topology.highest_tier_name) == ("hard", "rack")


def test_a_notebook_that_is_stopped_has_no_pod() -> None:
    meta = {"name": "w", "annotations": {"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}}
    done = simulated({"apiVersion": KUBEFLOW, "kind": "Notebook", "metadata": meta, "spec": {"template": POD}})
    assert done.bindings == {}


def problems(*manifests: Object) -> list[str]:
    """What is wrong with manifests, as they are read and as a cluster would take them."""
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all(manifests).encode()))
    admit(loaded, ("stromboli",))
    return loaded.problems


@pytest.mark.parametrize("kind", ["Workflow", "CronWorkflow"])
def test_a_workload_from_which_no_pods_follow_is_told(kind: str) -> None:
    whole = {"apiVersion": ARGO, "kind": kind, "metadata": {"name": "w"}, "spec": {}}
    (line,) = problems(whole)
    assert line.endswith("its pods do not follow from it: add what it makes, or its pods")
    assert problems({**whole, "metadata": {"name": "w", "uid": "u"}}) == []


@pytest.mark.parametrize(
    "key",
    [
        "scheduling.volcano.sh/group-min-member",
        "stromboli.io/run-time",
        "kueue.x-k8s.io/job-min-parallelism",
        "volcano.sh/network-topology-mode",
        "volcano.sh/preemptable",
    ],
)
def test_an_annotation_that_cannot_be_read_is_told_once(key: str) -> None:
    (line,) = problems(owner(BATCH, "Job", {"parallelism": 3, "template": POD}, uid="", annotations={key: "many"}))
    assert f"metadata.annotations[{key}]" in line


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("scheduling.volcano.sh/group-min-members", "scheduling.volcano.sh/group-min-member"),
        ("stromboli.io/runtime", "stromboli.io/run-time"),
        ("kueue.x-k8s.io/queuename", "kueue.x-k8s.io/queue-name"),
        ("volcano.sh/preemptible", "volcano.sh/preemptable"),
        ("kueue.x-k8s.io/podset-group-name", ""),
        ("example.com/queue-name", ""),
    ],
)
@pytest.mark.parametrize("what", ["annotations", "labels"])
def test_a_key_that_is_much_like_one_that_is_read_is_a_mistake(written: str, meant: str, what: str) -> None:
    said = {what: {written: "1"}}
    job = owner(BATCH, "Job", {"template": POD}, uid="", **said)
    templated = owner(BATCH, "Job", {"template": {**POD, "metadata": said}}, uid="")
    for each in (job, templated):
        told = f"metadata.{what}[{written}]: unknown field, with the value '1', did you mean '{meant}'?"
        assert [line.partition("/w: ")[2] for line in problems(each)] == ([told] if meant else [])


# -- owners as they are in a cluster ---------------------------------------------------------------------------------


def owner(version: str, kind: str, spec: Object | None = None, above: Object | None = None, **meta: Any) -> Object:
    number = abs(hash((kind, meta.get("name", "w")))) % 10**12
    metadata = {"name": "w", "namespace": "default", "uid": f"{UID[:24]}{number:012d}", **meta}
    if above is not None:
        metadata["ownerReferences"] = [reference(above)]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec or {}}


def reference(above: Object) -> Object:
    keys = {"apiVersion": above["apiVersion"], "kind": above["kind"], "controller": True}
    return {**keys, "name": above["metadata"]["name"], "uid": above["metadata"]["uid"]}


def pod_of(*owners: Object, **meta: Any) -> objects.Pod:
    """A pod that the first owner manages."""
    metadata = {"name": "p", "namespace": "default", "uid": "p", "ownerReferences": [reference(owners[0])], **meta}
    return msgspec.convert({"metadata": metadata, **POD}, objects.Pod)


def group_of(*owners: Object, kinds: Kinds | None = None, **meta: Any) -> Object:
    return pod_group_for(pod_of(*owners, **meta), owners, kinds)


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


@pytest.mark.parametrize(
    ("noted", "more", "together"),
    [
        ({EXCLUSIVE: "rack"}, {}, [3]),
        ({EXCLUSIVE: "rack"}, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, [1, 2]),
        # Nodes are labelled for each Job, so that none of its pods waits for another.
        ({EXCLUSIVE: "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"}, {}, [7]),
        ({}, {}, [7]),
    ],
)
def test_of_jobs_that_have_a_topology_for_themselves_the_first_pods_start_together(
    noted: Object, more: Object, together: list[int]
) -> None:
    made = owner(JOBSET, "JobSet", replicated(("driver", 1, 1), ("worker", 2, 3), **more), annotations=noted)
    labels = ({"jobset.sigs.k8s.io/replicatedjob-name": name} for name in ("driver", "worker"))
    groups = {each["metadata"]["name"]: each["spec"] for each in (group_of(made, labels=each) for each in labels)}
    assert sorted(spec["minMember"] for spec in groups.values()) == together
    assert all(spec["minResources"]["cpu"] == str(spec["minMember"]) for spec in groups.values())


def test_the_template_of_a_replicated_job_says_whether_it_has_a_topology_for_itself() -> None:
    spec = replicated(("driver", 1, 1), ("worker", 2, 3))
    spec["replicatedJobs"][1]["template"]["metadata"] = {"annotations": {EXCLUSIVE: "rack"}}
    assert group_of(owner(JOBSET, "JobSet", spec))["spec"]["minMember"] == 3


def test_the_leader_of_a_group_that_has_a_topology_for_itself_starts_alone() -> None:
    noted = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    made = owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(4), annotations=noted)
    assert group_of(made)["spec"]["minMember"] == 1


IN_ORDER = replicated(("driver", 1, 1), ("worker", 2, 3), startupPolicy={"startupPolicyOrder": "InOrder"})


@pytest.mark.parametrize(
    ("version", "kind", "spec", "together"),
    [
        (JOBSET, "JobSet", IN_ORDER, [1, 6]),
        (JOBSET, "JobSet", replicated(("driver", 1, 1), ("worker", 2, 3)), [7]),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(4, startupPolicy="LeaderReady"), [1, 1]),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(4), [8]),
    ],
)
def test_what_is_wrapped_starts_in_its_own_order(version: str, kind: str, spec: Object, together: list[int]) -> None:
    """In files and in a cluster, whatever pod sets the AppWrapper names."""
    inner = {"apiVersion": version, "kind": kind, "metadata": {"name": "in"}, "spec": spec}
    path = "replicatedJobs[0].template.spec.template" if kind == "JobSet" else "leaderWorkerTemplate.workerTemplate"
    sets = [{"replicas": together[0], "path": f"template.spec.{path}"}]
    wrapper = {"components": [{"template": inner, "podSets": sets}]}
    named = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "w"}}
    done = simulated({**named, "spec": wrapper})
    groups = [group for group in done.session.view.snapshot.pod_groups if group is not None]
    assert sorted(group.spec.min_member for group in groups) == together
    whole = len(together) == 1
    above = owner(named["apiVersion"], "AppWrapper", wrapper)
    below = owner(version, kind, spec, above, name="in")
    made = group_of(below, above, labels={"jobset.sigs.k8s.io/replicatedjob-name": "driver"})
    assert made["metadata"]["ownerReferences"][0]["kind"] == ("AppWrapper" if whole else kind)
    assert made["spec"]["minMember"] == together[0]


def test_the_partitions_of_a_task_are_sub_groups_that_start_whole() -> None:
    partitions = {"totalPartitions": 3, "partitionSize": 2, "minPartitions": 2, "networkTopology": {"mode": "soft"}}
    tasks = [{"name": "a", **replicas(6), "partitionPolicy": partitions}]
    spec = {"minAvailable": 4, "schedulerName": "stromboli", "tasks": tasks}
    done = simulated(
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "w"}, "spec": spec}
    )
    (job,) = done.session.view.jobs.values()
    (policy,) = job.pod_group.spec.sub_group_policy
    assert (policy.name, policy.sub_group_size, policy.min_sub_groups) == ("a", 2, 2)
    assert job.pod_group.spec.min_task_member == {"a": 4}
    assert len(job.sub_jobs) == 3
    assert len(done.bindings) == 6


def test_a_job_that_is_disrupted_as_one_is_evicted_whole() -> None:
    spec = {"parallelism": 3, "scheduling": {"disruptionMode": {"all": {}}}, "template": POD}
    assert group_of(owner(BATCH, "Job", spec))["metadata"]["annotations"]["stromboli.io/evicted-together"] == "true"
    spec["scheduling"] = {"disruptionMode": {"single": {}}}
    assert "annotations" not in group_of(owner(BATCH, "Job", spec))["metadata"]


def test_a_job_ends_with_fewer_pods_than_it_began_with() -> None:
    spec = {"parallelism": 4, "completions": 10, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    job = owner(BATCH, "Job", spec)
    job["status"] = {"succeeded": 5, "failedIndexes": "1,3-4"}
    assert group_of(job)["spec"]["minMember"] == 2


@pytest.mark.parametrize(("succeeded", "least"), [({}, 7), ({"driver": 1}, 6), ({"driver": 1, "worker": 2}, 2)])
def test_a_job_set_has_no_pods_of_jobs_that_have_succeeded(succeeded: dict[str, int], least: int) -> None:
    of = {"parallelism": 2, "completions": 2, "template": POD}
    jobs = [("driver", 1, {"parallelism": 1, "template": POD}), ("worker", 3, of)]
    listed = [{"name": name, "replicas": count, "template": {"spec": spec}} for name, count, spec in jobs]
    made = owner("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": listed})
    made["status"] = {"replicatedJobsStatus": [{"name": name, "succeeded": n} for name, n in succeeded.items()]}
    assert group_of(made)["spec"]["minMember"] == least


@pytest.mark.parametrize(
    ("key", "of"),
    [
        ("scheduling.volcano.sh/queue-name", "annotations"),
        ("volcano.sh/queue-name", "labels"),
        ("kueue.x-k8s.io/queue-name", "labels"),
        ("kai.scheduler/queue", "labels"),
    ],
)
def test_the_queue_is_said_by_the_workload_or_what_owns_it_or_the_pod(key: str, of: str) -> None:
    jobs = owner(BATCH, "CronJob", **{of: {key: "above"}})
    assert group_of(owner(BATCH, "Job", above=jobs), jobs)["spec"]["queue"] == "above"
    mine = owner(BATCH, "Job", above=jobs, **{of: {key: "own"}})
    assert group_of(mine, jobs)["spec"]["queue"] == "own"
    assert group_of(owner(BATCH, "Job"), **{of: {key: "pod"}})["spec"]["queue"] == "pod"
    assert "queue" not in group_of(owner(BATCH, "Job"))["spec"]


@pytest.mark.parametrize("key", ["scheduling.volcano.sh/group-min-member", "kai.scheduler/batch-min-member"])
def test_pods_of_which_none_have_to_start_together_start_one_by_one(key: str) -> None:
    """A group that starts with no pod has completed before any of them runs."""
    job = owner(BATCH, "Job", {"parallelism": 4, "template": POD}, annotations={key: "0"})
    assert group_of(job)["spec"]["minMember"] == 1


@pytest.mark.parametrize("key", ["scheduling.volcano.sh/group-min-member", "kai.scheduler/batch-min-member"])
@pytest.mark.parametrize("kind", [kind for _, kind, *_ in GANGS.values() if kind not in ("Job", "SparkApplication")])
def test_an_annotation_of_an_owner_says_how_many_start_together(key: str, kind: str) -> None:
    version, _, spec, *_ = next(case for case in GANGS.values() if case[1] == kind)
    asked, started = ("2", 2) if kind in ("PaddleJob", "JAXJob") else ("3", 1 if kind == "StatefulSet" else 3)
    assert group_of(owner(version, kind, spec, annotations={key: asked}))["spec"]["minMember"] == started


IN_ORDER = ", since StatefulSet w makes the others when these are ready, unless its podManagementPolicy is Parallel"
MPI = {"Launcher": replicas(1), "Worker": replicas(3)}
#: what asks for more pods than there can be before one is ready, how many start, and what is said of it
TOO_MANY = {
    "StatefulSet": ("apps/v1", "StatefulSet", replicas(3), 1, f"is 1 instead of 5{IN_ORDER}"),
    "StatefulSet in parallel": (
        *("apps/v1", "StatefulSet", replicas(3, podManagementPolicy="Parallel"), 3),
        "is 3 instead of 5, since StatefulSet w has no more pods at a time",
    ),
    "Job": (
        *(BATCH, "Job", {"parallelism": 2, "completions": 9, "template": POD}, 2),
        "is 2 instead of 5, since Job w has no more pods at a time",
    ),
    "leader that has to be ready": (
        *("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(4, startupPolicy="LeaderReady"), 1),
        "is 1 instead of 5, since LeaderWorkerSet w makes the others when these are ready",
    ),
    "workers that have to be ready": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {"mpiReplicaSpecs": MPI, "launcherCreationPolicy": "WaitForWorkersReady"},
        3,
        "is 3 instead of 5, since MPIJob w makes the others when these are ready",
    ),
    "autoscaler, which is in the head": (
        RAY,
        "RayCluster",
        ray(replicas(2, groupName="a", minReplicas=1, maxReplicas=9), enableInTreeAutoscaling=True),
        3,
        "is 3 instead of 5, since RayCluster w has no more pods at a time",
    ),
    "field": (
        KUBEFLOW,
        "PyTorchJob",
        {"pytorchReplicaSpecs": ROLES, "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
        4,
        "is 4 instead of 5, since PyTorchJob w has no more pods at a time",
    ),
}


@pytest.mark.parametrize("case", TOO_MANY)
def test_no_gang_waits_for_more_pods_than_there_can_be_before_it_runs(case: str) -> None:
    version, kind, spec, started, told = TOO_MANY[case]
    annotations = {"scheduling.volcano.sh/group-min-member": "5"} if case != "field" else {}
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "annotations": annotations}, "spec": spec}
    session = simulated(whole).session
    job = next(iter(session.view.jobs.values()))
    assert (job.min_available, ignored_of_job(session, job)) == (started, {"minMember": told})


def test_each_part_of_what_asks_for_a_number_has_as_many_of_its_pods() -> None:
    asked = {"scheduling.volcano.sh/group-min-member": "3"}
    whole = {"apiVersion": RAY, "kind": "RayJob", "metadata": {"name": "w", "annotations": asked}}
    spec = {"rayClusterSpec": ray(replicas(4, groupName="a")), "submitterPodTemplate": POD}
    session = simulated({**whole, "spec": spec}).session
    jobs = session.view.jobs.values()
    assert sorted((job.min_available, job.size) for job in jobs) == [(1, 1), (3, 5)]
    assert [ignored_of_job(session, job) for job in jobs] == [{}, {}]


@pytest.mark.parametrize(("asked", "sized"), [("3", True), ("many", True), ("", False)])
def test_replicas_are_sized_by_an_annotation_whatever_it_says(asked: str, sized: bool) -> None:
    """Also by one that cannot be read: pods are looked at before that is told."""
    noted = {"scheduling.volcano.sh/group-min-member": asked} if asked else {}
    for kind, found in (("ReplicaSet", sized), ("StatefulSet", sized), ("Job", False)):
        version = BATCH if kind == "Job" else "apps/v1"
        above = owner(version, kind, replicas(3), annotations=noted)
        assert family_of(pod_of(above), [above]).is_sized is found


def test_a_size_for_all_parts_of_a_job_set_is_no_mistake_of_one() -> None:
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    asked = {"scheduling.volcano.sh/group-min-member": "5"}
    whole = {"apiVersion": JOBSET, "kind": "JobSet", "metadata": {"name": "w", "annotations": asked}}
    session = simulated({**whole, "spec": replicated(("a", 1, 1), ("b", 2, 2), **in_order)}).session
    jobs = session.view.jobs.values()
    assert sorted(job.min_available for job in jobs) == [1, 4]
    assert [ignored_of_job(session, job) for job in jobs] == [{}, {}]


def test_a_cron_job_says_of_its_jobs_what_its_template_does() -> None:
    said = {"annotations": {"scheduling.volcano.sh/group-min-member": "2"}, "labels": {"kai.scheduler/queue": "q"}}
    spec = {"schedule": "@daily", "jobTemplate": {"metadata": said, "spec": {"parallelism": 3, "template": POD}}}
    session = simulated(
        {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}},
        {"apiVersion": BATCH, "kind": "CronJob", "metadata": {"name": "w"}, "spec": spec},
    ).session
    assert [(job.min_available, job.queue.name) for job in session.view.jobs.values()] == [(2, "q")]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Notebook"])
def test_what_asks_for_more_replicas_than_it_has_starts_in_files_as_in_a_cluster(kind: str) -> None:
    version = f"{KUBEFLOW}" if kind == "Notebook" else "apps/v1"
    asked = {"scheduling.volcano.sh/group-min-member": "9"}
    spec = {"template": POD} if kind == "Notebook" else replicas(3, podManagementPolicy="Parallel")
    if kind == "Deployment":
        del spec["podManagementPolicy"]
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "annotations": asked}, "spec": spec}
    done = simulated(whole)
    assert len(done.bindings) == (1 if kind == "Notebook" else 3)


def test_a_wrapped_set_that_makes_its_pods_in_order_starts_with_the_first() -> None:
    inner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "in"}, "spec": replicas(3)}
    spec = {"components": [{"template": inner, "podSets": [{"replicas": 3, "path": "template.spec.template"}]}]}
    assert group_of(owner("workload.codeflare.dev/v1beta2", "AppWrapper", spec))["spec"]["minMember"] == 1


@pytest.mark.parametrize(("executors", "started"), [({}, 5), ({"maxExecutors": 3}, 3)])
def test_executors_that_scale_are_as_many_as_their_driver_may_ask_for(executors: Object, started: int) -> None:
    spec = {**SPARK, "executor": {**EXECUTOR, "instances": 1}, "dynamicAllocation": {"enabled": True, **executors}}
    annotations = {"scheduling.volcano.sh/group-min-member": "5"}
    application = owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec, annotations=annotations)
    group = group_of(application, labels={"spark-role": "executor"})
    assert group["spec"]["minMember"] == started


@pytest.mark.parametrize(("replicas", "together"), [(1, 1), (2, 2), (4, 3), (0, 1)])
def test_the_replica_sets_of_a_rollout_start_with_the_pods_that_they_have(replicas: int, together: int) -> None:
    above = owner("apps/v1", "Deployment", annotations={"scheduling.volcano.sh/group-min-member": "3"})
    part = owner("apps/v1", "ReplicaSet", {"replicas": replicas, "template": {}}, above=above)
    assert group_of(part, above)["spec"]["minMember"] == together


def test_kueue_says_how_many_pods_of_a_job_start_together() -> None:
    job = owner(BATCH, "Job", {"parallelism": 8}, annotations={"kueue.x-k8s.io/job-min-parallelism": "5"})
    assert group_of(job)["spec"]["minMember"] == 5


@pytest.mark.parametrize(
    ("annotations", "topology"),
    [
        ({"volcano.sh/network-topology-mode": "soft"}, {"mode": "soft"}),
        ({"volcano.sh/network-topology-highest-tier": "2"}, {"highestTierAllowed": 2}),
        ({"volcano.sh/network-topology-highest-tier-allowed": "2"}, {"highestTierAllowed": 2}),
        ({"kueue.x-k8s.io/podset-required-topology": "rack"}, {"mode": "hard", "highestTierName": "rack"}),
        ({"kai.scheduler/topology-preferred-placement": "zone"}, {"mode": "soft", "highestTierName": "zone"}),
    ],
)
def test_the_topology_is_said_by_the_workload_or_its_pods(annotations: Object, topology: Object) -> None:
    assert group_of(owner(BATCH, "Job", annotations=annotations))["spec"]["networkTopology"] == topology
    assert group_of(owner(BATCH, "Job", labels=annotations))["spec"]["networkTopology"] == topology
    assert group_of(owner(BATCH, "Job"), annotations=annotations)["spec"]["networkTopology"] == topology


def test_a_topology_of_parts_of_a_gang_is_told_to_have_no_effect() -> None:
    key = "kueue.x-k8s.io/podset-slice-required-topology"
    template = {**POD, "metadata": {"annotations": {key: "rack", "kueue.x-k8s.io/podset-slice-size": "2"}}}
    spec = {"parallelism": 4, "template": template}
    done = simulated({"apiVersion": BATCH, "kind": "Job", "metadata": {"name": "w"}, "spec": spec})
    (job,) = done.session.view.jobs.values()
    told = {"subGroupPolicy": f"has no slices: {key} has no effect, and pods of a slice may be far apart"}
    assert ignored_of_job(done.session, job) == told


def test_a_priority_is_said_by_the_workload_before_its_pods() -> None:
    cluster = owner(RAY, "RayCluster", ray(), labels={"ray.io/priority-class-name": "high"})
    assert group_of(cluster)["spec"]["priorityClassName"] == "high"


def test_the_pods_of_a_train_job_are_a_gang_of_its_job_set() -> None:
    train = owner("trainer.kubeflow.org/v1alpha1", "TrainJob", name="llm")
    jobs = owner(JOBSET, "JobSet", replicated(("node", 1, 4)), above=train)
    job = owner(BATCH, "Job", {"parallelism": 4}, above=jobs, name="w-node-0")
    group = group_of(job, jobs, train)
    assert group["spec"]["minMember"] == 4
    assert group["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    assert group["metadata"]["annotations"] == {"stromboli.io/workload": "TrainJob/llm"}


def test_a_gang_that_a_workflow_makes_is_one() -> None:
    workflow = owner("argoproj.io/v1alpha1", "Workflow", labels={"kai.scheduler/queue": "research"})
    torch = owner(KUBEFLOW, "PyTorchJob", {"pytorchReplicaSpecs": ROLES}, above=workflow)
    found = group_of(torch, workflow)["spec"]
    assert (found["minMember"], found["queue"]) == (4, "research")
    assert group_of(workflow)["spec"]["minMember"] == 1


def test_the_submitter_of_a_ray_job_starts_by_itself() -> None:
    job = owner(RAY, "RayJob")
    assert group_of(owner(BATCH, "Job", {"parallelism": 1}, above=job), job)["spec"]["minMember"] == 1
    cluster = owner(RAY, "RayCluster", ray(replicas(3)), above=job)
    assert group_of(cluster, job)["spec"]["minMember"] == 4


def test_a_job_that_cleans_up_after_a_ray_cluster_waits_for_no_pods_of_it() -> None:
    """These are gone: KubeRay makes the Job once they are, with their labels, and has the cluster wait for it."""
    wrapper = owner("workload.codeflare.dev/v1beta2", "AppWrapper", wrapped({"replicas": 4}))
    cluster = owner(RAY, "RayCluster", ray(replicas(3)), above=wrapper, annotations={said.QUEUE[0]: "research"})
    job = owner(BATCH, "Job", {"template": POD}, above=cluster, name="w-redis-cleanup")
    group = group_of(job, cluster, wrapper, labels={"ray.io/group": "headgroup", "ray.io/node-type": "redis-cleanup"})
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (1, "research")
    assert group["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert group_of(cluster, wrapper)["spec"]["minMember"] == 4


def test_groups_of_a_leader_worker_set_are_told_apart() -> None:
    whole = owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(3))
    leaders = owner("apps/v1", "StatefulSet", above=whole)
    first = owner("v1", "Pod", above=leaders, name="w-0")
    workers = owner("apps/v1", "StatefulSet", above=first, name="w-0")
    index = {"leaderworkerset.sigs.k8s.io/group-index": "0"}
    group = group_of(workers, first, leaders, whole, labels=index)
    assert group["metadata"]["name"] == f"podgroup-{whole['metadata']['uid']}-0"
    assert group == group_of(leaders, whole, labels=index)
    assert group["spec"]["minMember"] == 3


def test_executors_of_spark_submit_are_counted_by_an_annotation_of_the_driver() -> None:
    labels = {"spark-role": "driver", "spark-app-selector": "spark-1"}
    note = {"scheduling.volcano.sh/group-min-member": "4"}
    driver = owner("v1", "Pod", labels=labels, annotations=note)
    group = group_of(driver, labels={"spark-role": "executor", "spark-app-selector": "spark-1"})
    assert group["spec"]["minMember"] == 4
    assert group["metadata"]["name"].endswith("-executor")


@pytest.mark.parametrize(
    "above",
    [owner("argoproj.io/v1alpha1", "Workflow"), owner("apps/v1", "DaemonSet"), owner("example.com/v1", "Unknown")],
    ids=lambda each: each["kind"],
)
def test_pods_start_one_by_one_where_nothing_else_is_known(above: Object) -> None:
    group = group_of(above)
    assert group["spec"]["minMember"] == 1
    assert group["metadata"]["name"] == f"podgroup-{above['metadata']['uid']}"


def test_roles_of_an_elastic_gang_have_their_own_least_numbers() -> None:
    spec = ray(replicas(4, groupName="gpu", minReplicas=2), enableInTreeAutoscaling=True)
    cluster = owner(RAY, "RayCluster", spec)
    pod = pod_of(cluster, labels={"ray.io/group": "gpu"})
    family = family_of(pod, [cluster])
    assert family.manifest(pod)["spec"]["minTaskMember"] == {"headgroup": 1, "gpu": 2}
    assert family.annotations(pod)["volcano.sh/task-spec"] == "gpu"


@pytest.mark.parametrize("bad", ["8", -1, 2**31, 1.5, True])
def test_a_number_that_is_none_is_named(bad: Any) -> None:
    with pytest.raises(InvalidObjectError, match=r"Job default/w: spec\.parallelism: should be a number from 0 to"):
        group_of(owner(BATCH, "Job", {"parallelism": bad}))


def test_what_is_no_mapping_or_list_counts_as_absent() -> None:
    for spec in (None, 7, [], {"workerGroupSpecs": {"a": 1}}, {"headGroupSpec": []}):
        cluster = {**owner(RAY, "RayCluster"), "spec": spec}
        assert group_of(cluster)["spec"]["minMember"] >= 1


RUN_TIME, FEWER = "stromboli.io/run-time", "stromboli.io/fewer-together"
ENDS = {"activeDeadlineSeconds": 3600}
ENDING = {"spec": {**POD["spec"], **ENDS}}


@pytest.mark.parametrize(
    ("owners", "seconds"),
    [
        ([owner(BATCH, "Job", {"parallelism": 2, **ENDS})], 3600),
        ([owner(BATCH, "Job", {"parallelism": 2, **ENDS}, annotations={RUN_TIME: "45m"})], 2700),
        ([owner(BATCH, "Job", ENDS, labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"})], 60),
        ([owner(BATCH, "Job", {"parallelism": 2, "completions": 2, "template": ENDING})], 3600),
        # Others come after these pods.
        ([owner(BATCH, "Job", {"parallelism": 2, "completions": 9, "template": ENDING})], None),
        ([owner(KUBEFLOW, "PyTorchJob", {"pytorchReplicaSpecs": ROLES, "runPolicy": ENDS})], 3600),
        ([owner(RAY, "RayCluster", ray()), owner(RAY, "RayJob", ENDS)], 3600),
        ([owner(BATCH, "Job"), owner(BATCH, "CronJob", annotations={RUN_TIME: "90"})], 90),
        ([owner(BATCH, "Job", {"activeDeadlineSeconds": 2**40})], 2**40),
        ([owner(BATCH, "Job", {"activeDeadlineSeconds": "3600"}, annotations={RUN_TIME: "soon"})], None),
        ([owner(BATCH, "Job")], None),
    ],
)
def test_the_run_time_is_said_by_the_workload_or_what_owns_it(owners: list[Object], seconds: float | None) -> None:
    assert PodGroup.parse(pod_group_for(pod_of(*owners), owners)).run_time == seconds


def test_a_job_set_runs_as_long_as_the_last_of_its_jobs_if_all_of_them_end() -> None:
    def job_set(*deadlines: Object) -> Object:
        jobs = [{"name": f"j{n}", "template": {"spec": {**each, "template": POD}}} for n, each in enumerate(deadlines)]
        return owner("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})

    for deadlines, seconds in (((ENDS, {"activeDeadlineSeconds": 60}), 3600), ((ENDS, {}), None)):
        whole = job_set(*deadlines)
        assert PodGroup.parse(pod_group_for(pod_of(whole), [whole])).run_time == seconds


def test_a_pod_by_itself_says_how_long_it_runs_and_one_of_many_does_not() -> None:
    ends = builders.pod("p", cpu="1", activeDeadlineSeconds=60)
    assert PodGroup.parse(pod_group_for(ends, [])).run_time == 60
    one_of_many = pod_of(owner("example.com/v1", "Unknown"))
    spec = msgspec.structs.replace(one_of_many.spec, active_deadline_seconds=60)
    assert PodGroup.parse(pod_group_for(msgspec.structs.replace(one_of_many, spec=spec), [])).run_time is None


# -- owners that change ----------------------------------------------------------------------------------------------


def changes(before: Object, after: Object, **meta: Any) -> Object:
    """What of the PodGroup of a pod is to change when its owner does."""
    pod = pod_of(before, **meta)
    first = family_of(pod, [before])
    found = family_of(pod, [after]).changes(PodGroup.parse(first.manifest(pod)), first.said)
    return {**found.get("spec", {}), **found.get("metadata", {}).get("annotations", {})}


def test_a_group_follows_the_number_of_its_pods_and_what_they_need() -> None:
    four, eight = (owner(BATCH, "Job", {"parallelism": pods, "template": POD}) for pods in (4, 8))
    found = changes(four, eight)
    assert (found["minMember"], found["minResources"]["cpu"]) == (8, "8")
    assert changes(four, four) == {}


def test_with_an_autoscaler_only_what_is_always_there_changes_a_group() -> None:
    def cluster(pods: int, least: int, *, scales: bool = True) -> Object:
        groups = replicas(pods, groupName="gpu", minReplicas=least)
        return owner(RAY, "RayCluster", ray(groups, enableInTreeAutoscaling=scales))

    labels = {"ray.io/group": "gpu"}
    assert changes(cluster(4, 1), cluster(9, 1), labels=labels) == {}
    found = changes(cluster(4, 1), cluster(9, 3), labels=labels)
    assert (found["minMember"], found["minTaskMember"]) == (4, {"headgroup": 1, "gpu": 3})
    assert changes(cluster(2, 1, scales=False), cluster(5, 1, scales=False))["minMember"] == 6


def test_each_group_of_a_workload_follows_it() -> None:
    index = {"leaderworkerset.sigs.k8s.io/group-index": "1"}
    small, large = (owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leader(size)) for size in (2, 5))
    assert changes(small, large, labels=index)["minMember"] == 5


def test_a_queue_or_priority_that_the_owner_names_is_followed_and_what_its_pods_say_stays() -> None:
    job, moved = (owner(BATCH, "Job", labels=labels) for labels in ({}, {"kai.scheduler/queue": "research"}))
    assert changes(job, moved, annotations={"scheduling.volcano.sh/queue-name": "pods"}) == {"queue": "research"}


def test_what_an_owner_says_no_longer_is_left_to_its_pods() -> None:
    def job(queue: str, template: Object = POD, **annotations: str) -> Object:
        labels = {"kai.scheduler/queue": queue} if queue else {}
        return owner(BATCH, "Job", {"template": template}, labels=labels, annotations=annotations)

    templated = {**POD, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "pods"}}}
    tiers = {"volcano.sh/network-topology-highest-tier": "2"}
    assert changes(job("research"), job("")) == {"queue": None}
    assert changes(job("research", templated), job("", templated)) == {"queue": "pods"}
    assert changes(job("", **tiers), job("")) == {"networkTopology": None}
    assert changes(job(""), job("")) == {}
    assert changes(job("research", **tiers), job("research", **tiers)) == {}


def test_a_topology_that_is_said_otherwise_keeps_nothing_of_what_it_was() -> None:
    tier, named = (
        owner(BATCH, "Job", annotations=notes)
        for notes in (
            {"volcano.sh/network-topology-highest-tier": "2"},
            {"kai.scheduler/topology-required-placement": "rack"},
        )
    )
    assert changes(tier, named) == {
        "networkTopology": {"mode": "hard", "highestTierName": "rack", "highestTierAllowed": None}
    }


def test_numbers_of_roles_go_when_an_annotation_says_how_many_start_together() -> None:
    def cluster(**annotations: str) -> Object:
        groups = replicas(4, groupName="gpu", minReplicas=2)
        return owner(RAY, "RayCluster", ray(groups, enableInTreeAutoscaling=True), annotations=annotations)

    found = changes(
        cluster(), cluster(**{"scheduling.volcano.sh/group-min-member": "1"}), labels={"ray.io/group": "gpu"}
    )
    assert (found["minMember"], found["minTaskMember"]) == (1, None)


def test_numbers_of_roles_come_back_with_the_workloads_own_number() -> None:
    def cluster(**annotations: str) -> Object:
        groups = replicas(4, groupName="gpu", minReplicas=2)
        return owner(RAY, "RayCluster", ray(groups, enableInTreeAutoscaling=True), annotations=annotations)

    annotated = cluster(**{"scheduling.volcano.sh/group-min-member": "1"})
    found = changes(annotated, cluster(), labels={"ray.io/group": "gpu"})
    assert (found["minMember"], found["minTaskMember"]) == (3, {"headgroup": 1, "gpu": 2})


def test_what_is_told_of_a_smaller_gang_goes_with_its_reason() -> None:
    def stateful(asked: str) -> Object:
        noted = {"scheduling.volcano.sh/group-min-member": asked}
        return owner("apps/v1", "StatefulSet", replicas(3), annotations=noted)

    assert changes(stateful("3"), stateful("1")) == {FEWER: None}
    assert changes(stateful("1"), stateful("2")) == {FEWER: f"is 1 instead of 2{IN_ORDER}"}


def test_a_run_time_is_followed() -> None:
    bare, ends, noted = (
        owner(BATCH, "Job", spec, annotations=notes) for spec, notes in (({}, {}), (ENDS, {}), (ENDS, {RUN_TIME: "5m"}))
    )
    assert changes(bare, ends) == changes(noted, ends) == {RUN_TIME: "3600s"}
    assert changes(ends, noted) == {RUN_TIME: "5m"}
    assert changes(noted, noted) == {}


def test_what_a_group_needs_no_longer_is_taken_out() -> None:
    def torch(**policy: Any) -> Object:
        return owner(KUBEFLOW, "PyTorchJob", {"pytorchReplicaSpecs": ROLES, "runPolicy": {"schedulingPolicy": policy}})

    gpus, cpus = torch(minResources={"nvidia.com/gpu": "4"}), torch(minResources={"cpu": "4"})
    assert changes(gpus, cpus) == {"minResources": {"nvidia.com/gpu": None, "cpu": "4"}}
