"""Gangs of what people submit, on a real API server with the Job controller; and Kubernetes' own gangs.

Definitions of other projects' kinds are those that they release. Their controllers do not run here: their pods are made
by the tests as those controllers label and own them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.policy.document import DEFAULT_POLICY
from tests.controlplane.cluster import Cluster, eventually
from tests.controlplane.projects import released
from tests.e2e.audit import Audit
from tests.e2e.conftest import Kubectl, Start
from tests.e2e.service import Service
from tests.e2e.world import SCHEDULING, Object, World, define, pod, volcano

pytestmark = pytest.mark.e2e

GATES = ",".join(
    f"{gate}=true"
    for gate in ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption")
)
NATIVE = "/apis/scheduling.k8s.io/v1alpha2"


def jobs(world: World) -> str:
    return f"/apis/batch/v1/namespaces/{world.namespace}/jobs"


def job(name: str, pods: int, cpu: str = "1", owner: Object | None = None, **meta: Any) -> Object:
    template = {"spec": {**pod("", cpu=cpu)["spec"], "restartPolicy": "Never"}}
    metadata = {"name": name, **meta, **({"ownerReferences": [reference(owner)]} if owner else {})}
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def reference(owner: Object) -> Object:
    meta, keys = owner["metadata"], {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**keys, "name": meta["name"], "uid": meta["uid"], "controller": True}


def patch(world: World, path: str, change: Object) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    world.api.patch(path, json=change, headers=headers).raise_for_status()


def group_of(world: World, owner: Object) -> Object:
    name = f"podgroup-{owner['metadata']['uid']}"
    return next((group for group in world.groups() if group["metadata"]["name"] == name), {"spec": {}})


def count(world: World) -> int:
    return len(world.items(f"/api/v1/namespaces/{world.namespace}/pods"))


def test_a_job_starts_whole_follows_its_parallelism_and_takes_its_group_along(world: World, start: Start) -> None:
    world.nodes(1, cpu="3")
    start()
    made = world.create(jobs(world), job("train", 4))
    eventually(lambda: group_of(world, made)["spec"].get("minMember") == 4)
    eventually(lambda: count(world) == 4)
    assert world.placed() == {}
    patch(world, f"{jobs(world)}/train", {"spec": {"parallelism": 2, "completions": 2}})
    eventually(lambda: group_of(world, made)["spec"]["minMember"] == 2)
    eventually(lambda: len(world.placed()) == 2)
    world.api.delete(f"{jobs(world)}/train", params={"propagationPolicy": "Background"}).raise_for_status()
    eventually(lambda: world.groups() == [])


def test_a_job_of_many_pods_costs_one_group_and_no_write_to_pods(world: World, start: Start, audit: Audit) -> None:
    world.nodes(4, cpu="50")
    start()
    world.create(jobs(world), job("wide", 150, cpu="1"))
    eventually(lambda: len(world.placed()) == 150, 120)
    mine = f"/namespaces/{world.namespace}/"
    writes = [write.path for write in audit.writes("admin", "stromboli") if mine in write.path]
    assert sum(path.endswith("/podgroups") for path in writes) <= 2
    assert [path for path in writes if "/pods/wide-" in path and "binding" not in path and "status" not in path] == []


def test_the_jobs_of_a_job_set_are_one_gang(world: World, start: Start) -> None:
    define(world.api, released([("jobset.x-k8s.io", "JobSet")]))
    world.nodes(1, cpu="2")
    start()
    replicated = [{"name": "worker", "replicas": 2, "template": {"spec": job("", 2)["spec"]}}]
    sets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.namespace}/jobsets"
    named = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    whole = world.create(sets, {**named, "spec": {"replicatedJobs": replicated}})
    for number in range(2):
        world.create(jobs(world), job(f"train-worker-{number}", 2, owner={**named, **whole}))
    eventually(lambda: group_of(world, whole)["spec"].get("minMember") == 4)
    eventually(lambda: count(world) == 4)
    assert len(world.groups()) == 1
    assert world.placed() == {}
    world.nodes(1, cpu="2", prefix="more")
    eventually(lambda: len(world.placed()) == 4)


# -- Kubernetes' own gangs -------------------------------------------------------------------------------------------


@pytest.fixture
def gated(new_cluster: Callable[..., Cluster], definitions: list[Object]) -> Iterator[World]:
    """A cluster whose API server has Kubernetes' own PodGroups."""
    args = [f"--feature-gates={GATES}", "--runtime-config=scheduling.k8s.io/v1alpha2=true"]
    cluster = new_cluster(apiserver_args=args)
    with cluster.client() as api:
        define(api, definitions)
    world = World(cluster, "gangs")
    world.begin()
    yield world
    world.api.close()


def test_a_gang_of_kubernetes_starts_whole_and_says_so(gated: World, tmp_path: Path) -> None:
    gated.nodes(1, cpu="2")
    service = Service(gated.cluster.kubeconfig(), tmp_path / "stromboli.log").wait_ready()
    try:
        path = f"{NATIVE}/namespaces/gangs/podgroups"
        spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        gated.create(path, {"kind": "PodGroup", "metadata": {"name": "train"}, "spec": spec})
        member = {"schedulingGroup": {"podGroupName": "train"}}
        gated.pods([pod(f"p-{number}", **member) for number in range(3)])

        def said() -> tuple[str, str]:
            conditions = gated.get(f"{path}/train").get("status", {}).get("conditions") or [{}]
            return conditions[0].get("status", ""), conditions[0].get("reason", "")

        eventually(lambda: said() == ("False", "Unschedulable"))
        assert gated.placed() == {}
        gated.nodes(1, cpu="1", prefix="more")
        eventually(lambda: len(gated.placed()) == 3)
        eventually(lambda: said() == ("True", "Scheduled"))
        assert gated.groups() == []
    finally:
        service.end()


def test_the_gang_that_a_job_makes_of_itself_starts_whole_in_the_queue_of_its_template(
    new_cluster: Callable[..., Cluster], definitions: list[Object], tmp_path: Path
) -> None:
    """With `WorkloadWithJob` the Job controller makes the PodGroup of an indexed Job, which nobody else can label."""
    gates = f"--feature-gates={GATES},WorkloadWithJob=true"
    cluster = new_cluster(apiserver_args=[gates, "--runtime-config=scheduling.k8s.io/v1alpha2=true"])
    cluster.start_controller_manager(gates)
    cluster.start_kwok()
    with cluster.client() as api:
        define(api, definitions)
    world = World(cluster, "gangs")
    world.begin()
    world.queue("research")
    world.nodes(1, cpu="2")
    service = Service(cluster.kubeconfig(), tmp_path / "stromboli.log").wait_ready()
    try:
        made = job("train", 3)
        made["spec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
        world.create(jobs(world), made)
        eventually(lambda: count(world) == 3, 60)
        (group,) = world.items(f"{NATIVE}/namespaces/gangs/podgroups")
        assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3

        def told() -> str:
            return service.http.get(f"/api/v1/explain/job/gangs/{group['metadata']['name']}").text

        eventually(lambda: "queue research" in told(), 60)
        assert world.placed() == {}
        world.nodes(1, cpu="1", prefix="more")
        eventually(lambda: len(world.placed()) == 3, 60)
        assert world.groups() == []
    finally:
        service.end()
        world.api.close()


def native(world: World, name: str, policy: Object, **spec: Any) -> Callable[[], tuple[str, str]]:
    """Create a PodGroup of Kubernetes; what is returned reads its condition."""
    path = f"{NATIVE}/namespaces/{world.namespace}/podgroups"
    world.create(path, {"kind": "PodGroup", "metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}})

    def said() -> tuple[str, str]:
        conditions = world.get(f"{path}/{name}").get("status", {}).get("conditions") or [{}]
        return conditions[0].get("status", ""), conditions[0].get("reason", "")

    return said


def members(world: World, group: str, count: int, **more: Any) -> None:
    spec = {"schedulingGroup": {"podGroupName": group}, **more}
    world.pods([pod(f"{group}-{number}", **spec) for number in range(count)])


def test_gangs_of_kubernetes_keep_to_a_rack_and_are_disrupted_as_one(gated: World, tmp_path: Path) -> None:
    gated.cluster.start_kwok()
    gated.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "urgent"}, "value": 1000})
    for rack, cpu in (("a", "1"), ("b", "2")):
        gated.nodes(2, cpu=cpu, prefix=rack)
        for number in range(2):
            patch(gated, f"/api/v1/nodes/{rack}-{number}", {"metadata": {"labels": {"rack": rack}}})
    levels = "topology: {levels: [{nodeLabel: rack}]}\n"
    (tmp_path / "policy").write_text(DEFAULT_POLICY.replace("backfill", "preempt, backfill") + levels)
    options = ("--policy", str(tmp_path / "policy"))
    service = Service(gated.cluster.kubeconfig(), tmp_path / "stromboli.log", *options).wait_ready()
    try:
        rack = {"topology": [{"key": "rack"}]}
        wide = native(gated, "wide", {"gang": {"minCount": 5}}, schedulingConstraints=rack)
        members(gated, "wide", 5)
        # There are 6 CPUs, and no rack has more than 4.
        eventually(lambda: wide() == ("False", "Unschedulable"))
        assert gated.placed() == {}
        near = native(
            *(gated, "near", {"gang": {"minCount": 4}}), schedulingConstraints=rack, disruptionMode="PodGroup"
        )
        members(gated, "near", 4)
        eventually(lambda: near() == ("True", "Scheduled"), 60)
        assert {node[0] for node in gated.placed().values()} == {"b"}
        loose = native(gated, "loose", {"basic": {}})
        members(gated, "loose", 3)
        eventually(lambda: loose() == ("True", "Scheduled"), 60)
        assert sum(name.startswith("loose") for name in gated.placed()) == 2
        urgent = native(gated, "urgent", {"gang": {"minCount": 1}}, priorityClassName="urgent")
        # What admission found for the class stays in the group.
        gated.api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent").raise_for_status()
        members(gated, "urgent", 1, nodeSelector={"rack": "b"})
        eventually(lambda: urgent() == ("True", "Scheduled"), 90)
        # One place was needed, and all four pods made way.
        left = {each["metadata"]["name"] for each in gated.items("/api/v1/namespaces/gangs/pods")}
        assert not any(name.startswith("near") for name in left)
    finally:
        service.end()


def test_the_examples_of_each_kind_run(
    world: World, start: Start, kubectl: Kubectl, repository: Path, tmp_path: Path
) -> None:
    world.nodes(2, cpu="4")
    start()
    # The queue web lets in the namespace default, and nobody else.
    queues, text = tmp_path / "queues.yaml", (repository / "deploy/examples/queues.yaml").read_text()
    queues.write_text(text.replace(" default\n", f" {world.namespace}\n"))
    kubectl("create", "--validate=strict", "-f", str(queues))
    kubectl("create", "--validate=strict", "-f", str(repository / "deploy/examples/jobs.yaml"))
    kubectl("create", "job", "tonight", "--from=cronjob/nightly")
    sizes = {"train": 3, "tonight": 2, "elastic": 4, "server": 2, "store": 2, "alone": 1}
    eventually(lambda: Counter(name.split("-")[0] for name in world.placed()) == sizes, 60)
    wanted = {"research", "serving"}
    assert {group["spec"]["queue"] for group in world.groups()} == wanted


def test_the_examples_for_operators_are_what_their_definitions_take(
    world: World, kubectl: Kubectl, repository: Path, tmp_path: Path
) -> None:
    examples = list(yaml.safe_load_all((repository / "deploy/examples/operators.yaml").read_text()))
    kinds = {(each["apiVersion"].partition("/")[0], each["kind"]) for each in examples}
    definitions = released(kinds)
    # Volcano's is in no Go module.
    defined = {(each["spec"]["group"], each["spec"]["names"]["kind"]) for each in definitions}
    assert kinds - defined == {("batch.volcano.sh", "Job")}
    define(world.api, definitions)
    taken = tmp_path / "operators.yaml"
    taken.write_text(yaml.safe_dump_all(each for each in examples if each["kind"] != "Job"))
    kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(taken))


def replicated(world: World, kind: str, name: str, replicas: int, asked: str, **more: Any) -> str:
    """Create replicas that are to start together, and return the path of what has them."""
    path = f"/apis/apps/v1/namespaces/{world.namespace}/{kind.lower()}s"
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **more}
    noted = {"scheduling.volcano.sh/group-min-member": asked}
    world.create(path, {"metadata": {"name": name, "annotations": noted}, "spec": spec})
    return f"{path}/{name}"


def test_a_stateful_set_starts_whatever_the_order_of_its_pods_is(world: World, start: Start) -> None:
    world.nodes(1, cpu="3")
    start()
    replicated(world, "StatefulSet", "ordered", 3, "3", serviceName="s")
    eventually(lambda: len(world.placed()) == 3, 60)
    (group,) = world.groups()
    assert group["spec"]["minMember"] == 1

    def told() -> str:
        conditions = world.groups()[0]["status"].get("conditions") or []
        return next((each["message"] for each in conditions if each["type"] == "FieldIgnored"), "")

    eventually(lambda: "instead of 3, since StatefulSet ordered makes the others when these are ready" in told(), 60)
    replicated(world, "StatefulSet", "parallel", 2, "2", serviceName="s", podManagementPolicy="Parallel")
    world.nodes(1, cpu="1", prefix="short")
    eventually(lambda: sorted(each["spec"]["minMember"] for each in world.groups()) == [1, 2], 60)
    eventually(lambda: count(world) == 5, 60)
    assert len(world.placed()) == 3
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 5, 60)


def await_garbage_collection(world: World) -> None:
    """Return when the garbage collector follows PodGroups, half a minute after these were defined at most.

    Before, it takes no owner that was orphaned out of them.
    """
    maps = f"/api/v1/namespaces/{world.namespace}/configmaps"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", **world.create(maps, {"metadata": {"name": "owner"}})}
    owned = volcano("PodGroup", "owned", {"minMember": 1})
    owned["metadata"]["ownerReferences"] = [reference(owner)]
    world.create(f"{SCHEDULING}/namespaces/{world.namespace}/podgroups", owned)
    world.api.delete(f"{maps}/owner").raise_for_status()
    eventually(lambda: world.groups() == [])


def test_a_stateful_set_that_is_smaller_restarts_and_leaves_no_group_behind_with_its_pods(
    world: World, start: Start
) -> None:
    world.nodes(1, cpu="3")
    await_garbage_collection(world)
    start()
    path = replicated(world, "StatefulSet", "store", 3, "3", serviceName="s", podManagementPolicy="Parallel")
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    eventually(lambda: len(world.placed()) == 3, 60)
    patch(world, path, {"spec": {"replicas": 1}})
    eventually(lambda: count(world) == 1, 60)
    world.api.delete(f"{pods}/store-0", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: list(world.placed()) == ["store-0"], 60)
    assert [group["spec"]["minMember"] for group in world.groups()] == [1]
    world.api.delete(path, params={"propagationPolicy": "Orphan"}).raise_for_status()

    def owners() -> list[str]:
        return [owner["kind"] for group in world.groups() for owner in group["metadata"].get("ownerReferences", ())]

    eventually(lambda: owners() == ["Pod"], 60)
    world.api.delete(f"{pods}/store-0", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: world.groups() == [], 60)


def test_a_group_written_by_hand_waits_for_pods_of_a_stateful_set_in_order_and_says_so(
    world: World, start: Start
) -> None:
    world.nodes(1, cpu="3")
    service = start()
    world.group("mine", 3)
    template = pod("", "mine")
    template["metadata"]["labels"] = {"app": "s"}
    spec = {"replicas": 3, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets"
    world.create(path, {"metadata": {"name": "s"}, "spec": spec})

    def told() -> str:
        return service.http.get(f"/api/v1/explain/job/{world.namespace}/mine").text

    eventually(lambda: "makes each pod when the one before it is ready" in told(), 60)
    assert f"create StatefulSet {world.namespace}/s again with podManagementPolicy: Parallel" in told()
    assert world.placed() == {}
    world.api.delete(f"{path}/s").raise_for_status()
    eventually(lambda: count(world) == 0, 60)
    spec["podManagementPolicy"] = "Parallel"
    world.create(path, {"metadata": {"name": "s"}, "spec": spec})
    eventually(lambda: len(world.placed()) == 3, 60)


def test_a_deployment_whose_pods_start_together_is_rolled_out_and_scaled(world: World, start: Start) -> None:
    world.nodes(1, cpu="2")
    start()
    path = replicated(world, "Deployment", "web", 3, "3")
    eventually(lambda: count(world) == 3 and len(world.groups()) == 1, 60)
    assert world.placed() == {}
    world.nodes(2, cpu="1", prefix="more")
    eventually(lambda: len(world.placed()) == 3, 60)
    patch(world, path, {"spec": {"template": {"metadata": {"labels": {"of": "the-rollout"}}}}})

    def new() -> int:
        pods = world.items(f"/api/v1/namespaces/{world.namespace}/pods")
        return sum("of" in each["metadata"]["labels"] and "nodeName" in each["spec"] for each in pods)

    eventually(lambda: new() == 3 == count(world), 90)
    patch(world, path, {"spec": {"replicas": 1}})
    eventually(lambda: count(world) == 1, 60)
    (last,) = world.placed()
    world.api.delete(f"/api/v1/namespaces/{world.namespace}/pods/{last}").raise_for_status()
    eventually(lambda: len(world.placed()) == 1 and last not in world.placed(), 60)


def test_a_leader_with_an_exclusive_topology_is_placed_before_its_workers_come(world: World, start: Start) -> None:
    """Its controller makes the StatefulSet of the workers when the leader has found them a topology."""
    define(world.api, released([("leaderworkerset.x-k8s.io", "LeaderWorkerSet")]))
    world.nodes(1, cpu="3")
    start()
    template = {"spec": pod("")["spec"]}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template}}
    named = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    noted = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    sets = f"/apis/{named['apiVersion']}/namespaces/{world.namespace}/leaderworkersets"
    whole = {**named, **world.create(sets, {**named, "metadata": {"name": "w", "annotations": noted}, "spec": spec})}

    def replicas(name: str, count: int, owner: Object, **more: Any) -> None:
        labels = {"app": name, "leaderworkerset.sigs.k8s.io/group-index": "0"}
        made = {"replicas": count, "serviceName": "s", "selector": {"matchLabels": {"app": name}}, **more}
        made |= {"podManagementPolicy": "Parallel", "template": {**template, "metadata": {"labels": labels}}}
        metadata = {"name": name, "ownerReferences": [reference(owner)]}
        world.create(f"/apis/apps/v1/namespaces/{world.namespace}/statefulsets", {"metadata": metadata, "spec": made})

    replicas("w", 1, whole)
    eventually(lambda: list(world.placed()) == ["w-0"], 60)
    (group,) = world.groups()
    assert (group["spec"]["minMember"], group["metadata"]["ownerReferences"][0]["kind"]) == (1, "LeaderWorkerSet")
    leader = {"apiVersion": "v1", "kind": "Pod", **world.get(f"/api/v1/namespaces/{world.namespace}/pods/w-0")}
    replicas("w-0", 2, leader, ordinals={"start": 1})
    eventually(lambda: sorted(world.placed()) == ["w-0", "w-0-1", "w-0-2"], 60)
    assert len(world.groups()) == 1


def test_the_first_pods_of_a_job_set_are_placed_before_the_others_come(world: World, start: Start) -> None:
    """With an exclusive topology its webhook lets in the other pods of a Job when the first one has found them a rack.

    The Jobs have pods from the test, as that webhook changes them.
    """
    define(world.api, released([("jobset.x-k8s.io", "JobSet")]))
    world.nodes(1, cpu="2", prefix="a")
    patch(world, "/api/v1/nodes/a-0", {"metadata": {"labels": {"rack": "a"}}})
    start()
    noted = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
    named = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train", **noted}}
    parts = [{"name": "worker", "replicas": 2, "template": {"spec": job("", 2)["spec"]}}]
    sets = f"/apis/{named['apiVersion']}/namespaces/{world.namespace}/jobsets"
    whole = {**named, **world.create(sets, {**named, "spec": {"replicatedJobs": parts}})}
    made = []
    for number in range(2):
        manifest = job(f"train-worker-{number}", 2, owner=whole)
        manifest["spec"]["managedBy"] = "example.com/test"
        made.append({**manifest, **world.create(jobs(world), manifest)})

    def member(number: int, index: int, **spec: Any) -> Object:
        found = pod(f"train-worker-{number}-{index}", **spec)
        labels = {"jobset.sigs.k8s.io/job-key": str(number), "jobset.sigs.k8s.io/replicatedjob-name": "worker"}
        found["metadata"] |= {"labels": labels, "ownerReferences": [reference(made[number])]}
        return found

    def apart(operator: str, number: int) -> Object:
        key = {"key": "jobset.sigs.k8s.io/job-key", "operator": operator, "values": [str(number)]}
        terms = [{"labelSelector": {"matchExpressions": [key]}, "topologyKey": "rack"}]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    both = [{"podAffinity": apart("In", each), "podAntiAffinity": apart("NotIn", each)} for each in range(2)]
    world.pods([member(number, 0, affinity=both[number]) for number in range(2)])
    eventually(lambda: group_of(world, whole)["spec"].get("minMember") == 2)
    assert world.placed() == {}
    world.nodes(1, cpu="2", prefix="b")
    patch(world, "/api/v1/nodes/b-0", {"metadata": {"labels": {"rack": "b"}}})
    eventually(lambda: len(world.placed()) == 2, 60)
    found = {name: node[0] for name, node in world.placed().items()}
    world.pods([member(number, 1, nodeSelector={"rack": found[f"train-worker-{number}-0"]}) for number in range(2)])
    eventually(lambda: len(world.placed()) == 4, 60)
    assert len(world.groups()) == 1
