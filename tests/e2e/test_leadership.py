"""Two replicas, of which the leader is stopped or killed in the middle of its bindings."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.service import Service
from tests.e2e.watch import PodWatch
from tests.e2e.world import World

pytestmark = pytest.mark.e2e

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/stromboli"


@pytest.fixture
def pair(world: World, start: Start) -> tuple[Service, Service]:
    """A leader and its successor, which are told apart by their users."""
    arguments = ("--leader-elect", "--binds-per-second", "20")
    leader = start(*arguments)
    return leader, start(*arguments, kubeconfig=world.cluster.kubeconfig("kwok"))


@contextmanager
def gangs_amid_their_bindings(world: World) -> Iterator[PodWatch]:
    """Ten gangs of twenty fill the nodes: some pods are bound when it begins, and all when it ends."""
    world.nodes(20, cpu="10")
    with PodWatch(world.cluster, world.namespace) as watch:
        for number in range(10):
            world.gang(f"gang-{number}", 20)
        watch.wait_bound(30)
        yield watch
        watch.wait_bound(200)


def test_a_leader_that_stood_still_writes_nothing_once_another_leads(
    world: World, pair: tuple[Service, Service], audit: Audit
) -> None:
    """The leader is stopped amid its bindings and goes on amid its successor's."""
    leader, successor = pair
    with gangs_amid_their_bindings(world) as watch:
        os.kill(leader.pid, signal.SIGSTOP)
        stopped = len(watch.bound)
        assert stopped < 150, "too many were bound before the leader was stopped"
        watch.wait_bound(stopped + 40)
        resumed = datetime.now(UTC)
        os.kill(leader.pid, signal.SIGCONT)

    eventually(lambda: not leader.running)
    assert [write for write in audit.writes("admin", "stromboli") if write.received > resumed] == []
    assert world.bound() == {f"gang-{number}": 20 for number in range(10)}
    assert set(Counter(world.placed().values()).values()) == {10}
    assert max(audit.accepted(world.namespace).values()) == 1
    assert successor.running
    assert "LeadershipLost" in leader.text or "lease default/stromboli" in leader.text


def test_a_leader_that_was_killed_is_succeeded_within_eight_seconds(
    world: World, pair: tuple[Service, Service], audit: Audit
) -> None:
    leader, _ = pair
    with gangs_amid_their_bindings(world) as watch:
        leader.end(signal.SIGKILL)
        last, first = datetime.fromisoformat(world.get(_LEASE)["spec"]["renewTime"]), len(watch.bound)

    taken = datetime.fromisoformat(world.get(_LEASE)["spec"]["acquireTime"])
    writes = audit.writes("kwok", "stromboli")
    bound = min(w.received for w in writes if w.path.startswith(f"/api/v1/namespaces/{world.namespace}/pods/"))
    print(f"\nleases end {(taken - last).total_seconds():.1f} s after a kill, bindings go on after {bound - last}")
    assert first < 200, "all was bound before the leader was killed"
    assert (bound - last).total_seconds() < 8
    assert max(audit.accepted(world.namespace).values()) == 1
