"""A cluster that several services share by NodeShards, each with a standby."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest

from stromboli.live.leadership.node_shard import PATH
from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.service import Service
from tests.e2e.test_chart import CRDS, definition
from tests.e2e.world import CORE, World, pod

pytestmark = pytest.mark.e2e

NODES = {"left": {"node-0", "node-1"}, "right": {"node-2", "node-3"}}


@pytest.fixture
def sharded(world: World) -> Iterator[World]:
    """Four nodes, two of each shard."""
    kind = definition("shard.volcano.sh", "v1alpha1", "nodeshards")
    kind["spec"]["names"] = {"plural": "nodeshards", "singular": "nodeshard", "kind": "NodeShard"}
    kind["spec"]["versions"][0]["subresources"] = {"status": {}}
    world.create(CRDS, kind)
    eventually(lambda: world.api.get(PATH).is_success)
    world.nodes(4, cpu="4")
    for name, nodes in NODES.items():
        shard = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard", "metadata": {"name": name}}
        world.create(PATH, {**shard, "spec": {"nodesDesired": sorted(nodes)}})
    yield world
    path = f"{CRDS}/{kind['metadata']['name']}"
    world.api.delete(path).raise_for_status()
    eventually(lambda: world.api.get(path).status_code == httpx.codes.NOT_FOUND)


def shard(start: Start, name: str, *more: str) -> Service:
    return start("--shard", name, "--scheduler-name", name, "--leader-elect", *more)


def submit(world: World, name: str, scheduler: str, pods: int) -> None:
    """A gang for a shard, of pods that take a cpu each."""
    world.group(name, pods)
    world.pods([pod(f"{name}-{number}", name, cpu="1", scheduler=scheduler) for number in range(pods)])


def nodes_of(world: World, gang: str) -> list[str]:
    """Where its pods are."""
    return [node for name, node in world.placed().items() if name.startswith(f"{gang}-")]


def in_use(world: World, name: str) -> set[str]:
    return set((world.get(f"{PATH}/{name}").get("status") or {}).get("nodesInUse") or ())


def test_two_shards_bind_to_their_own_nodes_and_together_all_pods(sharded: World, start: Start) -> None:
    for name in NODES:
        shard(start, name)
    submit(sharded, "gang-left", "left", 8)
    eventually(lambda: len(sharded.placed()) == 8)
    submit(sharded, "more", "left", 1)
    eventually(lambda: sharded.condition("more", "Unschedulable") != {})
    assert "not in the scheduler's node shard" in sharded.condition("more", "Unschedulable")["message"]
    submit(sharded, "gang-right", "right", 8)
    eventually(lambda: len(sharded.placed()) == 16)
    for name, nodes in NODES.items():
        assert set(nodes_of(sharded, f"gang-{name}")) == nodes
        eventually(lambda name=name, nodes=nodes: in_use(sharded, name) == nodes)


def test_a_node_changes_hands_when_its_shard_gives_it_up(sharded: World, start: Start) -> None:
    for name in NODES:
        shard(start, name)
    eventually(lambda: all(in_use(sharded, name) == nodes for name, nodes in NODES.items()))
    for name, nodes in (("right", {"node-1", *NODES["right"]}), ("left", {"node-0"})):
        patch = {"spec": {"nodesDesired": sorted(nodes)}}
        headers = {"Content-Type": "application/merge-patch+json"}
        sharded.api.patch(f"{PATH}/{name}", json=patch, headers=headers).raise_for_status()
        if name == "right":
            eventually(lambda: (sharded.get(f"{PATH}/right")["status"].get("nodesToAdd") or []) == ["node-1"])
            assert in_use(sharded, "right") == NODES["right"]
    eventually(lambda: in_use(sharded, "right") == {"node-1", *NODES["right"]})
    submit(sharded, "large", "right", 12)
    eventually(lambda: len(nodes_of(sharded, "large")) == 12)


def test_a_shard_that_dies_is_taken_over_by_its_standby(sharded: World, start: Start) -> None:
    leader = shard(start, "left")
    shard(start, "left")
    shard(start, "right")
    submit(sharded, "before", "left", 2)
    eventually(lambda: len(nodes_of(sharded, "before")) == 2)
    leader.end(signal.SIGKILL)
    submit(sharded, "after", "left", 6)
    eventually(lambda: len(nodes_of(sharded, "after")) == 6)
    assert set(nodes_of(sharded, "after")) <= NODES["left"]


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_shard_without_replicas_is_taken_over_by_another_until_it_has_one(
    sharded: World, start: Start, mode: str, how: signal.Signals
) -> None:
    replicas = [shard(start, "left", "--shard-mode", mode) for _ in range(2)]
    right = shard(start, "right", "--stand-in", "stromboli-left", "--stand-in-after", "1")
    submit(sharded, "runs", "left", 2)
    eventually(lambda: len(nodes_of(sharded, "runs")) == 2)
    ran = sharded.placed()
    for replica in replicas:
        replica.end(how)

    submit(sharded, "left-alone", "left", 6)
    submit(sharded, "more", "left", 2)
    eventually(lambda: len(nodes_of(sharded, "left-alone")) == 6)
    assert set(nodes_of(sharded, "left-alone")) <= NODES["left"]
    if mode == "soft":
        eventually(lambda: len(nodes_of(sharded, "more")) == 2)
        assert set(nodes_of(sharded, "more")) <= NODES["right"]
    else:
        eventually(lambda: "node shard" in sharded.condition("more", "Unschedulable").get("message", ""))
    submit(sharded, "own", "right", 4)
    eventually(lambda: len(nodes_of(sharded, "own")) == 4)
    assert set(nodes_of(sharded, "own")) <= NODES["right"]
    assert {name: in_use(sharded, name) for name in NODES} == NODES

    back = shard(start, "left", "--shard-mode", mode)
    eventually(lambda: back.metric("stromboli_leading") == 1)
    eventually(lambda: "no longer standing in" in right.text)
    for name in ("left-alone-0", "left-alone-1", *(name for name in ran if name.startswith("runs"))):
        sharded.api.delete(f"{CORE}/namespaces/{sharded.namespace}/pods/{name}", params={"gracePeriodSeconds": "0"})
    submit(sharded, "last", "left", 2)
    eventually(lambda: len(nodes_of(sharded, "last")) == 2)
    assert right.metric("stromboli_leading") == 1


def test_a_soft_shard_takes_its_own_nodes_first(sharded: World, start: Start) -> None:
    shard(start, "left", "--shard-mode", "soft")
    submit(sharded, "small", "left", 4)
    eventually(lambda: len(nodes_of(sharded, "small")) == 4)
    assert set(nodes_of(sharded, "small")) <= NODES["left"]
    submit(sharded, "large", "left", 8)
    eventually(lambda: len(nodes_of(sharded, "large")) == 8)
    assert NODES["right"] & set(nodes_of(sharded, "large"))
