"""On a real API server: what was evicted for a gang that must be close together is taken by it, soon and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import Object, World, pod

pytestmark = pytest.mark.e2e

SLOW = "example.com/slow"
HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
POLICY = """
actions: "enqueue, {actions}"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: predicates}}, {{name: capacity}}, {{name: nodeorder}}, {{name: network-topology-aware}}]
"""


@pytest.fixture
def racks(world: World) -> Iterator[World]:
    """Two racks of two nodes with four CPUs each, and two queues."""
    for rack in "ab":
        world.nodes(2, cpu="4", prefix=rack)
        members = [{"type": "Node", "selector": {"exactMatch": {"name": f"{rack}-{number}"}}} for number in range(2)]
        manifest = {"metadata": {"name": f"rack-{rack}"}, "spec": {"tier": 1, "members": members}}
        world.create(HYPER_NODES, {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", **manifest})
    world.queue("rich", deserved={"cpu": "4", "memory": "512Gi"})
    world.queue("poor", deserved={"cpu": "12", "memory": "512Gi"})
    yield world
    let_go(world, [each["metadata"]["name"] for each in world.items(world._pods)])
    world.api.delete(HYPER_NODES).raise_for_status()


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("first", [False, True], ids=["after allocate", "before allocate"])
def test_a_hard_gang_of_4_of_24_starts_with_what_was_evicted_for_it(
    racks: World, start: Start, tmp_path: Path, action: str, first: bool
) -> None:
    policy = tmp_path / "policy.yaml"
    order = [action, "allocate"] if first else ["allocate", action]
    policy.write_text(POLICY.format(actions=", ".join([*order, "backfill"])))
    start("--policy", str(policy))
    racks.group("uses", 1, "rich")
    racks.pods([held(f"uses-{number}") for number in range(16)])
    eventually(lambda: racks.bound() == {"uses": 16})
    eventually(lambda: sum(each["status"]["phase"] == "Running" for each in racks.items(racks._pods)) == 16)

    racks.group("wants", 4, "poor", networkTopology={"mode": "hard", "highestTierAllowed": 1})
    racks.pods([pod(f"wants-{number}", "wants") for number in range(24)])
    # A rack has room for eight, and no pod goes for more.
    eventually(lambda: len(ending(racks)) == 8)
    assert racks.bound() == {"uses": 16}
    victims = ending(racks)
    let_go(racks, victims[:4])
    eventually(lambda: racks.bound() == {"uses": 12, "wants": 4})
    let_go(racks, victims[4:])
    eventually(lambda: racks.bound() == {"uses": 8, "wants": 8})
    assert len({node[0] for name, node in racks.placed().items() if name.startswith("wants")}) == 1
    assert ending(racks) == []

    # All others end: what is free is taken, and nothing waits for places that are there.
    rest = [name for name in racks.placed() if name.startswith("uses")]
    for name in rest:
        racks.api.delete(f"{racks._pods}/{name}", params={"gracePeriodSeconds": "0"}).raise_for_status()
    let_go(racks, rest)
    racks.gang("next", 8, queue="rich")
    eventually(lambda: racks.bound() == {"wants": 8, "next": 8})


def held(name: str) -> Object:
    """A pod that ends when the test says so."""
    made = pod(name, "uses")
    made["metadata"]["finalizers"] = [SLOW]
    return made


def ending(world: World) -> list[str]:
    """The pods that terminate."""
    found = [each["metadata"] for each in world.items(world._pods)]
    return [each["name"] for each in found if "deletionTimestamp" in each]


def let_go(world: World, names: list[str]) -> None:
    patch = {"Content-Type": "application/merge-patch+json"}
    for name in names:
        body = {"metadata": {"finalizers": None}}
        world.api.patch(f"{world._pods}/{name}", json=body, headers=patch).raise_for_status()
