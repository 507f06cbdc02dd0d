"""Pods whose scheduling gate waits for room in their queue."""

from __future__ import annotations

from stromboli.engine import Engine
from stromboli.state.pods import QUEUE_GATE
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import StartService, until

GROUP = "scheduling.k8s.io/group-name"


def gates(cluster: Cluster) -> dict[str, int]:
    """The number of gates of each pod."""
    pods = cluster.items("/api/v1/pods")
    return {pod["metadata"]["name"]: len(pod["spec"].get("schedulingGates") or ()) for pod in pods}


async def test_gates_are_lifted_one_by_one_as_the_queue_has_room(cluster: Cluster, start: StartService) -> None:
    queue = {"metadata": {"name": "small"}, "spec": {"weight": 1, "capability": {"cpu": "2"}}}
    cluster.create(f"{SCHEDULING}/queues", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **queue})
    cluster.group("job", 1, "small")
    for number in range(4):
        annotations = {GROUP: "job", QUEUE_GATE: "true"}
        held = [{"name": QUEUE_GATE}, *([{"name": "example.com/wait"}] if number == 3 else [])]
        cluster.pod(f"job-{number}", "job", metadata={"annotations": annotations}, schedulingGates=held)
    await start(lambda text: Engine())
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
    running = [name for name, node in cluster.pods().items() if node]
    assert sorted(gates(cluster).values()) == [0, 0, 1, 2]
    cluster.delete(f"/api/v1/namespaces/default/pods/{running[0]}")
    await until(lambda: sorted(gates(cluster).values()) == [0, 0, 2])
    await until(lambda: sum(map(bool, cluster.pods().values())) == 2)
