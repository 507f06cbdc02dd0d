"""On a real API server: gangs that do not get ready, and jobs that run for too long, give their places back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import World, pod

pytestmark = pytest.mark.e2e

POLICY = """
actions: "timeouts, enqueue, allocate"
configurations:
- name: timeouts
  arguments: {podsReadyTimeout: 3s, backoffBase: 10s}
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
"""


@pytest.fixture
def timed(world: World, start: Start, tmp_path: Path) -> World:
    """Four CPUs, and a service that times out."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    world.nodes(1, cpu="4")
    start("--policy", str(policy))
    return world


def patch_status(world: World, path: str, status: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    world.api.patch(f"{path}/status", json={"status": status}, headers=headers).raise_for_status()


def again(world: World, name: str, pods: int) -> None:
    """Make the pods of a gang anew when the last of them has gone, as its controller does."""
    eventually(lambda: not world.items(world._pods), 60)
    world.pods([pod(f"{name}-{number}", name) for number in range(pods)])


def told(world: World, group: str) -> str:
    """Why a gang does not run."""
    found = world.condition(group, "Unschedulable")
    return str(found.get("message", "")) if found.get("status") == "True" else ""


def test_a_gang_that_is_not_ready_gives_its_places_back_and_comes_again(timed: World) -> None:
    timed.gang("train", 2)
    eventually(lambda: sum(p["status"]["phase"] == "Running" for p in timed.items(timed._pods)) == 2)
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    patch_status(timed, f"{timed._pods}/train-1", {"conditions": [unready]})
    again(timed, "train", 2)
    evicted = [event["note"] for event in timed.events() if event["reason"] == "Evict"]
    assert any("did not get ready in time" in note for note in evicted), evicted
    eventually(lambda: "did not get ready in time" in told(timed, "train"))
    assert timed.bound() == {}
    eventually(lambda: timed.bound() == {"train": 2}, 60)


def test_a_job_that_ran_for_too_long_is_not_placed_again(timed: World) -> None:
    timed.group("long", 1)
    annotations = {"metadata": {"annotations": {"stromboli.io/max-run-time": "4s"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    timed.api.patch(f"{timed._groups}/long", json=annotations, headers=headers).raise_for_status()
    timed.pods([pod("long-0", "long")])
    eventually(lambda: timed.bound() == {"long": 1})
    again(timed, "long", 1)
    eventually(lambda: timed.condition("long", "TimedOut").get("reason") == "MaximumRunTimeExceeded")
    eventually(lambda: "ran for longer than 4 s" in told(timed, "long"))
    timed.gang("other", 1)
    eventually(lambda: timed.bound() == {"other": 1})
    assert "ran for longer than 4 s" in told(timed, "long")
