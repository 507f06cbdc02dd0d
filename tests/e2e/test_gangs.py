"""Gangs on a real cluster: all of their pods get a node, or none."""

from __future__ import annotations

import time
from itertools import chain

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.service import cpu_seconds, peak_rss
from tests.e2e.watch import PodWatch, percentile
from tests.e2e.world import World, pod

pytestmark = pytest.mark.e2e


def test_a_gang_that_lacks_one_place_waits_whole_until_there_is_one(world: World, start: Start) -> None:
    world.nodes(9, cpu="1500m")
    start()
    world.gang("train", 10)

    eventually(lambda: "it fits 9 of them" in world.condition("train", "Unschedulable").get("message", ""))
    assert world.placed() == {}

    world.nodes(1, cpu="1", prefix="another")
    eventually(lambda: world.bound() == {"train": 10})
    assert len(set(world.placed().values())) == 10
    eventually(lambda: world.group_status("train").get("running") == 10)
    assert world.group_status("train")["phase"] == "Running"


def test_of_two_gangs_that_fit_one_at_a_time_one_starts_whole(world: World, start: Start) -> None:
    world.nodes(10, cpu="1")
    start()
    names = ("left", "right")
    for name in names:
        world.group(name, 6)
    # In turns, so that neither is there before the other.
    pairs = ([pod(f"{name}-{number}", name) for name in names] for number in range(6))
    world.pods(list(chain.from_iterable(pairs)))

    eventually(lambda: any(world.condition(name, "Scheduled") for name in names))
    eventually(lambda: any(world.condition(name, "Unschedulable") for name in names))
    eventually(lambda: sorted(world.bound().values()) == [6])


def test_bare_pods_get_a_group_in_the_queue_that_they_name(world: World, start: Start) -> None:
    world.nodes(2, cpu="2")
    world.queue("research", weight=1)
    start()
    world.pods([pod("plain"), pod("research", annotations={"scheduling.volcano.sh/queue-name": "research"})])

    eventually(lambda: set(world.placed()) == {"plain", "research"})
    owners = {group["metadata"]["ownerReferences"][0]["name"]: group for group in world.groups()}
    assert {name: group["spec"].get("queue", "default") for name, group in owners.items()} == {
        "plain": "default",
        "research": "research",
    }
    eventually(lambda: all(group["status"]["phase"] == "Running" for group in world.groups()))


def test_a_thousand_pods_in_gangs(world: World, start: Start, audit: Audit) -> None:
    """Ten gangs of a hundred fit, and half of an eleventh, of which no pod may ever have a node."""
    world.nodes(105, cpu="10")
    service = start()
    with PodWatch(world.cluster, world.namespace) as watch:
        began = time.monotonic()
        for number in range(11):
            world.gang(f"gang-{number}", 100)
        watch.wait(lambda: len(watch.bound) >= 1_000)
        eventually(lambda: any(world.condition(f"gang-{n}", "Unschedulable") for n in range(11)))

    assert sorted(watch.gangs().values()) == [0] + [100] * 10
    assert world.bound() == {gang: count for gang, count in watch.gangs().items() if count}
    assert watch.moved == []
    assert audit.bindings(world.namespace) == {(name, 201): 1 for name in watch.bound}
    took = max(watch.bound.values()) - began
    latencies = watch.latencies()
    partial = [steps[-1][0] - steps[0][0] for steps in watch.history().values() if steps]
    print(
        f"\n1,000 pods in {took:.1f} s ({1_000 / took:.0f} a second);"
        f" gang latency p50 {percentile(latencies, 50):.2f} s, p99 {percentile(latencies, 99):.2f} s;"
        f" from a gang's first binding to its last at most {max(partial):.2f} s;"
        f" CPU {cpu_seconds(service.pid):.1f} s, {peak_rss(service.pid) / 2**20:.0f} MiB"
    )
