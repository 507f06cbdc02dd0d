"""How fast kube-scheduler binds pods of gangs behind their gate, with the extender and alone, and what it asks us.

`python -m tests.e2e.gated_gangs --nodes 1000 --pods 5000 --gang 50` on one control plane after the other, in one run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e import preemption_cost as cost
from tests.e2e.leader_service import LeaderService
from tests.e2e.service import Service
from tests.e2e.world import World, define, pod

GATE = [{"name": "stromboli.io/gang"}]
#: seconds between looks, which cost the API server as much as some pods
_LOOK = 0.25


@contextmanager
def world_of(nodes: int) -> Iterator[World]:
    """A control plane with so many nodes of 32 CPUs, and nothing that schedules."""
    with Cluster(control_plane()) as cluster:
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        world = World(cluster, "default")
        world.nodes(nodes, cpu="32")
        yield world


def pods_per_second(world: World, pods: int, gang: int, *, gated: bool) -> float:
    """Pods bound in each second from the first that was made to the last that was bound."""
    began = time.monotonic()
    for first in range(0, pods, gang):
        group = f"gang-{first // gang}"
        gate = {"schedulingGates": GATE} if gated else {}
        if gated:
            world.group(group, min(gang, pods - first))
        numbers = range(first, min(first + gang, pods))
        world.pods([pod(f"pod-{n}", group if gated else "", scheduler=cost.PROFILE, **gate) for n in numbers])
    eventually(lambda: not world.waits(), 3_600, every=_LOOK)
    return pods / (time.monotonic() - began)


def measure(nodes: int, pods: int, gang: int) -> dict[str, float]:
    """Pods a second alone and with the extender, and how often that was asked for each pod."""
    with world_of(nodes) as world:
        world.cluster.start_scheduler()
        alone = pods_per_second(world, pods, gang, gated=False)
    with world_of(nodes) as world, tempfile.TemporaryDirectory() as folder:
        service = Service(world.cluster.kubeconfig(), Path(folder) / "log").wait_ready()
        leader = LeaderService(service)
        try:
            world.cluster.start_scheduler(cost.advised_by(leader, ignorable=False, httpTimeout="30s"))
            together = pods_per_second(world, pods, gang, gated=True)
        finally:
            leader.close()
            service.end()
    asked = {path.strip("/"): round(count / pods, 2) for path, count in sorted(leader.asked.items())}
    return {"alone": round(alone, 1), "with the extender": round(together, 1), **asked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--gang", type=int, default=50)
    given = parser.parse_args()
    print(json.dumps(measure(given.nodes, given.pods, given.gang)))


if __name__ == "__main__":
    main()
