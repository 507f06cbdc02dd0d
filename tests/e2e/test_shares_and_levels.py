"""On a real API server: shares of node pools, minimum run times, and levels of a topology from labels of nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.service import Service
from tests.e2e.world import CORE, World, pod, volcano

pytestmark = pytest.mark.e2e

PATCH = {"Content-Type": "application/merge-patch+json"}
ABOVE = "tiers:\n- plugins: [{name: priority}, {name: gang}, {name: conformance}]\n"
POOLS = f"""actions: "enqueue, allocate, reclaim"
{ABOVE}
- plugins:
  - name: nodepools
    arguments:
      pools:
      - {{name: gold, nodeSelector: {{pool: gold}}}}
      - {{name: spot, nodeSelector: {{pool: spot}}}}
- plugins: [{{name: predicates}}, {{name: capacity}}]
"""
RUN_TIMES = f"""actions: "enqueue, allocate, preempt"
{ABOVE}
- plugins: [{{name: predicates}}, {{name: minruntime}}]
"""
LEVELS = f"""actions: "enqueue, allocate"
topology: {{levels: [{{nodeLabel: rack}}, {{nodeLabel: kubernetes.io/hostname}}]}}
{ABOVE}
- plugins: [{{name: predicates}}, {{name: network-topology-aware}}]
"""


def label(world: World, node: str, **labels: str) -> None:
    patch = {"metadata": {"labels": labels}}
    world.api.patch(f"{CORE}/nodes/{node}", json=patch, headers=PATCH).raise_for_status()


def serve(start: Start, folder: Path, policy: str) -> Service:
    (folder / "policy.yaml").write_text(policy)
    return start("--policy", str(folder / "policy.yaml"))


def job(world: World, name: str, pods: int, pools: str, **group: Any) -> None:
    """A job that starts with one pod and may use some pools."""
    made = volcano("PodGroup", name, {"minMember": 1, "queue": group.pop("queue"), **group})
    made["metadata"]["annotations"] = {"stromboli.io/pools": pools}
    world.create(world._groups, made)
    world.pods([pod(f"{name}-{number}", name) for number in range(pods)])


def in_pools(world: World, name: str) -> list[str]:
    """The pools of the nodes of a job's pods."""
    pools = {"node-0": "gold", "node-1": "spot"}
    return sorted(pools[node] for each, node in world.placed().items() if each.startswith(f"{name}-"))


def test_queues_share_node_pools(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(2, cpu="4")
    label(world, "node-0", pool="gold")
    label(world, "node-1", pool="spot")
    world.queue("board", pools=[{"name": "gold", "deserved": {"cpu": "2"}}])
    world.queue("ops", pools=[{"name": "spot", "capability": {"cpu": "1"}}])
    world.queue("labs", pools=[{"name": "gold", "capability": {"cpu": "3"}}])
    service = serve(start, tmp_path, POOLS)
    job(world, "sim", 4, "gold,spot", queue="labs")
    eventually(lambda: in_pools(world, "sim") == ["gold", "gold", "gold", "spot"])
    job(world, "more", 1, "gold", queue="labs")
    eventually(lambda: "node pool gold" in world.condition("more", "Unschedulable").get("message", ""))
    job(world, "lost", 1, "silver", queue="labs")
    eventually(lambda: "node pool silver" in world.condition("lost", "Unschedulable").get("message", ""))
    job(world, "first", 1, "spot", queue="ops", minResources={"cpu": "1"})
    eventually(lambda: in_pools(world, "first") == ["spot"])
    job(world, "later", 1, "spot", queue="ops", minResources={"cpu": "1"})
    eventually(lambda: "node pool spot" in world.condition("later", "Unschedulable").get("message", ""))
    assert world.group_status("later")["phase"] == "Pending"
    told = service.http.get(f"/api/v1/explain/job/{world.namespace}/later", timeout=60).raise_for_status().json()
    assert (told["stage"], told["reason"]) == ("Admission", "NodePoolLimitReached")
    raised = "raise capability of queue ops in node pool spot to 2 cpu"
    assert raised in [remedy["change"] for remedy in told["remedies"]]
    levels = service.http.get("/api/v1/explain/queue/labs", timeout=60).raise_for_status().json()["levels"]
    assert {each["pool"]: each["held"] for each in levels if each["resource"] == "cpu" and each.get("pool")} == {
        "gold": "3",
        "spot": "1",
    }
    job(world, "plan", 2, "gold", queue="board")
    eventually(lambda: in_pools(world, "plan") == ["gold", "gold"], 60)
    assert in_pools(world, "sim") == ["gold", "gold", "spot"]


def test_a_gang_runs_for_its_minimum_before_it_is_preempted(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="2")
    world.queue("research", preemptMinRuntime="8s")
    for name, value in (("low-here", 1), ("high-here", 10)):
        world.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json={"metadata": {"name": name}, "value": value})
    serve(start, tmp_path, RUN_TIMES)
    world.gang("low", 2, queue="research", priorityClassName="low-here")
    eventually(lambda: sum(p["status"]["phase"] == "Running" for p in world.items(world._pods)) == 2)
    began = time.monotonic()
    world.gang("high", 2, queue="research", priorityClassName="high-here")
    eventually(lambda: world.bound().get("high") == 2, 60)
    # Start times are told in whole seconds.
    assert time.monotonic() - began > 6


def test_labels_of_nodes_are_levels_of_a_topology(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(4, cpu="1")
    for number in range(4):
        label(world, f"node-{number}", rack=f"rack-{number // 2}")
    serve(start, tmp_path, LEVELS)
    world.gang("pair", 2)
    eventually(lambda: world.bound() == {"pair": 2})
    for name in ("two", "three"):
        size = {"two": 2, "three": 3}[name]
        world.group(name, size, networkTopology={"mode": "hard", "highestTierName": "rack"})
        world.pods([pod(f"{name}-{number}", name) for number in range(size)])
    for each in world.items(world._pods):
        if each["metadata"]["name"].startswith("pair"):
            world.api.delete(f"{world._pods}/{each['metadata']['name']}").raise_for_status()
    eventually(lambda: world.bound().get("two") == 2)
    racks = {int(node.rpartition("-")[2]) // 2 for name, node in world.placed().items() if name.startswith("two")}
    assert len(racks) == 1
    eventually(lambda: "three" in world.condition("three", "Unschedulable").get("message", ""))
    for name in ("two-0", "two-1"):
        world.api.delete(f"{world._pods}/{name}").raise_for_status()
    label(world, "node-2", rack="rack-0")
    eventually(lambda: world.bound().get("three") == 3, 60)
