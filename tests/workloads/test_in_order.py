"""Groups written by hand above workloads that make some pods when others are ready: they never start, and say why."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml

from stromboli.engine import Engine
from stromboli.explain.remedies import explained
from stromboli.simulation.admission import admit
from stromboli.simulation.manifests import load
from stromboli.simulation.run import Run, feed, run
from stromboli.state.cluster import ClusterState
from stromboli.workloads.in_order import ordered
from tests.builders import READS

Object = dict[str, Any]

CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
NAMED = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "mine"}}}
POD = {**NAMED, "spec": {"schedulerName": "stromboli", "restartPolicy": "Never", "containers": [CONTAINER]}}
JOB = {"spec": {"template": POD}}
DRIVER = {**NAMED["metadata"], "schedulerName": "stromboli", "cores": 1, "memory": "512m"}

#: the workload in order, what has it make all pods at once, how many there are at first, how many in all, what is told
CASES: dict[str, tuple[str, str, Object, Object, int, int, str]] = {
    "StatefulSet": (
        "apps/v1",
        "StatefulSet",
        {"replicas": 3, "template": POD},
        {"podManagementPolicy": "Parallel"},
        1,
        3,
        "create StatefulSet default/w again with podManagementPolicy: Parallel",
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3, "workerTemplate": POD}},
        {"startupPolicy": "LeaderCreated"},
        1,
        3,
        "set startupPolicy: LeaderCreated in LeaderWorkerSet default/w",
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [{"name": "a", "template": JOB}, {"name": "b", "replicas": 2, "template": JOB}],
        },
        {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}},
        1,
        3,
        "set startupPolicyOrder: AnyOrder in JobSet default/w, without dependsOn",
    ),
    "MPIJob": (
        "kubeflow.org/v2beta1",
        "MPIJob",
        {
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"replicas": 2, "template": POD}},
        },
        {"launcherCreationPolicy": "AtStartup"},
        2,
        3,
        "set launcherCreationPolicy: AtStartup in MPIJob default/w",
    ),
}
SPARK = {"driver": DRIVER, "executor": {**DRIVER, "instances": 2}}


def simulated(version: str, kind: str, spec: Object, least: int, *more: Object) -> Run:
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": 9, "memory": "9Gi", "pods": 9}},
    }
    group = {"kind": "PodGroup", "metadata": {"name": "mine"}, "spec": {"minMember": least}}
    workload = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    loaded = load(["-"], io.BytesIO(yaml.safe_dump_all([node, workload, *(more or [group])]).encode()))
    state = ClusterState(("stromboli",), reads=READS)
    feed(state, admit(loaded, state.scheduler_names))
    assert (loaded.problems, loaded.empty) == ([], {})
    return run(Engine(), state)


def told(done: Run, key: str = "default/mine") -> tuple[str, str]:
    answer = explained(done.session, "job", key, done.rehearsal)
    assert answer is not None
    return answer.detail, "; ".join(remedy.change for remedy in answer.remedies)


@pytest.mark.parametrize("case", CASES)
def test_a_group_for_all_pods_waits_for_good_and_says_what_to_change(case: str) -> None:
    version, kind, spec, at_once, first, pods, instead = CASES[case]
    waits = simulated(version, kind, spec, pods)
    assert (waits.bindings, len(waits.session.view.pods.records)) == ({}, first)
    detail, remedy = told(waits)
    assert f"{kind} default/w makes" in detail
    assert remedy.startswith(f"set minMember: {first} in PodGroup default/mine, or {instead}")
    assert len(simulated(version, kind, spec, first).bindings) == pods
    assert len(simulated(version, kind, {**spec, **at_once}, pods).bindings) == pods


def test_a_driver_that_waits_for_its_executors_is_told() -> None:
    waits = simulated("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK, 3)
    assert (waits.bindings, len(waits.session.view.pods.records)) == ({}, 1)
    assert "leave the driver of SparkApplication default/w out of this PodGroup" in told(waits)[1]
    assert len(simulated("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK, 1).bindings) == 3


def test_a_group_of_kubernetes_waits_as_well() -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "mine"},
        "spec": policy,
    }
    member = {"spec": {**POD["spec"], "schedulingGroup": {"podGroupName": "mine"}}}
    waits = simulated("apps/v1", "StatefulSet", {"replicas": 3, "template": member}, 3, group)
    assert len(waits.session.view.pods.records) == 1
    (job,) = waits.session.view.jobs
    assert "podManagementPolicy: Parallel" in told(waits, job)[1]


def test_a_group_of_the_coscheduling_plugin_waits_as_well() -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "mine"}}
    group |= {"spec": {"minMember": 3}}
    template = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "mine"}}, "spec": POD["spec"]}
    waits = simulated("apps/v1", "StatefulSet", {"replicas": 3, "template": template}, 3, group)
    assert (waits.bindings, len(waits.session.view.pods.records)) == ({}, 1)
    (job,) = waits.session.view.jobs
    assert told(waits, job)[1].startswith("set spec.minMember: 1 in PodGroup default/mine, or create StatefulSet")


def test_pods_beside_a_group_written_by_hand_are_made_as_ever() -> None:
    bare = {"spec": POD["spec"]}
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3, "leaderTemplate": POD}}
    spec["leaderWorkerTemplate"] |= {"workerTemplate": bare}  # type: ignore[operator]
    assert len(simulated("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, 1).bindings) == 3


def test_a_controller_that_would_make_a_group_leaves_one_that_is_named_by_hand() -> None:
    roles = {"Worker": {"replicas": 3, "template": POD}}
    done = simulated("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": roles}, 2)
    assert ([*done.session.view.jobs], len(done.bindings)) == (["default/mine"], 3)


def test_pods_that_do_not_wait_for_each_other_are_not_said_to() -> None:
    label = "statefulset.kubernetes.io/pod-name"
    assert ordered("default", [{label: "w-0"}, {label: "w-1"}]) is None
    assert ordered("default", [{label: "w-0"}, {}]) is None
    assert ordered("default", [{"app": "w"}]) is None
    worker = {"leaderworkerset.sigs.k8s.io/name": "w", "leaderworkerset.sigs.k8s.io/worker-index": "1", label: "w-0-1"}
    assert ordered("default", [worker]) is None


def test_nobody_is_told_to_wait_for_another_part_of_the_same_workload() -> None:
    jobs = [
        {"name": name, "replicas": count, "template": {"spec": {"template": {"spec": POD["spec"]}}}, **more}
        for name, count, more in (("a", 1, {}), ("b", 9, {"dependsOn": [{"name": "a", "status": "Ready"}]}))
    ]
    queue = {"kind": "Queue", "metadata": {"name": "default"}}
    done = simulated("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs}, 0, queue)
    assert list(done.bindings) == ["default/w-a-0"]
    (waits,) = (key for key in done.session.view.jobs if key.endswith("-b"))
    assert told(done, waits)[1].startswith("set the annotation")
