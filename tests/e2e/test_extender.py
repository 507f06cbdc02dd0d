"""kube-scheduler places pods of its own, and asks the service which may go where."""

from __future__ import annotations

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
    world.group("whole", 6)
    world.pods([pod(f"whole-{number}", "whole", scheduler=PROFILE) for number in range(5)])
    eventually(lambda: len(world.refused()) == 5)
    # Nothing else happens here, so kube-scheduler asks again only because it is called back.
    world.pods([pod("whole-5", "whole", scheduler=PROFILE)])
    eventually(lambda: world.bound() == {"whole": 6, "": 1})

    world.group("large", 5)
    world.pods([pod(f"large-{number}", "large", scheduler=PROFILE) for number in range(5)])
    eventually(lambda: world.condition("large", "Unschedulable") != {})
    world.nodes(2, cpu="1", prefix="another")
    eventually(lambda: world.bound() == {"whole": 6, "large": 5, "": 1})
    assert service.metric("stromboli_bindings_total", result="bound") == 0
