"""The API server or the service dies at the worst moment; nothing is lost and nothing is done twice."""

from __future__ import annotations

import signal

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.watch import PodWatch
from tests.e2e.world import World

pytestmark = pytest.mark.e2e


def test_the_api_server_is_killed_while_pods_are_being_bound(world: World, start: Start, audit: Audit) -> None:
    world.nodes(30, cpu="10")
    service = start("--binds-per-second", "100")
    with PodWatch(world.cluster, world.namespace) as watch:
        world.gang("before", 100)
        watch.wait_bound(30)
        world.cluster.stop_apiserver(signal.SIGKILL)
        assert len(watch.bound) < 100, "the gang was bound before the API server was killed"
        world.cluster.start_apiserver()
        watch.wait_bound(100)
        world.gang("after", 100)
        watch.wait_bound(200)

    assert world.bound() == {"before": 100, "after": 100}
    assert watch.moved == []
    assert max(audit.accepted(world.namespace).values()) == 1
    assert service.running
    assert service.http.get("/healthz").is_success
    eventually(lambda: world.group_status("before").get("running") == 100)


@pytest.mark.parametrize("room", [100, 99], ids=["for all", "but for ten pods"])
def test_the_service_is_killed_amid_a_gang(world: World, start: Start, audit: Audit, room: int) -> None:
    """The next one completes the gang that it finds begun, whatever else would fit in its stead."""
    world.nodes(room, cpu="10")
    for number in range(10):
        world.gang(f"gang-{number}", 100)
    expected = [0] * (10 - room // 10) + [100] * (room // 10)
    with PodWatch(world.cluster, world.namespace) as watch:
        first = start("--binds-per-second", "250", wait=False)
        watch.wait_bound(350)
        first.end(signal.SIGKILL)
        assert [gang for gang, pods in watch.gangs().items() if 0 < pods < 100], "it was killed between two gangs"

        start()
        watch.wait(lambda: sorted(watch.gangs().values()) == expected, 60)
        waiting = [gang for gang, pods in watch.gangs().items() if not pods]
        eventually(lambda: all(world.condition(gang, "Unschedulable") for gang in waiting))

    assert sorted(watch.gangs().values()) == expected
    assert watch.moved == []
    assert max(audit.accepted(world.namespace).values()) == 1
