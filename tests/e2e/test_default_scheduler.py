"""In kube-scheduler's place: what Kubernetes expects of the default scheduler, with the policy that is meant for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import CORE, Object, World

pytestmark = pytest.mark.e2e

NAME = "default-scheduler"
FOO = "scheduling.example.com/foo"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def cluster(world: World, start: Start, repository: Path) -> Iterator[World]:
    """Two nodes with five of an extended resource, and three priorities."""
    world.nodes(2, cpu="8")
    for number in range(2):
        node = world.get(f"{CORE}/nodes/node-{number}")
        amounts = {**node["status"]["capacity"], FOO: "5"}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        world.api.patch(f"{CORE}/nodes/node-{number}/status", json=status, headers=MERGE).raise_for_status()
    for name, value in (("low", 1), ("medium", 100), ("high", 1000)):
        world.api.post(PRIORITIES, json={"metadata": {"name": name}, "value": value})
    start("--scheduler-name", NAME, "--policy", str(repository / "deploy" / "default-scheduler.conf"))
    yield world
    _let_go(world)


def _let_go(world: World) -> None:
    """Let pods end that would not do so by themselves."""
    pods = f"{CORE}/namespaces/{world.namespace}/pods"
    for each in world.items(pods):
        if each["metadata"].get("finalizers"):
            path = f"{pods}/{each['metadata']['name']}"
            world.api.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE)


def pod(name: str, foo: int, priority: str, on: str = "", **more: Any) -> Object:
    """A pod that says nothing about its scheduler."""
    amounts = {FOO: str(foo)}
    metadata = {"name": name, "labels": more.pop("labels", {}), "finalizers": more.pop("finalizers", [])}
    selector = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    container = {"name": "main", "image": "example.com/pause:1", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"priorityClassName": priority, "containers": [container | more.pop("container", {})], **selector, **more}
    return {"metadata": metadata, "spec": spec}


def running(world: World, *pods: Object) -> None:
    world.pods(pods)
    names = {each["metadata"]["name"] for each in pods}
    eventually(lambda: names <= world.placed().keys())


def left(world: World) -> set[str]:
    """The pods that are there and do not terminate."""
    pods = world.items(f"{CORE}/namespaces/{world.namespace}/pods")
    return {each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]}


@pytest.mark.parametrize("priority", ["high", "system-cluster-critical"])
def test_the_pod_of_the_lowest_priority_gives_way(cluster: World, priority: str) -> None:
    others = [pod(f"pod-{n}-{i}", 2, "medium", f"node-{n}") for n in range(2) for i in range(2)][1:]
    running(cluster, pod("pod-0-0", 2, "low", "node-0"), *others)
    running(cluster, pod("urgent", 2, priority))
    assert cluster.placed()["urgent"] == "node-0"
    assert left(cluster) == {"pod-0-1", "pod-1-0", "pod-1-1", "urgent"}


def test_a_victim_says_that_it_was_disrupted(cluster: World) -> None:
    running(cluster, pod("victim", 5, "low", "node-0", finalizers=["example.com/kept"]))
    cluster.pods([pod("urgent", 5, "high", "node-0")])
    path = f"{CORE}/namespaces/{cluster.namespace}/pods/victim"

    def conditions() -> dict[str, str]:
        return {each["type"]: each.get("reason", "") for each in cluster.get(path)["status"]["conditions"]}

    eventually(lambda: conditions().get("DisruptionTarget") == "PreemptionByScheduler")
    assert "deletionTimestamp" in cluster.get(path)["metadata"]
    cluster.api.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE).raise_for_status()
    eventually(lambda: cluster.placed().get("urgent") == "node-0")


def test_pods_of_replica_sets_go_once_and_only_the_least_important(cluster: World) -> None:
    sets = f"/apis/apps/v1/namespaces/{cluster.namespace}/replicasets"
    for name, foo, priority in (("one", 1, "low"), ("two", 1, "medium"), ("three", 3, "high")):
        template = pod(name, foo, priority, "node-0", labels={"name": name})
        template["metadata"].pop("finalizers")
        spec = {"replicas": 1, "selector": {"matchLabels": {"name": name}}, "template": template}
        cluster.create(sets, {"metadata": {"name": name}, "spec": spec})
    eventually(lambda: len(cluster.placed()) == 3)
    before = left(cluster)
    running(cluster, pod("urgent", 2, "system-cluster-critical", "node-0"))
    # Those that went are made again, once, and wait.
    eventually(lambda: len(left(cluster)) == 4 and len(cluster.refused()) == 2)
    assert {name.partition("-")[0] for name in left(cluster) & before} == {"three"}
    assert cluster.placed().keys() >= {"urgent"}


def test_as_many_go_as_a_spread_constraint_takes(cluster: World) -> None:
    labels = {"app": "web"}
    running(cluster, pod("top", 4, "high", "node-0", labels=labels))
    running(cluster, *[pod(f"low-{number}", 1, "low", "node-1", labels=labels) for number in range(3)])
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    running(cluster, pod("spread", 3, "medium", labels=labels, topologySpreadConstraints=[spread]))
    assert cluster.placed()["spread"] == "node-1"
    assert len(left(cluster) & {"low-0", "low-1", "low-2"}) == 1


def test_a_pod_gives_its_port_to_a_more_important_one(cluster: World) -> None:
    port = {"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}}
    running(cluster, pod("low", 1, "low", "node-0", **port), pod("other", 1, "low", "node-0"))
    running(cluster, pod("urgent", 1, "high", "node-0", **port))
    assert left(cluster) == {"other", "urgent"}


def test_pods_go_to_the_node_that_is_used_least(cluster: World) -> None:
    busy = pod("busy", 1, "low", "node-0", container={"resources": {"requests": {"cpu": "4", "memory": "64Gi"}}})
    running(cluster, busy)
    even = {"resources": {"requests": {"cpu": "1", "memory": "16Gi"}}}
    running(cluster, pod("idle", 0, "low", container=even))
    assert cluster.placed()["idle"] == "node-1"
