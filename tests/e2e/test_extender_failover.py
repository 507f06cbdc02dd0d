"""A leader that goes at the worst moment: kube-scheduler asks about a pod of a gang, and others are still to come."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e import preemption_cost as cost
from tests.e2e.conftest import Start
from tests.e2e.leader_service import LeaderService
from tests.e2e.service import Service
from tests.e2e.test_extender import PROFILE, gated
from tests.e2e.world import World, pod

pytestmark = pytest.mark.e2e


class Struck(LeaderService):
    """The Service of two replicas, of which the leader is struck when it is asked something for the n-th time.

    It is struck before it is asked, or `after` it has answered, and that answer is lost.
    """

    def __init__(self, *replicas: Service, path: str, number: int, after: bool, strike: Callable[[], None]) -> None:
        super().__init__(*replicas)
        self._replicas = replicas
        self._moment, self._after, self._strike = (path, number), after, strike
        self._asked, self._lock = 0, Lock()
        self.struck = False

    def wake(self) -> None:
        """Let a leader go on that was frozen."""
        for replica in self._replicas:
            if replica.running:
                os.kill(replica.pid, signal.SIGCONT)

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        with self._lock:
            self._asked += path == self._moment[0]
            now = not self.struck and (path, self._asked) == self._moment
            self.struck |= now
        if now and not self._after:
            self._strike()
        found = super().answer(path, body)
        if now and self._after:
            self._strike()
            return 503, b""
        return found


@pytest.fixture
def ranked(world: World) -> Iterator[World]:
    """An empty cluster with two priority classes, in which the test starts kube-scheduler."""
    with world.priority_classes(gives=1, takes=1_000):
        yield world
        world.cluster.stop_scheduler()


def struck(world: World, start: Start, how: signal.Signals, *, after: bool, path: str, number: int) -> Struck:
    """Two replicas and kube-scheduler, whose leader gets a signal at a moment."""
    cluster = world.cluster
    first = start("--leader-elect", kubeconfig=cluster.kubeconfig())
    second = start("--leader-elect", kubeconfig=cluster.kubeconfig("kwok"))
    leader = Struck(first, second, path=path, number=number, after=after, strike=lambda: os.kill(first.pid, how))
    form: dict[str, Any] = {"ignorable": False, "bindVerb": "bind"}
    cluster.start_scheduler(cost.advised_by(leader, **form), "--pod-max-in-unschedulable-pods-duration=1s")
    eventually(lambda: first.metric("stromboli_leading") == 1)
    return leader


HOW = pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
MOMENTS = pytest.mark.parametrize(
    ("path", "number", "after"),
    [
        pytest.param("/filter", 1, False, id="between gates and binds"),
        pytest.param("/bind", 2, False, id="between two binds"),
        pytest.param("/bind", 2, True, id="a bind whose answer is lost"),
    ],
)


@HOW
@MOMENTS
def test_a_gang_is_bound_whole_whenever_its_leader_goes(
    ranked: World, start: Start, how: signal.Signals, path: str, number: int, after: bool
) -> None:
    world = ranked
    world.nodes(4, cpu="2")
    leader = struck(world, start, how, after=after, path=path, number=number)
    for name, size in (("small", 4), ("rest", 4), ("large", 9)):
        world.group(name, size)
        world.pods([gated(f"{name}-{at}", name) for at in range(size)])
    eventually(lambda: leader.struck)
    eventually(lambda: world.bound() == {"small": 4, "rest": 4}, 90, world.placed)
    placed = world.placed()
    leader.wake()
    time.sleep(3)
    # A leader that was frozen does nothing more of what it had in mind, and no pod was bound beside another's place.
    assert world.placed() == placed
    assert max(list(placed.values()).count(node) for node in placed.values()) == 2
    leader.close()


@HOW
@pytest.mark.parametrize("after", [False, True])
def test_no_gang_is_broken_for_an_urgent_pod_while_its_leader_goes(
    ranked: World, start: Start, how: signal.Signals, after: bool
) -> None:
    """The leader goes while kube-scheduler asks which pods it may evict."""
    world = ranked
    world.nodes(2, cpu="4")
    leader = struck(world, start, how, after=after, path="/preempt", number=1)
    for name, least, size in (("whole", 4, 4), ("elastic", 3, 4)):
        world.group(name, least, priorityClassName="gives")
        world.pods([pod(f"{name}-{at}", name, scheduler=PROFILE, priorityClassName="gives") for at in range(size)])
    eventually(lambda: world.bound() == {"whole": 4, "elastic": 4}, 60)
    world.group("urgent", 1, priorityClassName="takes")
    world.pods([pod("urgent", "urgent", scheduler=PROFILE, priorityClassName="takes")])
    eventually(lambda: leader.struck, 60)
    eventually(lambda: world.bound() == {"whole": 4, "elastic": 3, "urgent": 1}, 90, world.placed)
    leader.wake()
    time.sleep(3)
    assert world.bound() == {"whole": 4, "elastic": 3, "urgent": 1}
    leader.close()
