"""kube-scheduler beside three replicas of which the leader is killed twice amid bindings."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e import preemption_cost as cost
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.leader_service import LeaderService
from tests.e2e.service import Service
from tests.e2e.test_extender import PROFILE, gated
from tests.e2e.world import Object, World, pod

pytestmark = pytest.mark.e2e

GANGS, MEMBERS, LONE = 8, 6, 40


def submit(world: World, wave: str) -> Counter[str]:
    """Gangs behind the gate, gangs without one and lone pods, all at once, and a gang of each kind that never fits."""
    pods, wanted = [], Counter({"": LONE})
    for number in range(GANGS):
        for kind, make in (("gated", gated), ("plain", plain)):
            name = f"{kind}-{wave}-{number}"
            world.group(name, MEMBERS)
            pods += [make(f"{name}-{at}", name) for at in range(MEMBERS)]
            wanted[name] = MEMBERS
    for kind, make in (("gated", gated), ("plain", plain)):
        name = f"large-{kind}-{wave}"
        world.group(name, 500)
        pods += [make(f"{name}-{at}", name) for at in range(4)]
    world.pods([*pods, *(pod(f"lone-{wave}-{at}", scheduler=PROFILE, cpu="100m") for at in range(LONE))])
    return wanted


def plain(name: str, group: str) -> Object:
    return pod(name, group, scheduler=PROFILE)


def leading(replicas: list[Service]) -> list[Service]:
    """The replicas that lead."""
    return [each for each in replicas if each.metric("stromboli_leading") == 1]


def test_two_leaders_that_are_killed_amid_bindings_bind_nothing_twice(world: World, start: Start, audit: Audit) -> None:
    cluster = world.cluster
    world.nodes(20, cpu="16")
    replicas = [start("--leader-elect", kubeconfig=cluster.kubeconfig(user)) for user in ("admin", "kwok", "admin")]
    service = LeaderService(*replicas)
    cluster.start_scheduler(cost.advised_by(service, ignorable=False, bindVerb="bind"))
    alive, wanted = list(replicas), Counter[str]()
    try:
        for wave in ("a", "b"):
            before = sum(wanted.values())
            wanted += submit(world, wave)
            eventually(lambda: sum(world.bound().values()) > before + 20, 90)  # noqa: B023
            (leader,) = leading(alive)
            assert all(each.http.get("/readyz").is_success for each in alive), "who waits is ready, too"
            leader.end(signal.SIGKILL)
            alive.remove(leader)
            eventually(lambda: len(leading(alive)) == 1, 30)
            assert not any(name.startswith("large") for name in world.bound())
        eventually(lambda: world.bound() == wanted, 180, seen=lambda: wanted - world.bound())
        assert set(audit.accepted(world.namespace).values()) == {1}
        assert not any(name.startswith("large") for name in world.bound())
    finally:
        cluster.stop_scheduler()
        service.close()
