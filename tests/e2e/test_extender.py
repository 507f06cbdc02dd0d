"""kube-scheduler places pods of its own, and asks the service which may go where."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.conftest import Start
from tests.e2e.world import Object, World, define, pod

pytestmark = pytest.mark.e2e

PROFILE = "default-scheduler"


def test_kube_scheduler_keeps_gangs_whole(
    new_cluster: Callable[..., Cluster], definitions: list[Object], start: Start, repository: Path
) -> None:
    cluster = new_cluster()
    with cluster.client() as api:
        define(api, definitions)
    world = World(cluster, "default")
    world.nodes(5, cpu="2")
    service = start("--extender-scheduler-name", PROFILE, kubeconfig=cluster.kubeconfig())
    example = yaml.safe_load((repository / "deploy" / "kube-scheduler-extender.yaml").read_text())
    (extender,) = example["extenders"]
    # In a test nobody is placed by kube-scheduler alone.
    extender |= {"urlPrefix": f"http://{service.address}", "ignorable": False}
    cluster.start_scheduler({"extenders": [extender], "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1})

    world.pods([pod("foreign", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"": 1})
    for name, members in (("whole", 6), ("large", 5)):
        world.group(name, members)
        world.pods([pod(f"{name}-{number}", name, scheduler=PROFILE) for number in range(members)])

    eventually(lambda: stirred(world).bound() == {"whole": 6, "": 1}, 60)
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    world.nodes(2, cpu="1", prefix="another")
    eventually(lambda: stirred(world).bound() == {"whole": 6, "large": 5, "": 1}, 60)
    assert service.metric("stromboli_bindings_total", result="bound") == 0


def stirred(world: World) -> World:
    """Let something happen: kube-scheduler asks again about a refused pod at an event, and a test has few of them."""
    headers = {"Content-Type": "application/merge-patch+json"}
    patch = {"metadata": {"labels": {"stirred": secrets.token_hex(4)}}}
    world.api.patch("/api/v1/nodes/node-0", json=patch, headers=headers).raise_for_status()
    return world
