"""Other projects' operators, of those in `tests.operators.build`, beside the service on a real control plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.controlplane.projects import project
from tests.e2e.conftest import Start
from tests.e2e.test_workloads import patch, reference
from tests.e2e.world import Object, World, define, pod
from tests.operators.build import JOB_SET, KUBERAY, LEADER_WORKER_SET, MPI, TRAINING
from tests.operators.conftest import Operate

pytestmark = pytest.mark.operators


def template(cpu: str = "1") -> Object:
    return {"spec": {**pod("", cpu=cpu)["spec"], "restartPolicy": "Never"}}


def count(world: World) -> int:
    return len(world.items(f"/api/v1/namespaces/{world.namespace}/pods"))


def numbers(world: World) -> list[Any]:
    return sorted(group["spec"]["minMember"] for group in world.groups())


def make(world: World, version: str, kind: str, name: str, spec: Object, **meta: Any) -> str:
    """Create an object, and return its path."""
    path = f"/apis/{version}/namespaces/{world.namespace}/{kind.lower()}s"
    world.create(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec})
    return f"{path}/{name}"


def urgent(world: World) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if not world.api.get(f"{path}/urgent").is_success:
        world.create(path, {"metadata": {"name": "urgent"}, "value": 1000})


def waits_and_is_suspended(world: World, path: str, kind: str, size: int, spec: Callable[[bool], Object]) -> None:
    """A gang is whole and has no place; suspended it has no pods, and afterwards it is whole again."""
    eventually(lambda: numbers(world) == [size], 60)
    (group,) = world.groups()
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("research", "urgent")
    assert group["metadata"]["ownerReferences"][0]["kind"] == kind
    assert world.placed() == {}
    patch(world, path, {"spec": spec(True)})
    eventually(lambda: count(world) == 0, 60)
    patch(world, path, {"spec": spec(False)})
    eventually(lambda: count(world) == size, 60)
    assert world.placed() == {}


def test_a_job_set_starts_whole_in_its_queue_is_suspended_and_ends(
    world: World, start: Start, operate: Operate
) -> None:
    operate(JOB_SET)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="3")
    start()
    jobs = [
        {"name": name, "replicas": replicas, "template": {"spec": {**both, "template": template()}}}
        for name, replicas, both in (
            ("driver", 1, {"parallelism": 1, "completions": 1}),
            ("worker", 2, {"parallelism": 2, "completions": 2}),
        )
    ]
    labels = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "urgent"}
    path = make(world, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": jobs}, labels=labels)
    eventually(lambda: count(world) == 5, 60)
    waits_and_is_suspended(world, path, "JobSet", 5, lambda suspend: {"suspend": suspend})
    world.nodes(1, cpu="2", prefix="more")
    # Pods of Jobs complete here as soon as they run.
    eventually(lambda: world.get(path).get("status", {}).get("terminalState") == "Completed", 90)
    eventually(lambda: [group["status"].get("phase") for group in world.groups()] == ["Completed"], 60)
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [], 60)


def test_the_first_pods_of_a_job_set_find_an_exclusive_topology_for_the_others(
    world: World, start: Start, operate: Operate
) -> None:
    operate(JOB_SET)
    racks(world, "a")
    start()
    spec = {"parallelism": 3, "completions": 3, "template": template()}
    jobs = [{"name": "worker", "replicas": 2, "template": {"spec": spec}}]
    noted = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    version = "jobset.x-k8s.io/v1alpha2"
    path = make(world, version, "JobSet", "train", {"replicatedJobs": jobs}, annotations=noted)
    # Both Jobs need a rack, so the first pod of neither has a place in the one that there is.
    eventually(lambda: count(world) == 2 and numbers(world) == [2], 90)
    assert world.placed() == {}
    racks(world, "b")
    eventually(lambda: len(world.placed()) == 6, 120)
    of_jobs = {(name.split("-")[2], node[0]) for name, node in world.placed().items()}
    assert of_jobs in ({("0", "a"), ("1", "b")}, {("0", "b"), ("1", "a")})
    assert numbers(world) == [2]
    eventually(lambda: world.get(path).get("status", {}).get("terminalState") == "Completed", 90)


def racks(world: World, *names: str) -> None:
    for name in names:
        world.nodes(3, cpu="1", prefix=name)
        for number in range(3):
            patch(world, f"/api/v1/nodes/{name}-{number}", {"metadata": {"labels": {"rack": name}}})


def test_a_replica_of_a_leader_worker_set_starts_whole_and_restarts_whole(
    world: World, start: Start, operate: Operate
) -> None:
    operate(LEADER_WORKER_SET)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="2")
    start()
    served = {"spec": {**pod("")["spec"], "priorityClassName": "urgent"}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": served}}
    meta = {"labels": {"kai.scheduler/queue": "research"}}
    path = make(world, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec, **meta)
    eventually(lambda: count(world) == 3, 90)
    eventually(lambda: numbers(world) == [3], 60)
    (group,) = world.groups()
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("research", "urgent")
    assert world.placed() == {}
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 3, 60)
    # A second replica is a gang of its own.
    patch(world, path, {"spec": {"replicas": 2}})
    eventually(lambda: numbers(world) == [3, 3] and count(world) == 6, 90)
    assert len(world.placed()) == 3
    world.nodes(3, cpu="1", prefix="rest")
    eventually(lambda: len(world.placed()) == 6, 60)
    # The group of a pod that goes is made anew, and finds its places in the same gang.
    before = {each["metadata"]["uid"] for each in world.items(f"/api/v1/namespaces/{world.namespace}/pods")}
    world.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/serve-1-1").raise_for_status()

    def anew() -> int:
        pods = world.items(f"/api/v1/namespaces/{world.namespace}/pods")
        return sum(each["metadata"]["uid"] not in before and "nodeName" in each["spec"] for each in pods)

    eventually(lambda: anew() == 3 and len(world.placed()) == 6, 120)
    assert numbers(world) == [3, 3]
    # The group of a replica goes with it.
    patch(world, path, {"spec": {"replicas": 1}})
    eventually(lambda: numbers(world) == [3] and count(world) == 3, 60)
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [] and count(world) == 0, 90)


def test_a_leader_worker_set_whose_controller_makes_the_groups_is_left_to_it(
    world: World, start: Start, operate: Operate
) -> None:
    configured = (("gangSchedulingManagement", {"schedulerProvider": "volcano"}),)
    operate(replace(LEADER_WORKER_SET, configured=configured))
    world.nodes(1, cpu="2")
    start()
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": pod("")["spec"]}}}
    path = make(world, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec)
    eventually(lambda: count(world) == 3 and numbers(world) == [3], 90)
    assert world.placed() == {}
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 3, 60)
    patch(world, path, {"spec": {"replicas": 2}})
    eventually(lambda: count(world) == 6 and numbers(world) == [3, 3], 90)
    assert all(group["metadata"]["name"].startswith("serve-") for group in world.groups())
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [] and count(world) == 0, 90)


def test_a_ray_cluster_starts_whole_scales_is_suspended_and_ends(world: World, start: Start, operate: Operate) -> None:
    operate(KUBERAY)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="2")
    start()
    part = {"rayStartParams": {}, "template": {"spec": pod("")["spec"]}}
    workers = {"groupName": "w", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, **part}
    labels = {"kai.scheduler/queue": "research", "ray.io/priority-class-name": "urgent"}
    spec = {"headGroupSpec": part, "workerGroupSpecs": [workers]}
    path = make(world, "ray.io/v1", "RayCluster", "tune", spec, labels=labels)
    eventually(lambda: count(world) == 3, 90)
    eventually(lambda: numbers(world) == [3], 60)
    (group,) = world.groups()
    assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == ("research", "urgent")
    assert group["metadata"]["ownerReferences"][0]["kind"] == "RayCluster"
    assert world.placed() == {}
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 3, 60)
    # One more worker is asked for than fits: the group follows, and what runs stays.
    patch(world, path, {"spec": {"workerGroupSpecs": [{**workers, "replicas": 3}]}})
    eventually(lambda: count(world) == 4 and numbers(world) == [4], 90)
    assert len(world.placed()) == 3
    world.nodes(1, cpu="1", prefix="rest")
    eventually(lambda: len(world.placed()) == 4, 60)
    patch(world, path, {"spec": {"suspend": True}})
    eventually(lambda: count(world) == 0, 90)
    # What is suspended claims nothing of the four CPUs.
    world.gang("other", 4)
    eventually(lambda: len(world.placed()) == 4, 60)
    world.api.delete(path).raise_for_status()
    eventually(lambda: [group["metadata"]["name"] for group in world.groups()] == ["other"], 90)


def mpi_job(world: World, name: str, workers: int, **more: Any) -> str:
    def role(replicas: int) -> Object:
        return {"replicas": replicas, "template": {"spec": pod("")["spec"]}}

    policy = {"schedulingPolicy": {"queue": "research", "priorityClass": "urgent"}, "cleanPodPolicy": "Running"}
    spec = {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(workers)}, "runPolicy": policy, **more}
    return make(world, "kubeflow.org/v2beta1", "MPIJob", name, spec)


def test_an_mpi_job_starts_whole_in_its_queue_is_suspended_and_ends(
    world: World, start: Start, operate: Operate
) -> None:
    operate(MPI)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="2")
    start()
    path = mpi_job(world, "solve", 2)
    eventually(lambda: count(world) == 3, 90)
    waits_and_is_suspended(world, path, "MPIJob", 3, lambda suspend: {"runPolicy": {"suspend": suspend}})
    world.nodes(1, cpu="1", prefix="more")

    def succeeded() -> bool:
        conditions = world.get(path).get("status", {}).get("conditions") or []
        return any(each["type"] == "Succeeded" and each["status"] == "True" for each in conditions)

    # The launcher, which is a pod of a Job, completes here as soon as it runs.
    eventually(succeeded, 90)
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [], 60)


def test_the_launcher_of_an_mpi_job_may_wait_for_workers_that_start_together(
    world: World, start: Start, operate: Operate
) -> None:
    operate(MPI)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="1")
    start()
    mpi_job(world, "solve", 2, launcherCreationPolicy="WaitForWorkersReady")
    eventually(lambda: count(world) == 2 and numbers(world) == [2], 90)
    assert world.placed() == {}
    world.nodes(2, cpu="1", prefix="more")
    # It comes once they are ready, in their group.
    eventually(lambda: any(name.startswith("solve-launcher") for name in world.placed()), 90)
    assert numbers(world) == [2]


def training_job(world: World, kind: str, roles: Object, scheduler: str = "stromboli", **policy: Any) -> str:
    """A job of the training operator with so many pods of each role, and its path."""
    spec = {"schedulerName": scheduler, "restartPolicy": "Never"}

    def role(replicas: int) -> Object:
        container = {**pod("")["spec"]["containers"][0], "name": kind.lower().removesuffix("job")}
        return {"replicas": replicas, "template": {"spec": {**pod("")["spec"], **spec, "containers": [container]}}}

    run = {"schedulingPolicy": policy, "cleanPodPolicy": "None"}
    of = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}[kind]
    whole = {of: {name: role(number) for name, number in roles.items()}, "runPolicy": run}
    return make(world, "kubeflow.org/v1", kind, "train", whole)


@pytest.mark.parametrize(
    ("kind", "roles"), [("PyTorchJob", {"Master": 1, "Worker": 2}), ("TFJob", {"PS": 1, "Worker": 2})]
)
def test_a_training_job_starts_whole_in_its_queue_is_suspended_and_ends(
    world: World, start: Start, operate: Operate, kind: str, roles: Object
) -> None:
    operate(TRAINING)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="2")
    start()
    path = training_job(world, kind, roles, queue="research", priorityClass="urgent")
    eventually(lambda: count(world) == 3, 90)
    waits_and_is_suspended(world, path, kind, 3, lambda suspend: {"runPolicy": {"suspend": suspend}})
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 3, 60)
    assert numbers(world) == [3]
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [] and count(world) == 0, 60)


def test_a_training_operator_that_makes_the_group_is_left_to_it(world: World, start: Start, operate: Operate) -> None:
    operate(replace(TRAINING, arguments=(*TRAINING.arguments, "--gang-scheduler-name=volcano")))
    world.queue("research")
    world.nodes(1, cpu="1")
    start("--scheduler-name", "volcano")
    roles = {"Master": 1, "Worker": 2}
    path = training_job(world, "PyTorchJob", roles, "volcano", queue="research", minAvailable=2)
    eventually(lambda: [group["metadata"]["name"] for group in world.groups()] == ["train"], 90)
    (group,) = world.groups()
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("research", 2)
    # It makes pods once the group is admitted. Two of three start together, and the third as it fits.
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: count(world) == 3 and len(world.placed()) == 2, 90)
    world.nodes(1, cpu="1", prefix="rest")
    eventually(lambda: len(world.placed()) == 3, 60)
    assert [group["metadata"]["name"] for group in world.groups()] == ["train"]
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [] and count(world) == 0, 60)


def train_job(world: World, nodes: int, *before: Object) -> tuple[str, str]:
    """A TrainJob and the JobSet that the trainer makes of it, which is no part of these tests; returns their paths."""
    define(world.api, project("trainer").resources())
    labels = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "urgent"}
    version, spec = "trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch-distributed"}}
    path = make(world, version, "TrainJob", "llm", {**spec, "trainer": {"numNodes": nodes}}, labels=labels)
    owner = reference({"apiVersion": version, "kind": "TrainJob", **world.get(path)})
    trains = {"backoffLimit": 0, "parallelism": nodes, "completions": nodes, "template": template()}
    node = {"name": "node", "template": {"spec": trains}}
    if before:
        node["dependsOn"] = [{"name": each["name"], "status": "Complete"} for each in before]
    made = {"replicatedJobs": [*before, node], "failurePolicy": {"maxRestarts": 3}}
    of = make(world, "jobset.x-k8s.io/v1alpha2", "JobSet", "llm", made, ownerReferences=[owner])
    return path, of


def test_a_train_job_starts_whole_in_its_queue_restarts_is_suspended_and_ends(
    world: World, start: Start, operate: Operate
) -> None:
    operate(JOB_SET)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="3")
    start()
    path, of = train_job(world, 4)
    eventually(lambda: count(world) == 4, 60)
    waits_and_is_suspended(world, of, "JobSet", 4, lambda suspend: {"suspend": suspend})
    (group,) = world.groups()
    assert group["metadata"]["annotations"]["stromboli.io/workload"] == "TrainJob/llm"
    # One pod fails, so the JobSet starts anew, and its pods are the same gang.
    before = {each["metadata"]["uid"] for each in world.items(f"/api/v1/namespaces/{world.namespace}/pods")}
    one = world.items(f"/api/v1/namespaces/{world.namespace}/pods")[0]["metadata"]["name"]
    failed = {"status": {"phase": "Failed"}}
    patch(world, f"/api/v1/namespaces/{world.namespace}/pods/{one}/status", failed)

    def anew() -> int:
        pods = world.items(f"/api/v1/namespaces/{world.namespace}/pods")
        return sum(each["metadata"]["uid"] not in before for each in pods)

    eventually(lambda: anew() == count(world) == 4, 90)
    assert numbers(world) == [4]
    assert world.placed() == {}
    world.nodes(1, cpu="1", prefix="more")
    # Pods of Jobs complete here as soon as they run.
    eventually(lambda: world.get(of).get("status", {}).get("terminalState") == "Completed", 90)
    eventually(lambda: [group["status"].get("phase") for group in world.groups()] == ["Completed"], 60)
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.groups() == [] and count(world) == 0, 90)


def test_the_nodes_of_a_train_job_start_together_after_its_initializer(
    world: World, start: Start, operate: Operate
) -> None:
    operate(JOB_SET)
    urgent(world)
    world.queue("research")
    world.nodes(1, cpu="1")
    start()
    loads = {"name": "dataset-initializer", "template": {"spec": {"template": template()}}}
    _, of = train_job(world, 2, loads)
    # The first pod completes as soon as it runs, and then there are two for one place.
    eventually(lambda: numbers(world) == [1, 2] and count(world) == 3, 90)
    assert {group["spec"]["queue"] for group in world.groups()} == {"research"}
    assert [name for name in world.placed() if "-node-" in name] == []
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: world.get(of).get("status", {}).get("terminalState") == "Completed", 90)


def test_what_cleans_up_after_a_ray_cluster_waits_for_no_pods_of_it(
    world: World, start: Start, operate: Operate
) -> None:
    operate(KUBERAY)
    world.nodes(1, cpu="4")
    start()
    part = {"rayStartParams": {}, "template": {"spec": pod("")["spec"]}}
    workers = {"groupName": "w", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, **part}
    spec = {
        "headGroupSpec": part,
        "workerGroupSpecs": [workers],
        "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
    }
    path = make(world, "ray.io/v1", "RayCluster", "tune", spec)
    eventually(lambda: len(world.placed()) == 3 and numbers(world) == [3], 90)
    world.api.delete(path).raise_for_status()
    # KubeRay makes a Job once these pods are gone, and lets the cluster go when it has ended.
    eventually(lambda: any("redis-cleanup" in name for name in world.placed()), 90)
    eventually(lambda: world.groups() == [] and not world.api.get(path).is_success, 90)
