"""Gangs and elastic jobs get the places, and the parts of nodes, that asking all nodes anew for each pod would give."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from stromboli.api.decisions import Bind
from stromboli.engine import Engine, SessionResult
from stromboli.plugins.deviceshare.plugin import DeviceShare
from tests import builders
from tests.plugins.test_deviceshare import (
    IDS,
    INDEX,
    MEMORY,
    NUMBER,
    V_CORES,
    V_MEMORY,
    V_NUMBER,
    gpu_node,
    user,
    vgpu_node,
)
from tests.plugins.test_numaaware import aligned, topology

#: names and objects of nodes, and a pod of a job by number
World = tuple[list[Any], list[dict[str, Any]], Callable[[str, str, int], Any]]


def gpus(chance: random.Random, resource: str, sizes: list[str]) -> World:
    nodes = [gpu_node(f"n{i}", 1000 * (cards := chance.randint(1, 3)), cards) for i in range(5)]
    return nodes, [], lambda name, job, kind: user(name, {resource: sizes[kind]}, job=job)


def virtual(chance: random.Random) -> World:
    cards = ["2,1000,NVIDIA-A100", "1,3000,NVIDIA-A100", "3,1000,NVIDIA-T4"]
    nodes = [vgpu_node(f"n{i}", *chance.choices(cards, k=chance.randint(1, 3))) for i in range(5)]
    limits = [
        {V_NUMBER: "1", V_MEMORY: "400"},
        {V_NUMBER: "2", V_MEMORY: "300", V_CORES: "50"},
        {V_NUMBER: "1", V_CORES: "100"},
    ]
    chosen = [{}, {"volcano.sh/vgpu-podgroup-policy": "spread"}, {"nvidia.com/nouse-gputype": "T4"}]
    labels = [{}, {"alone": "yes"}]
    about = [(chance.choice(chosen), chance.choice(labels)) for _ in limits]

    def pod(name: str, job: str, kind: int) -> Any:
        annotations, carried = about[kind]
        return user(name, limits[kind], job=job, annotations=annotations, labels=carried)

    return nodes, [], pod


def numa(chance: random.Random) -> World:
    free = ["0-7", "0-3", "1-6", "0,2,4,6"]
    policies = ["single-numa-node", "best-effort", "restricted"]
    topologies = [topology(f"n{i}", chance.choice(policies[:2]), chance.choice(free)) for i in range(5)]
    wanted = chance.choice([*policies[:2], ""])
    pods = lambda name, job, kind: aligned(name, str(1 + kind), wanted, job=job)  # noqa: E731
    return [builders.node(f"n{i}") for i in range(5)], topologies, pods


def plain(chance: random.Random) -> World:
    nodes = [builders.node(f"n{i}", cpu=str(chance.randint(2, 16))) for i in range(5)]
    return nodes, [], lambda name, job, kind: builders.pod(name, job, cpu=("500m", "1", "3")[kind])


WORLDS: dict[str, tuple[str, dict[str, Any], Callable[[random.Random], World]]] = {
    "memory": ("deviceshare", {"deviceshare.GPUSharingEnable": True}, lambda c: gpus(c, MEMORY, ["200", "500", "900"])),
    "cards": ("deviceshare", {"deviceshare.GPUNumberEnable": True}, lambda c: gpus(c, NUMBER, ["1", "2", "3"])),
    "vGPU": ("deviceshare", {"deviceshare.VGPUEnable": True}, virtual),
    "packed": (
        "deviceshare",
        {
            "deviceshare.VGPUEnable": True,
            "deviceshare.SchedulePolicy": "binpack",
            "deviceshare.ScheduleWeight": 3,
            "deviceshare.GPUExclusiveRules": [{"alone": "yes"}],
        },
        virtual,
    ),
    "NUMA": ("numa-aware", {}, numa),
    "amounts": ("overcommit", {}, plain),
}


@cache
def engine(world: str, *, anew: bool) -> Engine:
    plugin, arguments, _ = WORLDS[world]
    below: list[dict[str, Any]] = [{"name": name} for name in ("predicates", "nodeorder", "binpack")]
    below.append({"name": plugin, "arguments": arguments})
    tiers = [{"plugins": [{"name": "priority"}, {"name": "gang"}]}, {"plugins": below}]
    return Engine(yaml.safe_dump({"actions": "allocate", "tiers": tiers}), plain=anew).unbounded()


def binds(world: str, seed: int, *, anew: bool = False) -> tuple[list[Any], list[Bind]]:
    """The nodes of a random cluster, and where four jobs go there."""
    nodes, result = decided(world, seed, anew=anew)
    return nodes, [each for each in result.decisions if isinstance(each, Bind)]


def decided(world: str, seed: int, *, anew: bool = False) -> tuple[list[Any], SessionResult]:
    """The nodes, and all about the session."""
    chance = random.Random(seed)
    nodes, topologies, pod = WORLDS[world][2](chance)
    objects: list[Any] = [builders.queue("default"), *nodes]
    for job in range(4):
        size, kinds = chance.randint(2, 14), chance.sample(range(3), chance.randint(1, 2))
        objects.append(builders.pod_group(f"j{job}", chance.choice([1, size // 2, size]), created=job))
        objects += [pod(f"j{job}-{at:02}", f"j{job}", kinds[at % len(kinds)]) for at in range(size)]
    cluster = builders.state(objects)
    for manifest in topologies:
        cluster.upsert("Numatopology", manifest)
    return nodes, engine(world, anew=anew).decide(cluster.snapshot(), now=builders.NOON)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.one_in(5)
def test_kept_answers_decide_as_those_that_are_asked_anew(world: str, seed: int) -> None:
    _, kept = binds(world, seed)
    _, anew = binds(world, seed, anew=True)
    assert kept
    assert kept == anew


@pytest.mark.one_in(5)
@pytest.mark.parametrize("world", ["memory", "cards", "vGPU", "packed"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_known_of_cards_is_what_all_nodes_say_now(world: str, seed: int) -> None:
    session = decided(world, seed)[1].session
    plugin = next(each for each in session.plugins if isinstance(each, DeviceShare))
    for pod in filter(None, session.view.pods.records):
        known, (fits, scores) = plugin._answer(pod), plugin._judge(pod, slice(None))
        assert (known.fits.tolist(), known.scores.tolist()) == (fits.tolist(), scores.tolist())
        assert plugin._sharing is not None
        draft = plugin._sharing.draft(pod, plugin._available(pod, slice(None)))
        for node in range(len(fits)):
            assert plugin._plan(pod, node) == draft.plan(node)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("world", ["vGPU", "packed"])
@pytest.mark.parametrize("seed", range(6))
def test_cards_are_not_given_to_more_pods_than_they_have_room_for(world: str, seed: int) -> None:
    nodes, bound = binds(world, seed)
    left = {}
    for each in nodes:
        for card in each.metadata.annotations["volcano.sh/node-vgpu-register"].split(":")[:-1]:
            name, seats, memory, *_ = card.split(",")
            left[name] = [int(seats), int(memory), 100]
    for bind in bound:
        given = bind.annotations[IDS].strip(":").split(":")
        for name, _, memory, cores in (each.split(",") for each in given):
            assert name.startswith(bind.node)
            left[name] = [have - taken for have, taken in zip(left[name], (1, int(memory), int(cores)), strict=True)]
    assert min(map(min, left.values())) >= 0


@pytest.mark.parametrize(("world", "resource", "each"), [("memory", MEMORY, 1000), ("cards", NUMBER, 1)])
@pytest.mark.parametrize("seed", range(6))
def test_every_pod_gets_the_cards_that_it_asks_for(world: str, resource: str, each: int, seed: int) -> None:
    nodes, bound = binds(world, seed)
    left = {(node.metadata.name, at): each for node in nodes for at in range(int(node.status.allocatable[NUMBER]))}
    for bind in bound:
        for index in bind.annotations[INDEX].split(","):
            left[bind.node, int(index)] -= 200 if resource == MEMORY else 1
    assert min(left.values()) >= 0
