"""When sessions run, by a clock of their own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from stromboli.live import loop as loops
from stromboli.live.loop import TickLoop
from stromboli.live.observer import Observer
from stromboli.live.settings import Settings
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.cluster import ClusterState
from stromboli.state.snapshot import Snapshot
from tests.live.first_fit import Decisions
from tests.live.virtual_time import Clock, run

TOOK = 0.4


class Slow:
    """Sessions of 0.4 s that reach no end; `then` is called in each, with its number."""

    queue_rules: Sequence[QueueRule] = ()

    def __init__(self, clock: Clock, unfinished: bool, again_at: float) -> None:
        self._clock = clock
        self._unfinished, self._again_at = unfinished, again_at
        self.then: Callable[[int], None] = lambda number: None
        #: when each began and ended
        self.sessions: list[tuple[float, float]] = []

    def decide(self, snapshot: Snapshot, *, now: float) -> Decisions:
        began = self._clock.now
        self._clock.now += TOOK
        self.sessions.append((began, self._clock.now))
        self.then(len(self.sessions))
        return Decisions([], not self._unfinished, self._again_at, self._unfinished)

    @property
    def pauses(self) -> list[float]:
        """Between the end of each session and the beginning of the next."""
        return [round(following[0] - session[1], 3) for session, following in pairwise(self.sessions)]


def sessions(
    monkeypatch: pytest.MonkeyPatch, unfinished: bool, count: int, changes_in: set[int], again_at: float = math.inf
) -> Slow:
    """Sessions that follow a change, with another change in some of them, by number."""
    clock = Clock()
    monkeypatch.setattr(loops.time, "perf_counter", clock)
    slow = Slow(clock, unfinished, again_at)

    async def caught_up() -> None: ...

    async def work() -> None:
        ticks = TickLoop(ClusterState(("stromboli",)), slow, lambda *_: None, caught_up, Observer(), Settings())
        running = asyncio.get_running_loop()

        def then(number: int) -> None:
            if number in changes_in:
                running.call_soon_threadsafe(ticks.wake)

        slow.then = then
        ticks.wake()
        task = asyncio.create_task(ticks.run())
        while len(slow.sessions) < count:
            await ticks.news()
        task.cancel()

    run(clock, work())
    return slow


def test_jobs_that_were_not_reached_take_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions(monkeypatch, True, 4, set()).pauses == [TOOK] * 3


def test_a_change_does_not_wait_for_jobs_that_were_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions(monkeypatch, True, 4, {2}).pauses == [TOOK, TOOK / 4, TOOK]


def test_a_stream_of_changes_leaves_time_to_apply_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions(monkeypatch, False, 4, {1, 2, 3}).pauses == [TOOK / 4] * 3


def test_a_session_that_time_alone_may_change_is_repeated_when_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = sessions(monkeypatch, False, 3, set(), again_at=0.0)
    assert all(pause >= Settings().schedule_period - TOOK for pause in slow.pauses)


def test_bindings_are_sent_before_a_session_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = Clock(), list[str]()
    monkeypatch.setattr(loops.time, "perf_counter", clock)

    class Watcher(Observer):
        def session(self, *_: object) -> None:
            done.append("observed")

    def carry_out(*_: object) -> None:
        asyncio.get_running_loop().call_soon(done.append, "sent")

    async def caught_up() -> None: ...

    async def work() -> None:
        slow = Slow(clock, unfinished=False, again_at=math.inf)
        ticks = TickLoop(ClusterState(("stromboli",)), slow, carry_out, caught_up, Watcher(), Settings())
        ticks.wake()
        task = asyncio.create_task(ticks.run())
        while not ticks.knows(ticks.changes):
            await ticks.news()
        task.cancel()

    run(clock, work())
    assert done == ["sent", "observed"]
