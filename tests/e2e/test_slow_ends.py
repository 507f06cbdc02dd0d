"""Pods that end slowly hold the room of their queue until they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.world import World, pod

pytestmark = pytest.mark.e2e

MERGE = {"content-type": "application/merge-patch+json"}
#: pods of the job that is deleted
FIRST = [f"first-{number}" for number in range(4)]


@pytest.fixture
def slow(world: World) -> Iterator[World]:
    """32 CPUs, a queue that is limited to 4, and pods for it that end only when their finalizer is taken away."""
    world.nodes(2, cpu="16")
    world.queue("small", capability={"cpu": "4"})
    world.group("first", 1, "small")
    manifests = [pod(name, "first") for name in FIRST]
    for manifest in manifests:
        manifest["metadata"]["finalizers"] = ["example.com/slow"]
    world.pods(manifests)
    yield world
    for name in FIRST:
        let_go(world, name)


def path(world: World, name: str) -> str:
    return f"/api/v1/namespaces/{world.namespace}/pods/{name}"


def let_go(world: World, name: str) -> None:
    """Take a pod's finalizer away."""
    world.api.patch(path(world, name), json={"metadata": {"finalizers": None}}, headers=MERGE)


def test_a_tenant_who_deletes_pods_that_end_slowly_stays_within_the_limit(slow: World, start: Start) -> None:
    start()
    eventually(lambda: slow.bound() == {"first": 4})
    for name in FIRST:
        slow.api.delete(path(slow, name)).raise_for_status()
    slow.gang("second", 4, min_member=1, queue="small")

    eventually(lambda: len(slow.refused()) == 4)
    assert set(slow.refused().values()) == {"QueueCapabilityExceeded"}
    slow.gang("elsewhere", 1)
    eventually(lambda: slow.bound() == {"first": 4, "elsewhere": 1})
    for gone, name in enumerate(FIRST, 1):
        let_go(slow, name)
        left = Counter(first=4 - gone, second=gone, elsewhere=1)
        eventually(lambda left=left: slow.bound() == left)
