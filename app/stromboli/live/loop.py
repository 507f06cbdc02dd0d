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
from stromboli.state.nodes import NodeRecord
from stromboli.state.snapshot import Snapshot

log = Logger(__name__)


class Result(Protocol):
    """What a session leaves; whatever else it holds is for observers."""

    @property
    def decisions(self) -> Sequence[Decision]: ...

    @property
    def conclusive(self) -> bool:
        """Whether a further session would decide nothing either unless something changes."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether the session ended before all jobs had their turns: the next one should follow at once."""
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
        decider: Decider | None,
        carry_out: Callable[[Sequence[Decision], Snapshot], None],
        caught_up: Callable[[], Awaitable[None]],
        observer: Observer,
        *,
        debounce: float,
        period: float,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`caught_up` returns when all that the last session did, and the state cannot assume, is visible in it.

        There are no sessions while `decider` is None.
        """
        self.decider = decider
        self._state = state
        self._carry_out = carry_out
        self._caught_up = caught_up
        self._observer = observer
        self._debounce = debounce
        self._period = period
        self._allowed = allowed
        self._urgent = asyncio.Event()
        #: whether the next session may decide something
        self._worthwhile = True
        #: whether the last session ended before all jobs had their turns, and what happened while they have them
        self._unfinished = self._disturbed = False
        #: since when a session runs, None while there is none
        self._began: float | None = None
        #: how long the last session took, seconds
        self._took = 0.0
        #: of the last session, counted from 1
        self.number = 0
        #: urgent changes so far, and those that the last session that came to its end knew
        self._changes, self._known = 0, 0
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "session")

    def wake(self, urgent: bool = True) -> None:
        """Something changed. What is not urgent waits for the next period."""
        self._worthwhile = self._disturbed = True
        if urgent:
            self._changes += 1
            self._urgent.set()
        self._tell()

    @property
    def up_to_date(self) -> bool:
        """Whether the last session knew of every change by which a pod may find a place."""
        return self._known == self._changes

    async def news(self) -> None:
        """Return when something changed, or a session ended."""
        await self._news.wait()

    def _tell(self) -> None:
        """Let everybody go on who waits for news."""
        if not self._news.is_set():
            self._news.set()
            self._news = asyncio.Event()

    @property
    def session_age(self) -> float:
        """How long the session that runs has been running, in seconds; 0 while there is none."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    async def run(self) -> None:
        """Run sessions until cancelled."""
        try:
            while True:
                await self._due()
                if self.decider is None or not (self._worthwhile and self._allowed()):
                    continue
                if not await self._tick(self.decider):
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
        await self._caught_up()
        self._urgent.clear()

    async def _tick(self, decider: Decider) -> bool:
        """One session; returns whether it came to its end."""
        self._worthwhile, changes = False, self._changes
        if not self._unfinished:
            self._disturbed = False
        self.number += 1
        self._observer.session_began(self.number)
        began = time.perf_counter()
        snapshot, now, started = self._state.snapshot(), time.time(), time.perf_counter()
        self._observer.snapshot(started - began)
        self._began = started
        try:
            result = await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: decider.decide(snapshot, now=now)
            )
        except Exception as error:
            log.recurring("session failed", error, traced=True, session=self.number)
            self._observer.session_failed(error)
            self._worthwhile = True
            self._unfinished = False
            return False
        finally:
            self._began = None
        self._took = time.perf_counter() - started
        self._observer.session(snapshot, result, now, self._took)
        log.debug("session ended", session=self.number, decisions=len(result.decisions), seconds=f"{self._took:.6f}")
        if not result.conclusive:
            self._worthwhile = True
        if result.unfinished:
            self._disturbed |= bool(result.decisions)
            self._urgent.set()
        elif self._unfinished and self._disturbed:
            # Jobs that had their turns before something changed may find more now.
            self._worthwhile = True
        self._unfinished = result.unfinished
        if self._allowed():
            self._carry_out(result.decisions, snapshot)
        self._known = changes
        self._tell()
        return True


def still_valid(
    binds: Sequence[Bind], snapshot: Snapshot, state: ClusterState, held: Callable[[str], bool]
) -> tuple[list[Bind], list[Bind]]:
    """Divide binds into those that still stand and those that do not.

    The cluster moved on while the session ran on its snapshot. A pod that is gone, has been replaced or bound, or is
    held back, and one whose node is not what it was take the binds of their whole gang with them: the next session
    decides anew.
    """
    stale = {bind.uid for bind in binds if not _stands(bind, snapshot, state, held)}
    if not stale:
        return list(binds), []
    gang_of = {record.uid: record.job or record.uid for record in snapshot.pods.records if record is not None}
    broken = {gang_of[uid] for uid in stale}
    divided: tuple[list[Bind], list[Bind]] = ([], [])
    for bind in binds:
        divided[gang_of[bind.uid] in broken].append(bind)
    return divided


def node_terms(node: NodeRecord | None) -> tuple[object, ...] | None:
    """What a binding to a node relies on beside its room; None when the node is not there."""
    return None if node is None else (node.uid, node.unschedulable, node.is_ready, node.taints)


def _stands(bind: Bind, snapshot: Snapshot, state: ClusterState, held: Callable[[str], bool]) -> bool:
    key = bind.key
    record = state.record(key)
    return (
        record is not None
        and record.uid == bind.uid
        and not record.node_name
        and (now := node_terms(state.nodes.record(bind.node))) is not None
        and now == node_terms(snapshot.nodes.facts.record(bind.node))
        and key not in state.assumed
        and not held(key)
    )
