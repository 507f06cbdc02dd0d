"""Devices by ResourceClaims go over to more important pods: the holder is evicted, its claim gives the device back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.test_claims import _API, Devices, devices, given, gpus, request, using, why
from tests.e2e.test_evictions import PRIORITIES
from tests.e2e.world import CORE, World

__all__ = ["devices", "gpus"]
pytestmark = pytest.mark.e2e

POLICY = """
actions: "enqueue, allocate, {action}, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]
"""
ACTIONS = pytest.mark.parametrize("action", ["preempt", "gangpreempt"])


@pytest.fixture
def served(gpus: Devices, start: Start, tmp_path: Path, action: str) -> Devices:
    """Two nodes with a device each, and a PriorityClass of 100."""
    gpus.slice("node-1", [{"name": "gpu-0"}])
    gpus.world.api.post(PRIORITIES, json={"metadata": {"name": "urgent"}, "value": 100})
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(action=action))
    start("--policy", str(policy))
    template = {"spec": {"devices": {"requests": [request()]}}}
    templates = f"{_API}/namespaces/{gpus.world.namespace}/resourceclaimtemplates"
    gpus.world.create(templates, {"metadata": {"name": "a-gpu"}, "spec": template})
    return gpus


def gang(world: World, name: str, pods: int, **more: str) -> None:
    """A gang of pods with a claim of their own each."""
    world.group(name, pods, **more)
    world.pods([using(f"{name}-{number}", template="a-gpu", group=name, **more) for number in range(pods)])


def evictions(world: World) -> set[str]:
    """The pods that were evicted."""
    of_pods = (each for each in world.events() if each["regarding"]["kind"] == "Pod")
    return {each["regarding"]["name"] for each in of_pods if each["reason"] == "Evict"}


@ACTIONS
def test_the_device_goes_over_and_no_other_pod_goes(served: Devices) -> None:
    """Of three pods that may go the one that holds the device that is asked for: the others have none, or a far one."""
    world = served.world
    for name in ("holds", "other"):
        gang(world, name, 1)
    world.gang("plain", 2, cpu="8")
    eventually(lambda: world.bound() == {"holds": 1, "other": 1, "plain": 2})
    before = world.placed()
    world.group("urgent", 1, priorityClassName="urgent")
    where = {"kubernetes.io/hostname": before["holds-0"]}
    world.pods([using("urgent-0", template="a-gpu", group="urgent", priorityClassName="urgent", nodeSelector=where)])
    eventually(lambda: world.placed().get("urgent-0") == before["holds-0"], 60)
    assert sorted(given(served)) == ["node-0/gpu-0", "node-1/gpu-0"]
    assert evictions(world) == {"holds-0"}
    assert {name: node for name, node in world.placed().items() if name != "urgent-0"} == {
        name: node for name, node in before.items() if name != "holds-0"
    }


@ACTIONS
def test_a_gang_takes_the_devices_of_several(served: Devices) -> None:
    world = served.world
    for name in ("one", "two"):
        gang(world, name, 1)
    eventually(lambda: world.bound() == {"one": 1, "two": 1})
    gang(world, "urgent", 2, priorityClassName="urgent")
    eventually(lambda: world.bound() == {"urgent": 2}, 60)
    assert evictions(world) == {"one-0", "two-0"}
    assert len(given(served)) == 2


@ACTIONS
def test_a_device_that_both_nodes_reach_goes_over(served: Devices) -> None:
    """The nodes' own devices are kept by pods as important as the one that asks."""
    world = served.world
    gang(world, "keep", 2, priorityClassName="urgent")
    eventually(lambda: world.bound() == {"keep": 2})
    served.slice("network", [{"name": "gpu-0"}], allNodes=True)
    gang(world, "holds", 1)
    eventually(lambda: world.bound() == {"keep": 2, "holds": 1})
    gang(world, "urgent", 1, priorityClassName="urgent")
    eventually(lambda: world.bound() == {"keep": 2, "urgent": 1}, 60)
    assert evictions(world) == {"holds-0"}
    assert sorted(given(served)) == ["network/gpu-0", "node-0/gpu-0", "node-1/gpu-0"]


@ACTIONS
def test_no_pod_goes_where_a_device_is_lacking_all_the_same(served: Devices) -> None:
    """Three are asked for, and there are two."""
    world = served.world
    gang(world, "holds", 1)
    eventually(lambda: world.bound() == {"holds": 1})
    gang(world, "urgent", 3, priorityClassName="urgent")
    eventually(lambda: "CannotBePlacedTogether" in why(world, "urgent-2"), 60, lambda: why(world, "urgent-2"))
    assert (world.bound(), evictions(world)) == ({"holds": 1}, set())


@ACTIONS
def test_a_claim_that_outlives_its_pod_is_waited_for(served: Devices) -> None:
    """Two pods share one that a user made, and end slowly: the second goes with the first, and no other."""
    world = served.world
    served.claim("shared")
    world.group("holds", 1)
    world.group("other", 1)
    held = [using(f"holds-{number}", "shared", group="holds") for number in range(2)]
    for each in held:
        each["metadata"]["finalizers"] = ["example.com/slow"]
    world.pods(held)
    eventually(lambda: world.bound() == {"holds": 2})
    world.pods([using("other-0", template="a-gpu", group="other")])
    eventually(lambda: world.bound() == {"holds": 2, "other": 1})
    on = world.placed()["holds-0"]
    world.group("urgent", 1, priorityClassName="urgent")
    where = {"kubernetes.io/hostname": on}
    world.pods([using("urgent-0", template="a-gpu", group="urgent", priorityClassName="urgent", nodeSelector=where)])
    eventually(lambda: evictions(world) == {"holds-0", "holds-1"}, 60)
    for each in held:
        path = f"{CORE}/namespaces/{world.namespace}/pods/{each['metadata']['name']}"
        assert "urgent-0" not in world.placed()
        patch = {"Content-Type": "application/merge-patch+json"}
        world.api.patch(path, json={"metadata": {"finalizers": None}}, headers=patch).raise_for_status()
    eventually(lambda: world.placed().get("urgent-0") == on, 60)
    assert evictions(world) == {"holds-0", "holds-1"}
    assert world.placed()["other-0"] != on
