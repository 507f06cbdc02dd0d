"""The action consolidation in a live service: pods move by being evicted, and their controller makes others."""

from __future__ import annotations

from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import OFFLINE
from tests import builders
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until

POLICY = builders.policy("gang conformance", "predicates nodeorder", actions="enqueue, allocate, consolidation")


async def test_the_pod_that_comes_instead_goes_where_a_place_is_kept(cluster: Cluster, start: StartService) -> None:
    homes = {"old": "n0", "new": "n1"}
    for group, node in homes.items():
        cluster.group(group, 1)
        cluster.pod(f"{group}-0", group, cpu="4", nodeName=node)
    running = "/api/v1/namespaces/default/pods?fieldSelector=status.phase=Running"
    await until(lambda: len(cluster.items(running)) == 2)
    await start(lambda _: Successive(Engine(POLICY), OFFLINE))
    cluster.gang("wants", 1, cpu="6")
    await until(lambda: len(cluster.pods()) == 2)
    [stays] = [group for group in homes if f"{group}-0" in cluster.pods()]
    [moves] = homes.keys() - {stays}
    cluster.pod("again", moves, cpu="4")
    await until(lambda: cluster.all_bound(3))
    assert cluster.pods() == {f"{stays}-0": homes[stays], "again": homes[stays], "wants-0": homes[moves]}
