"""Pods get the places, volumes and devices that kube-scheduler gives them, and wait where it has none."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

from tests.controlplane.cluster import Cluster
from tests.e2e.beside import devices, neighbors, preemption, requests, volumes
from tests.e2e.beside.scene import SHORT_BACKOFF, Scene, Situation
from tests.e2e.provisioner import Provisioner
from tests.e2e.service import Service
from tests.e2e.world import Object, World

pytestmark = pytest.mark.e2e

SITUATIONS: dict[str, Situation] = {
    name: found
    for module in (volumes, devices, requests, neighbors, preemption)
    for name, found in getmembers(module, isfunction)
    if found.__module__ == module.__name__ and list(found.__annotations__) == ["at", "return"]
}


@pytest.fixture(scope="module")
def both(plane: Cluster, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Cluster]:
    """kube-scheduler and the service, each for pods of its own."""
    plane.start_scheduler(SHORT_BACKOFF)
    policy = str(repository / "deploy" / "default-scheduler.conf")
    arguments = ("--policy", policy, "--extender-scheduler-name", "")
    service = Service(plane.kubeconfig(), tmp_path_factory.mktemp("beside") / "service.log", *arguments)
    service.wait_ready()
    yield plane
    service.end()
    plane.stop_scheduler()


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_kube_scheduler_does_is_done_here(both: Cluster, name: str) -> None:
    # A scheduler that has not heard of everything yet may refuse a pod that it binds much later, and one that still has
    # something of an earlier play never binds it.
    for time in ("1", "2", "3"):
        if time != "1":
            both.stop_scheduler()
            both.start_scheduler(SHORT_BACKOFF)
        theirs = _played(both, name, "default-scheduler", f"theirs-{time}")
        ours = _played(both, name, "stromboli", f"ours-{time}", theirs)
        if ours == theirs or ours == _played(both, name, "default-scheduler", f"theirs-{time}-after", ours):
            return
    assert ours == theirs


def _played(cluster: Cluster, name: str, scheduler: str, time: str, expected: Object | None = None) -> Object:
    world = World(cluster, f"{name.replace('_', '-')[:40]}-{time}")
    world.begin()
    scene = Scene(world, scheduler)
    try:
        with Provisioner(cluster, world.namespace):
            SITUATIONS[name](scene)
            return scene.outcome(expected)
    finally:
        scene.clear()
