"""The tick: when a session runs, on what, and what becomes of its decisions.

Everything here runs in the event loop but the session itself, which runs in one thread on a snapshot that nobody else
touches. Its binds are assumed in the state before the next snapshot is taken, so the next session need not wait until
they are carried out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from stromboli.api.decisions import Bind, Decision
from stromboli.live.logs import Logger
from stromboli.live.observer import Observer
from stromboli.state.cluster import ClusterState
from stromboli.state.snapshot import Snapshot

log = Logger(__name__)


class Result(Protocol):
    """What a session leaves; whatever else it holds is for observers."""

    @property
    def decisions(self) -> Sequence[Decision]: ...

    @property
    def settled(self) -> bool:
        """Whether a further session would decide nothing either unless something changes."""
        ...


class Decider(Protocol):
    """The scheduler as a function of a snapshot and the time in seconds since the epoch."""

    def decide(self, snapshot: Snapshot, *, now: float) -> Result: ...


class TickLoop:
    """Runs sessions while `allowed` says so: soon after an urgent change, and at least each `period` seconds.

    While nothing changes and there is nothing to decide, there is none.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        carry_out: Callable[[Sequence[Decision], Snapshot], None],
        settled: Callable[[], Awaitable[None]],
        observer: Observer,
        *,
        debounce: float,
        period: float,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`settled` returns when all that the last session did, and the state cannot assume, is visible in it."""
        self.decider = decider
        self._state = state
        self._carry_out = carry_out
        self._settled = settled
        self._observer = observer
        self._debounce = debounce
        self._period = period
        self._allowed = allowed
        self._urgent = asyncio.Event()
        #: whether the next session may decide something
        self._worthwhile = True
        #: how long the last session took, seconds
        self._took = 0.0
        self._thread = ThreadPoolExecutor(1, "session")

    def wake(self, urgent: bool = True) -> None:
        """Something changed. What is not urgent waits for the next period."""
        self._worthwhile = True
        if urgent:
            self._urgent.set()

    async def run(self) -> None:
        """Run sessions until cancelled."""
        try:
            while True:
                await self._due()
                if self._worthwhile and self._allowed() and not await self._tick():
                    # The same snapshot would raise again: leave it time to change.
                    await asyncio.sleep(self._period)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _due(self) -> None:
        try:
            async with asyncio.timeout(self._period):
                await self._urgent.wait()
        except TimeoutError:
            pass
        else:
            # A stream of changes gets at most half of the time: the event loop needs the rest to take them in.
            await asyncio.sleep(max(self._debounce, min(self._took, self._period)))
        await self._settled()
        self._urgent.clear()

    async def _tick(self) -> bool:
        """One session; returns whether it came to its end."""
        self._worthwhile = False
        began = time.perf_counter()
        snapshot, now, started = self._state.snapshot(), time.time(), time.perf_counter()
        self._observer.snapshot(started - began)
        decide = self.decider.decide
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, lambda: decide(snapshot, now=now))
        except Exception as error:
            log.exception("session failed", error)
            self._observer.session_failed(error)
            self._worthwhile = True
            return False
        self._took = time.perf_counter() - started
        self._observer.session(snapshot, result, now, self._took)
        if not result.settled:
            self._worthwhile = True
        if self._allowed():
            self._carry_out(result.decisions, snapshot)
        return True


def still_valid(
    binds: Sequence[Bind], snapshot: Snapshot, state: ClusterState, held: Callable[[str], bool]
) -> tuple[list[Bind], list[Bind]]:
    """Divide binds into those that still stand and those that do not.

    The cluster moved on while the session ran on its snapshot. A pod that is gone, has been replaced or bound, or is
    held back, and one whose node is gone take the binds of their whole gang with them: the next session decides anew.
    """
    stale = {bind.uid for bind in binds if not _stands(bind, state, held)}
    if not stale:
        return list(binds), []
    gang_of = {record.uid: record.job or record.uid for record in snapshot.pods.records if record is not None}
    broken = {gang_of[uid] for uid in stale}
    divided: tuple[list[Bind], list[Bind]] = ([], [])
    for bind in binds:
        divided[gang_of[bind.uid] in broken].append(bind)
    return divided


def _stands(bind: Bind, state: ClusterState, held: Callable[[str], bool]) -> bool:
    key = f"{bind.namespace}/{bind.name}"
    record = state.record(key)
    return (
        record is not None
        and record.uid == bind.uid
        and not record.node_name
        and bind.node in state.nodes.by_name
        and key not in state.assumed
        and not held(key)
    )
