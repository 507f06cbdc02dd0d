"""What pods ask for as a whole, and while they are resized, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import CORE, World, pod

pytestmark = pytest.mark.e2e

_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}


def patch(world: World, name: str, subresource: str, change: dict[str, Any]) -> None:
    path = f"{CORE}/namespaces/{world.namespace}/pods/{name}/{subresource}"
    answer = world.api.patch(path, json=change, headers=_PATCH)
    assert answer.is_success, answer.text


def runs(world: World, name: str) -> bool:
    """Whether the node has said that a pod runs; what is written of its containers before would be written over."""
    status = world.api.get(f"{CORE}/namespaces/{world.namespace}/pods/{name}").json()["status"]
    return status.get("phase") == "Running" and bool(status.get("containerStatuses"))


def ask_for(world: World, name: str, cpu: str) -> None:
    """Resize a pod as its user does."""
    change = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
    patch(world, name, "resize", {"spec": change})


def grant(world: World, name: str, cpu: str, pending: str = "") -> None:
    """Say of a pod what the kubelet would: what is in force, and why what it asks for is not."""
    requests = {"cpu": cpu}
    of_main = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    container = {**of_main, "resources": {"requests": requests}, "allocatedResources": requests}
    condition = {"type": "PodResizePending", "status": "True" if pending else "False", "reason": pending}
    patch(world, name, "status", {"status": {"containerStatuses": [container], "conditions": [condition]}})


def test_a_resize_counts_on_its_node_and_in_its_queue(world: World, start: Start) -> None:
    world.nodes(1, cpu="4")
    service = start()

    def held(milli_cpu: float) -> bool:
        return service.metric("volcano_queue_allocated_milli_cpu", queue_name="default") == milli_cpu

    world.gang("first", 1, cpu="2")
    eventually(lambda: held(2000))
    eventually(lambda: runs(world, "first-0"))
    grant(world, "first-0", "2")
    ask_for(world, "first-0", "3")
    eventually(lambda: held(3000))
    world.gang("second", 1, cpu="2")
    eventually(lambda: bool(world.condition("second", "Unschedulable")))
    grant(world, "first-0", "2", "Deferred")
    assert world.bound() == {"first": 1}
    # The node will never grant it: only what is in force counts.
    grant(world, "first-0", "2", "Infeasible")
    eventually(lambda: held(4000))
    assert world.bound() == {"first": 1, "second": 1}

    world.gang("third", 1, cpu="1")
    eventually(lambda: bool(world.condition("third", "Unschedulable")))
    ask_for(world, "first-0", "1")
    grant(world, "first-0", "2")
    assert world.bound() == {"first": 1, "second": 1}
    grant(world, "first-0", "1")
    eventually(lambda: world.bound() == {"first": 1, "second": 1, "third": 1})
    assert held(4000)


def test_pods_count_with_what_they_ask_for_as_a_whole(world: World, start: Start) -> None:
    world.nodes(1, cpu="4")
    world.queue("small", capability={"cpu": "3"})
    service = start()
    world.group("whole", 1, "small")
    # The API server fills in the requests.
    limits = {"limits": {"cpu": "1500m", "memory": "1Gi"}}
    for number in range(4):
        made = pod(f"whole-{number}", "whole")
        made["spec"]["containers"][0]["resources"] = {}
        made["spec"]["resources"] = limits
        world.pods([made])
    eventually(lambda: world.bound() == {"whole": 2})
    eventually(lambda: service.metric("volcano_queue_allocated_milli_cpu", queue_name="small") == 3000)
    assert world.bound() == {"whole": 2}
