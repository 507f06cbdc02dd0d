"""Groups that labels of pods name, on a real API server: of Kueue, and of the coscheduling plugin by its definition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.controlplane.projects import released
from tests.e2e.conftest import Start
from tests.e2e.test_workloads import patch
from tests.e2e.world import CORE, Object, World, define, pod

pytestmark = pytest.mark.e2e

KUEUE, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


def submit(world: World, names: list[str], labels: Object, **annotations: str) -> None:
    made = []
    for name in names:
        manifest: dict[str, Any] = pod(name)
        manifest["metadata"] |= {"labels": labels, "annotations": annotations}
        made.append(manifest)
    world.create_all(f"{CORE}/namespaces/{world.namespace}/pods", made)


def test_a_group_of_kueue_starts_whole_in_its_queue_and_goes_with_its_pods(world: World, start: Start) -> None:
    world.queue("research")
    world.nodes(1, cpu="2")
    start()
    labels = {KUEUE: "train", "kueue.x-k8s.io/queue-name": "research"}
    names = ["driver", "worker-0", "worker-1"]
    submit(world, names, labels, **{COUNT: "3"})
    eventually(lambda: [len(each["metadata"]["ownerReferences"]) for each in world.groups()] == [3])
    (group,) = world.groups()
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "research")
    eventually(lambda: world.groups()[0].get("status", {}).get("phase") in ("Pending", "Inqueue"))
    assert world.placed() == {}
    world.nodes(1, cpu="1", prefix="more")
    eventually(lambda: sorted(world.placed()) == names)
    pods = f"{CORE}/namespaces/{world.namespace}/pods"
    world.api.delete(f"{pods}/driver", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: sorted(world.placed()) == names[1:])
    assert len(world.groups()) == 1
    for name in names[1:]:
        world.api.delete(f"{pods}/{name}", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually(lambda: world.groups() == [], 90)


def test_a_group_of_the_coscheduling_plugin_follows_its_object(world: World, start: Start) -> None:
    define(world.api, released([("scheduling.x-k8s.io", "PodGroup")]))
    world.nodes(1, cpu="2")
    start()
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{world.namespace}/podgroups"
    submit(world, ["p-0", "p-1", "p-2"], {"scheduling.x-k8s.io/pod-group": "train"})
    named = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "train"}}
    spec = {"minMember": 3, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 10}
    made = world.create(path, {**named, "spec": spec})
    eventually(lambda: [each["spec"]["minMember"] for each in world.groups()] == [3], 90)
    assert world.groups()[0]["spec"]["minResources"] == {"cpu": "3"}
    assert world.groups()[0]["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert world.placed() == {}
    patch(world, f"{path}/train", {"spec": {"minMember": 2, "minResources": {"cpu": "2"}}})
    eventually(lambda: len(world.placed()) == 2)
    world.api.delete(f"{path}/train").raise_for_status()
    eventually(lambda: world.groups() == [], 90)
