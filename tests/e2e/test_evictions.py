"""On a real API server: victims go by the Eviction API, as far as disruption budgets allow, and all are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Kubectl, Start
from tests.e2e.world import World, pod

pytestmark = pytest.mark.e2e

#: victims are chosen whatever disruption budgets say, so that only the API server refuses them
POLICY = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: pdb, enablePreemptable: false}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def full(world: World, start: Start, tmp_path: Path) -> World:
    """Four CPUs, held by an elastic job of priority 0, and a PriorityClass of 100."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    world.nodes(1, cpu="4")
    world.api.post(PRIORITIES, json={"metadata": {"name": "urgent"}, "value": 100})
    start("--policy", str(policy))
    world.group("low", 1)
    labels = {"app": "low"}
    world.pods(
        [
            pod(f"low-{n}", "low") | {"metadata": pod(f"low-{n}", "low")["metadata"] | {"labels": labels}}
            for n in range(4)
        ]
    )
    eventually(lambda: world.bound() == {"low": 4})
    eventually(lambda: sum(p["status"]["phase"] == "Running" for p in world.items(world._pods)) == 4)
    return world


def keep_all(world: World) -> str:
    """A budget that lets none of the four pods go; returns its path."""
    budgets = f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 4, "selector": {"matchLabels": {"app": "low"}}}
    world.create(
        budgets, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "low"}, "spec": spec}
    )
    # No controller keeps its status here.
    status = {
        "disruptionsAllowed": 0,
        "currentHealthy": 4,
        "desiredHealthy": 4,
        "expectedPods": 4,
        "observedGeneration": 1,
    }
    patch = {"Content-Type": "application/merge-patch+json"}
    world.api.patch(f"{budgets}/low/status", json={"status": status}, headers=patch).raise_for_status()
    return f"{budgets}/low"


def notes(world: World, reason: str) -> dict[str, str]:
    return {e["regarding"]["name"]: e.get("note", "") for e in world.events() if e["reason"] == reason}


def test_a_budget_keeps_victims_until_it_lets_them_go(full: World, kubectl: Kubectl) -> None:
    budget = keep_all(full)
    full.gang("urgent", 2, priorityClassName="urgent")
    eventually(lambda: any("budget" in note for note in notes(full, "EvictionRefused").values()))
    assert full.bound() == {"low": 4}
    refused = f"pods of PodGroup {full.namespace}/low were not evicted for it: Cannot evict pod"
    eventually(lambda: refused in json.dumps(json.loads(kubectl("get", "pods", "-A", "-o", "json"))))
    eventually(lambda: "urgent-0" in notes(full, "FailedScheduling"), 10)
    described = kubectl("describe", "pod", "urgent-0")
    assert "FailedScheduling" in described, described
    full.api.delete(budget).raise_for_status()
    eventually(lambda: full.bound() == {"low": 2, "urgent": 2}, 90)
    why = "preempt for PodGroup"
    assert all(why in note and "priority 100 goes before 0" in note for note in notes(full, "Evict").values())
    assert "priority 100 goes before 0" in notes(full, "Preempting")["urgent"]


def test_another_goes_where_a_budget_refuses(full: World) -> None:
    full.api.post(PRIORITIES, json={"metadata": {"name": "middling"}, "value": 50})
    full.nodes(1, cpu="1", prefix="small")
    full.gang("spare", 1, priorityClassName="middling")
    eventually(lambda: full.bound() == {"low": 4, "spare": 1})
    eventually(lambda: all(p["status"]["phase"] == "Running" for p in full.items(full._pods)))
    keep_all(full)
    full.gang("urgent", 1, priorityClassName="urgent")
    eventually(lambda: full.bound() == {"low": 4, "urgent": 1})
    assert any("budget" in note for note in notes(full, "EvictionRefused").values())


def test_what_waits_says_so_to_kubectl(full: World, kubectl: Kubectl) -> None:
    full.gang("more", 2)
    full.group("lost", 1, queue="nowhere")
    full.pods([pod("lost-0", "lost"), pod("orphan", "nobody")])

    def said() -> dict[str, str]:
        found = json.loads(kubectl("get", "pods", "--namespace", full.namespace, "-o", "json"))["items"]
        return {
            each["metadata"]["name"]: f"{condition['reason']} {condition['message']}"
            for each in found
            for condition in each["status"].get("conditions", ())
            if (condition["type"], condition["status"]) == ("PodScheduled", "False")
        }

    eventually(lambda: {"more-0", "more-1", "lost-0", "orphan"} <= set(said()))
    assert said()["lost-0"] == "QueueNotFound QueueNotFound: there is no queue nowhere. The job must be changed."
    assert said()["orphan"].startswith("PodGroupNotFound ")
    assert said()["more-0"].startswith("Unschedulable ")
    assert "0/1 nodes are available: 1 Insufficient cpu" in said()["more-0"]
