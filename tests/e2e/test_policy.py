"""The policy file of a running service, broken and mended."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import Object, World

pytestmark = pytest.mark.e2e

SPREAD = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: nodeorder
"""
BROKEN = SPREAD.replace("nodeorder", "nodeordr")
PACK = SPREAD.replace("nodeorder", "binpack")


def test_a_broken_policy_is_refused_and_a_mended_one_taken_up(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(2, cpu="8")
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(SPREAD)
    service = start("--policy", str(policy))

    def good() -> float:
        return service.metric("stromboli_policy_last_reload_successful")

    def spread(gang: str) -> int:
        return len({node for name, node in world.placed().items() if name.startswith(gang)})

    assert good() == 1

    replace(policy, BROKEN)
    eventually(lambda: good() == 0)
    world.gang("before", 4)
    eventually(lambda: world.bound()["before"] == 4)
    assert spread("before") == 2
    assert service.metric("stromboli_policy_reload_errors_total") == 1
    refusals = [line for line in service.text.splitlines() if "policy refused" in line]
    assert len(refusals) == 1
    assert "nodeordr" in refusals[0]
    assert "did you mean 'nodeorder'?" in refusals[0]
    eventually(lambda: [e["regarding"]["kind"] for e in events(world, "PolicyRefused")] == ["Queue"])
    assert "nodeordr" in events(world, "PolicyRefused")[0]["note"]

    found = httpx.get(f"http://{service.address}/api/v1/findings", trust_env=False).raise_for_status().json()["items"]
    assert [each["problem"] for each in found] == [f"{policy} was refused, and the policy before it is in force"]

    replace(policy, PACK)
    eventually(lambda: good() == 1)
    eventually(lambda: events(world, "PolicyLoaded") != [])
    world.gang("after", 4)
    eventually(lambda: world.bound()["after"] == 4)
    assert spread("after") == 1


def replace(file: Path, text: str) -> None:
    """Change a file at once, as the kubelet changes a mounted ConfigMap."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def events(world: World, reason: str) -> list[Object]:
    return [event for event in world.events("default") if event["reason"] == reason]
