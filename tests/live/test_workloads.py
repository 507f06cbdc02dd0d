"""What people submit becomes a gang: the service makes its PodGroup, and has it follow the owner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stromboli.api.crds import PodGroup
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.live.groups import podgroups
from stromboli.live.groups.podgroups import PodGroupMaker
from stromboli.live.process.limits import Backoff
from stromboli.workloads import Family
from tests.cli.conftest import stromboli
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until


@pytest.fixture
def cluster(bare_cluster: Cluster, definitions: list[Path]) -> Cluster:
    """A cluster with our custom resources and no nodes."""
    bare_cluster.define(*definitions)
    return bare_cluster


JOBS = "/apis/batch/v1/namespaces/default/jobs"
TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}


def engine(text: str | None) -> Successive:
    return Successive(Engine(), Environment())


def define(cluster: Cluster, group: str, version: str, kind: str) -> None:
    """A definition that takes any object of a kind: as much of the project's own as these tests need."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.create(path, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})


def make(cluster: Cluster, api_version: str, kind: str, name: str, spec: Any, owner: Any = None, **meta: Any) -> Any:
    """Create an object, and return it with its kind."""
    metadata = {"name": name, **meta, **({"ownerReferences": [reference(owner)]} if owner else {})}
    path = f"/apis/{api_version}/namespaces/default/{kind.lower()}s"
    made = cluster.create(path, {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
    return {**made, "apiVersion": api_version, "kind": kind}


def reference(owner: Any) -> Any:
    meta = owner["metadata"]
    keys = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**keys, "name": meta["name"], "uid": meta["uid"], "controller": True}


def job(cluster: Cluster, name: str, pods: int, owner: Any = None, **meta: Any) -> Any:
    spec = {"parallelism": pods, "completions": pods, "template": TEMPLATE}
    return make(cluster, "batch/v1", "Job", name, spec, owner, **meta)


def pods_of(cluster: Cluster, owner: Any, count: int, first: int = 0, **labels: str) -> None:
    for number in range(first, first + count):
        meta = {"ownerReferences": [reference(owner)], "labels": labels}
        cluster.pod(f"{owner['metadata']['name']}-{number}", metadata=meta)


def groups(cluster: Cluster) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in cluster.items(f"{SCHEDULING}/podgroups")}


def group_of(cluster: Cluster, owner: Any) -> Any:
    return groups(cluster).get(f"podgroup-{owner['metadata']['uid']}", {"spec": {}, "status": {}})


async def test_a_job_starts_whole_or_not_at_all(cluster: Cluster, start: StartService) -> None:
    cluster.node("small", cpu="3")
    await start(engine)
    made = job(cluster, "train", 4)
    pods_of(cluster, made, 4)
    await until(lambda: group_of(cluster, made).get("status", {}).get("phase") == "Pending")
    await until(lambda: "train-3" in cluster.pods())
    assert group_of(cluster, made)["spec"]["minMember"] == 4
    assert not any(cluster.pods().values())
    cluster.node("other", cpu="1")
    await until(lambda: all(cluster.pods().values()))
    annotations = cluster.get("/api/v1/namespaces/default/pods/train-0")["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == f"podgroup-{made['metadata']['uid']}"


async def test_many_pods_of_one_owner_cost_one_write_beside_their_bindings(
    cluster: Cluster, start: StartService
) -> None:
    cluster.node("n1", cpu="100")
    await start(engine)
    made = job(cluster, "wide", 60)
    pods_of(cluster, made, 60)
    await until(lambda: cluster.all_bound(60))
    assert cluster.count("POST", "/podgroups", 201) == 1
    assert cluster.count("POST", "/podgroups") <= 2
    assert not [path for method, path, _ in cluster.proxy.answers if method == "PATCH" and path.endswith(("-0", "-59"))]


async def test_pods_that_wait_are_in_their_group_again_after_a_restart(cluster: Cluster, start: StartService) -> None:
    cluster.node("small", cpu="2")
    service = await start(engine)
    made = job(cluster, "train", 3)
    pods_of(cluster, made, 3)
    await until(lambda: group_of(cluster, made).get("status", {}).get("phase") == "Pending")
    await service.stop()
    service = await start(engine)
    key = f"default/podgroup-{made['metadata']['uid']}"
    await until(lambda: [r is not None and r.job for r in map(service.state.record, train(3))] == [key] * 3)
    assert cluster.count("POST", "/podgroups") == 1
    cluster.node("other", cpu="1")
    await until(lambda: cluster.all_bound(3))


def train(count: int) -> list[str]:
    return [f"default/train-{number}" for number in range(count)]


async def test_an_owner_is_not_looked_at_again_for_the_group_that_was_just_made_of_it(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    changes = Family.changes

    def counted(self: Family, group: PodGroup, *more: Any) -> Any:
        asked.append(self.uid)
        return changes(self, group, *more)

    monkeypatch.setattr(Family, "changes", counted)
    cluster.node("n1", cpu="16")
    await start(engine)
    made = [job(cluster, f"train-{number}", 2) for number in range(4)]
    for each in made:
        pods_of(cluster, each, 2)
    await until(lambda: cluster.all_bound(8))
    assert asked == []
    cluster.patch(f"{JOBS}/train-1", {"spec": {"parallelism": 3, "completions": 3}})
    await until(lambda: group_of(cluster, made[1])["spec"]["minMember"] == 3)
    assert asked == [made[1]["metadata"]["uid"]]


async def test_a_group_follows_its_owner(cluster: Cluster, start: StartService) -> None:
    cluster.node("n1", cpu="5")
    await start(engine)
    made = job(cluster, "train", 8)
    pods_of(cluster, made, 8)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 8)
    cluster.patch(f"{JOBS}/train", {"spec": {"parallelism": 12, "completions": 12}})
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 12)
    assert group_of(cluster, made)["spec"]["minResources"]["cpu"] == "12"
    cluster.patch(f"{JOBS}/train", {"metadata": {"annotations": {"scheduling.volcano.sh/group-min-member": "5"}}})
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 5)
    await until(lambda: sum(map(bool, cluster.pods().values())) == 5)


async def test_the_group_of_a_replica_goes_with_its_pods_when_there_are_fewer(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podgroups, "_LASTING", 0.1)
    define(cluster, "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
    cluster.node("n1", cpu="8")
    await start(engine)
    index = "leaderworkerset.sigs.k8s.io/group-index"
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}}
    served = make(cluster, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec)
    # The third replica is there for the time of a rollout.
    for number in range(3):
        pods_of(cluster, served, 1, number, **{index: str(number)})
    name = f"podgroup-{served['metadata']['uid']}"
    await until(lambda: cluster.all_bound(3) and groups(cluster).keys() == {f"{name}-{part}" for part in range(3)})
    cluster.delete("/api/v1/namespaces/default/pods/serve-2")
    await until(lambda: groups(cluster).keys() == {f"{name}-0", f"{name}-1"})
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/serve"
    cluster.patch(path, {"spec": {"replicas": 1}})
    cluster.delete("/api/v1/namespaces/default/pods/serve-1")
    await until(lambda: groups(cluster).keys() == {f"{name}-0"})
    # The group of a replica that restarts stays.
    cluster.delete("/api/v1/namespaces/default/pods/serve-0")
    await until(lambda: not cluster.pods())
    cluster.patch(path, {"spec": {"replicas": 0}})
    await until(lambda: not groups(cluster))


async def test_a_gang_of_replicas_is_as_large_as_they_are_when_a_pod_comes_anew(
    cluster: Cluster, start: StartService
) -> None:
    cluster.node("n1", cpu="8")
    await start(engine)
    noted = {"scheduling.volcano.sh/group-min-member": "3"}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 3, "selector": selector, "template": TEMPLATE}
    made = make(cluster, "apps/v1", "ReplicaSet", "web", spec, annotations=noted)
    pods_of(cluster, made, 3)
    await until(lambda: cluster.all_bound(3))
    cluster.patch("/apis/apps/v1/namespaces/default/replicasets/web", {"spec": {"replicas": 1}})
    for number in range(3):
        cluster.delete(f"/api/v1/namespaces/default/pods/web-{number}")
    await until(lambda: not cluster.pods())
    pods_of(cluster, made, 1, 3)
    await until(lambda: cluster.all_bound(1))
    assert group_of(cluster, made)["spec"]["minMember"] == 1


async def test_an_owner_that_changes_before_its_group_is_seen_is_followed(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    follow = PodGroupMaker.owner_changed

    def owner_changed(self: PodGroupMaker, owner: Any) -> None:
        follow(self, owner)
        told.append(owner["spec"].get("parallelism"))

    monkeypatch.setattr(PodGroupMaker, "owner_changed", owner_changed)
    with cluster.held("GET", "/podgroups?watch", times=9):
        await start(engine)
        made = job(cluster, "train", 8)
        pods_of(cluster, made, 8)
        await until(lambda: group_of(cluster, made).get("spec", {}).get("minMember") == 8)
        cluster.patch(f"{JOBS}/train", {"spec": {"parallelism": 12, "completions": 12}})
        await until(lambda: 12 in told)
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 12)


async def test_an_owner_that_could_not_be_read_is_taken_up_once_it_is_mended(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podgroups, "Backoff", lambda first, limit: Backoff(3_600, 3_600))
    cluster.node("n1", cpu="2")
    await start(engine)
    key = "scheduling.volcano.sh/group-min-member"
    made = job(cluster, "train", 2, annotations={key: "many"})
    pods_of(cluster, made, 2)
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    await until(lambda: any(each["reason"] == "PodGroupNotMade" for each in cluster.items(events)))
    cluster.patch(f"{JOBS}/train", {"metadata": {"annotations": {key: "2"}}})
    await until(lambda: all(cluster.pods().values()))


async def test_a_group_that_is_deleted_while_its_pods_wait_is_made_again(cluster: Cluster, start: StartService) -> None:
    cluster.node("small", cpu="1")
    await start(engine)
    made = job(cluster, "train", 2)
    pods_of(cluster, made, 2)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 2)
    before = group_of(cluster, made)["metadata"]["uid"]
    cluster.delete(f"{SCHEDULING}/namespaces/default/podgroups/podgroup-{made['metadata']['uid']}")
    await until(lambda: group_of(cluster, made).get("metadata", {}).get("uid", before) != before)
    cluster.node("other", cpu="1")
    await until(lambda: cluster.all_bound(2))


async def test_the_gang_is_that_of_the_highest_owner(cluster: Cluster, start: StartService) -> None:
    define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    cluster.node("n1", cpu="4")
    await start(engine)
    replicated = [
        {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods, "template": TEMPLATE}}}
        for name, replicas, pods in (("driver", 1, 1), ("worker", 2, 2))
    ]
    labels = {"kueue.x-k8s.io/queue-name": "default"}
    made = make(cluster, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": replicated}, labels=labels)
    jobs = [job(cluster, name, pods, made) for name, pods in (("driver-0", 1), ("worker-0", 2), ("worker-1", 2))]
    for each, pods in zip(jobs, (1, 2, 2), strict=True):
        pods_of(cluster, each, pods, **{"jobset.sigs.k8s.io/replicatedjob-name": each["metadata"]["name"][:-2]})
    await until(lambda: len(groups(cluster)) == 1)
    (group,) = groups(cluster).values()
    assert group["metadata"]["ownerReferences"][0]["name"] == "train"
    assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (5, "5")
    assert group["spec"]["queue"] == "default"
    assert not any(cluster.pods().values())
    cluster.node("n2", cpu="1")
    await until(lambda: cluster.all_bound(5))


async def test_an_owner_that_may_not_be_read_is_told_once_with_the_rule_to_add(
    cluster: Cluster, start: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    define(cluster, "ray.io", "v1", "RayCluster")
    cluster.node("n1", cpu="2")
    cluster.fail("GET", "/rayclusters", 403, times=100)
    await start(engine)
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"replicas": 3, "template": TEMPLATE}]}
    made = make(cluster, "ray.io/v1", "RayCluster", "ray", spec)
    pods_of(cluster, made, 4)
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    assert group_of(cluster, made)["spec"]["minMember"] == 1
    told = [line for line in caplog.messages if "owners may not be read" in line]
    assert len(told) == 1
    assert 'apiGroups: [\\"ray.io\\"], resources: [rayclusters]' in told[0]


async def test_a_definition_may_come_and_go_while_the_service_runs(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.live.groups.operator._LOOK", 0.2)
    cluster.node("n1", cpu="3")
    await start(engine)
    define(cluster, "ray.io", "v1", "RayCluster")
    groups = [{"groupName": "gpu", "replicas": 3, "template": TEMPLATE}]
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups}
    made = make(cluster, "ray.io/v1", "RayCluster", "ray", spec)
    pods_of(cluster, made, 4)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 4)
    larger = {"workerGroupSpecs": [{**groups[0], "replicas": 4}]}
    cluster.patch("/apis/ray.io/v1/namespaces/default/rayclusters/ray", {"spec": larger})
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 5)
    cluster.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io")
    other = job(cluster, "train", 2)
    pods_of(cluster, other, 2)
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    cluster.patch(f"{JOBS}/train", {"spec": {"parallelism": 3, "completions": 3}})
    await until(lambda: group_of(cluster, other)["spec"]["minMember"] == 3)


async def test_a_workload_is_followed_in_whichever_version_of_its_group_has_the_kind(
    cluster: Cluster, start: StartService
) -> None:
    define(cluster, "kubeflow.org", "v1", "PyTorchJob")
    define(cluster, "kubeflow.org", "v2beta1", "MPIJob")
    workers = {"replicas": 2, "template": TEMPLATE}
    made = make(cluster, "kubeflow.org/v2beta1", "MPIJob", "train", {"mpiReplicaSpecs": {"Worker": workers}})
    pods_of(cluster, made, 2)
    cluster.node("small", cpu="1")
    said = await asyncio.to_thread(stromboli, "why", "job", "train", "--kubeconfig", cluster.kubeconfig)
    assert "0 of 2 pods placed, 2 start together" in said.output
    await start(engine)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 2)
    spec = {"mpiReplicaSpecs": {"Worker": {**workers, "replicas": 3}}}
    cluster.patch("/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs/train", {"spec": spec})
    await until(lambda: group_of(cluster, made)["spec"]["minMember"] == 3)


async def test_a_pod_in_a_group_of_its_controller_is_left_alone(cluster: Cluster, start: StartService) -> None:
    cluster.node("n1", cpu="2")
    await start(engine)
    made = job(cluster, "train", 2)
    cluster.group("theirs", 1)
    cluster.pod("train-0", "theirs", metadata={"ownerReferences": [reference(made)]})
    await until(lambda: bool(cluster.pods()["train-0"]))
    assert list(groups(cluster)) == ["theirs"]


async def test_why_asks_the_owners_of_pods_that_wait(cluster: Cluster, start: StartService) -> None:
    define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    cluster.node("small", cpu="1")
    await start(engine)
    replicated = [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "template": TEMPLATE}}}]
    made = make(cluster, "jobset.x-k8s.io/v1alpha2", "JobSet", "train", {"replicatedJobs": replicated})
    for number in range(2):
        pods_of(cluster, job(cluster, f"train-w-{number}", 1, made), 1)
    await until(lambda: group_of(cluster, made)["spec"].get("minMember") == 2)
    asked = ("why", "job", "train", "--kubeconfig", cluster.kubeconfig, "-n", "default")
    said = await asyncio.to_thread(stromboli, *asked)
    assert f"JobSet default/train (PodGroup podgroup-{made['metadata']['uid']}) waits at" in said.output
    assert "0 of 2 pods placed, 2 start together" in said.output


# -- Kubernetes' own PodGroups ---------------------------------------------------------------------------------------

NATIVE = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/podgroups"


async def test_groups_of_kubernetes_come_change_and_go(cluster: Cluster, start: StartService) -> None:
    """With a definition of them, as a version that the real API server of these tests does not have."""
    define(cluster, "scheduling.k8s.io", "v1alpha3", "PodGroup")
    cluster.node("n", cpu="2")
    await start(engine)
    manifest = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": {"name": "g"}}
    cluster.create(NATIVE, {**manifest, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    for number in range(3):
        cluster.pod(f"p-{number}", schedulingGroup={"podGroupName": "g"})
    await until(lambda: any(event["regarding"]["kind"] == "PodGroup" for event in events(cluster)))
    assert not any(cluster.pods().values())
    about = next(event["regarding"] for event in events(cluster) if event["regarding"]["kind"] == "PodGroup")
    assert (about["apiVersion"], about["name"]) == ("scheduling.k8s.io/v1alpha3", "g")
    cluster.patch(f"{NATIVE}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    assert cluster.items(f"{SCHEDULING}/podgroups") == []


def events(cluster: Cluster) -> list[Any]:
    return cluster.items("/apis/events.k8s.io/v1/events")


async def test_a_group_of_kubernetes_leaves_its_queue_to_the_namespace_and_its_priority_to_its_pods(
    cluster: Cluster, start: StartService
) -> None:
    define(cluster, "scheduling.k8s.io", "v1alpha3", "PodGroup")
    cluster.create(f"{SCHEDULING}/queues", {"metadata": {"name": "research"}, "spec": {"weight": 1}})
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 7})
    service = await start(engine)
    manifest = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": {"name": "g"}}
    cluster.create(NATIVE, {**manifest, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    cluster.pod("p", schedulingGroup={"podGroupName": "g"}, priorityClassName="urgent")

    def said() -> tuple[str, str]:
        group = service.state.pod_group("default/g.podgroups.scheduling.k8s.io")
        return (group.spec.queue, group.spec.priority_class_name) if group is not None else ("", "")

    await until(lambda: said() == ("default", "urgent"))
    labels = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "research"}}}
    cluster.patch("/api/v1/namespaces/default", labels)
    await until(lambda: said() == ("research", "urgent"))
    cluster.pod("q", metadata={"labels": {"kai.scheduler/queue": "default"}}, schedulingGroup={"podGroupName": "g"})
    await until(lambda: said() == ("default", "urgent"))


@pytest.mark.parametrize("first", ["group", "pods"])
async def test_the_pods_of_a_group_of_kubernetes_preempt_as_it_says(
    cluster: Cluster, start: StartService, first: str
) -> None:
    define(cluster, "scheduling.k8s.io", "v1alpha3", "PodGroup")
    service = await start(engine)
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "preemptionPolicy": "Never"}
    manifest = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": {"name": "g"}}

    def preempts(name: str) -> str | None:
        record = service.state.record(f"default/{name}")
        return "" if record is None else record.pod_class.spec.preemption_policy

    if first == "group":
        cluster.create(NATIVE, {**manifest, "spec": spec})
        await until(lambda: service.state.pod_group("default/g.podgroups.scheduling.k8s.io") is not None)
    cluster.pod("gone", schedulingGroup={"podGroupName": "g"})
    cluster.pod("p", schedulingGroup={"podGroupName": "g"})
    await until(lambda: preempts("gone") != "" and preempts("p") != "")
    cluster.delete("/api/v1/namespaces/default/pods/gone")
    await until(lambda: preempts("gone") == "")
    if first == "pods":
        cluster.create(NATIVE, {**manifest, "spec": spec})
    await until(lambda: preempts("p") == "Never")
    assert preempts("gone") == ""


async def test_a_queue_that_an_owner_names_no_longer_is_that_of_its_pods(cluster: Cluster, start: StartService) -> None:
    cluster.node("n1", cpu="1")
    await start(engine)
    made = job(cluster, "train", 2, labels={"kueue.x-k8s.io/queue-name": "research"})
    pods_of(cluster, made, 2)
    await until(lambda: group_of(cluster, made)["spec"].get("queue") == "research")
    cluster.patch(f"{JOBS}/train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}}})
    await until(lambda: group_of(cluster, made)["spec"].get("queue") == "default")


async def test_why_names_the_annotation_that_keeps_a_job_from_its_group(cluster: Cluster, start: StartService) -> None:
    cluster.node("n1", cpu="2")
    service = await start(engine)
    made = job(cluster, "train", 1, annotations={"scheduling.volcano.sh/group-min-member": "three"})
    pods_of(cluster, made, 1)
    says = "metadata.annotations[scheduling.volcano.sh/group-min-member]: should be a number"
    await until(lambda: says in service.absent("job", "default/train"))
    assert says in service.absent("pod", "default/train-0")
    cluster.patch("/apis/batch/v1/namespaces/default/jobs/train", {"metadata": {"annotations": None}})
    await until(lambda: bool(cluster.pods()["train-0"]))
    await until(lambda: "group-min-member" not in service.absent("job", "default/train"))
    assert service.absent("job", "default/other") == ""


async def test_why_names_the_pod_of_a_gang_that_cannot_be_read(cluster: Cluster, start: StartService) -> None:
    cluster.node("n1", cpu="2")
    service = await start(engine)
    cluster.group("train", 2)
    cluster.pod("train-0", "train")
    cards = {"scheduling.k8s.io/group-name": "train", "volcano.sh/gpu-index": "1," * 2_000}
    cluster.pod("train-1", metadata={"annotations": cards})
    says = "Pod default/train-1 exists, but could not be read: metadata.annotations[volcano.sh/gpu-index]: has"
    await until(lambda: says in service.absent("job", "default/train"))
