"""Nodes that go while bindings to them wait to be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from stromboli.engine import Engine
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until

_NODE = "/api/v1/nodes/n0"
#: attempts to bind that are held: on a busy machine the service loses patience with the first
_ATTEMPTS = 9


def _replace(cluster: Cluster) -> None:
    cluster.delete(_NODE)
    cluster.node("n0", cpu="1")


_WAYS: dict[str, Callable[[Cluster], object]] = {
    "deleted": lambda cluster: cluster.delete(_NODE),
    "replaced": _replace,
    "cordoned": lambda cluster: cluster.patch(_NODE, {"spec": {"unschedulable": True}}),
    "tainted": lambda cluster: cluster.patch(_NODE, {"spec": {"taints": [{"key": "going", "effect": "NoSchedule"}]}}),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", _WAYS)
async def test_bindings_that_are_not_sent_yet_are_decided_anew_with_their_gang(
    cluster: Cluster, start: StartService, way: str
) -> None:
    """All of eight pods are for one node; the first is under way when that goes."""
    cluster.delete("/api/v1/nodes/n1")
    service = await start(lambda text: Engine(), bind_connections=1)
    with cluster.held("POST", "/binding", _ATTEMPTS):
        cluster.gang("train", 8)
        await until(lambda: len(service.state.assumed) == 8)
        cluster.node("n2")
        await until(lambda: "n2" in service.state.nodes.by_name)
        before = service.state.nodes.record("n0")
        _WAYS[way](cluster)
        # One that is replaced is gone for a moment.
        seen = [before] if way == "deleted" else [before, None]
        await until(lambda: service.state.nodes.record("n0") not in seen)
    await until(lambda: cluster.all_bound(8))
    assert Counter(cluster.pods().values()) == {"n0": 1, "n2": 7}
    assert cluster.count("POST", "/binding", 201) == 8
    await until(lambda: service.state.assumed == {})


async def test_a_binding_that_is_tried_again_looks_at_its_node_again(cluster: Cluster, start: StartService) -> None:
    cluster.delete("/api/v1/nodes/n1")
    service = await start()
    with cluster.held("POST", "/binding", _ATTEMPTS, status=503):
        cluster.gang("alone", 1)
        await until(lambda: service.state.assumed != {})
        cluster.node("n2")
        cluster.delete(_NODE)
        await until(lambda: set(service.state.nodes.by_name) == {"n2"})
    await until(lambda: cluster.all_bound(1))
    assert cluster.pods() == {"alone-0": "n2"}
