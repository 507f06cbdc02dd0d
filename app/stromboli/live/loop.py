"""The loop of sessions: when one runs, on which snapshot, and how its decisions are handed over.

Everything runs in the event loop except the session, which runs in one thread on a snapshot of its own. Its bindings
are assumed in the state before the next snapshot, so the next session need not wait for them.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from stromboli.api.decisions import Bind, Decision, Evict
from stromboli.api.pod_state import PodState
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger
from stromboli.live.process.whereabouts import whereabouts
from stromboli.live.settings import Settings
from stromboli.policy.queue_rules import QueueRule
from stromboli.state.cluster import ClusterState
from stromboli.state.nodes import NodeRecord
from stromboli.state.snapshot import Snapshot

log = Logger(__name__)

#: the pause after a session when something has changed, as a fraction of the session's duration
_SHARE = 0.25


class Result(Protocol):
    """The result of a session, as far as the loop reads it."""

    @property
    def decisions(self) -> Sequence[Decision]: ...

    @property
    def conclusive(self) -> bool:
        """Whether another session would decide nothing either, until something changes or `again_at` is reached."""
        ...

    @property
    def again_at(self) -> float:
        """Time at which a session may decide differently without other changes, in seconds since the epoch."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether the session ended before all jobs had their turns, so that the next should follow at once."""
        ...

    @property
    def put_off(self) -> Collection[str]:
        """The keys of the jobs that had no turn, so that the statuses from earlier sessions stay valid."""
        ...


class Decider(Protocol):
    """The scheduler as a function of a snapshot and the time in seconds since the epoch."""

    @property
    def queue_rules(self) -> Sequence[QueueRule]:
        """Rules by which workloads get their queue."""

    def decide(self, snapshot: Snapshot, *, now: float) -> Result: ...


class TickLoop:
    """Runs sessions while `allowed` returns true: soon after an urgent change, and at least once per schedule period.

    While nothing changes and there is nothing to decide, no session runs.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider | None,
        carry_out: Callable[[Result, Snapshot], None],
        caught_up: Callable[[], Awaitable[None]],
        observer: Observer,
        settings: Settings,
        *,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`caught_up` returns when the state shows all effects of the last session that it cannot assume.

        No sessions run while `decider` is None.
        """
        self.decider = decider
        self._state = state
        self._carry_out = carry_out
        self._caught_up = caught_up
        self._observer = observer
        self._debounce = settings.debounce
        self._period = settings.schedule_period
        self._allowed = allowed
        self._urgent = asyncio.Event()
        #: whether the next session may decide something
        self._worthwhile = True
        #: when it may although nothing changed, in seconds since the epoch
        self._again = math.inf
        #: whether the last session ended before all jobs had their turns, and whether something changed since
        self._unfinished = self._disturbed = False
        #: start of the current session, None between sessions
        self._began: float | None = None
        #: duration of the last session in seconds, and its end
        self._took = self._ended = 0.0
        #: number of the last session, from 1
        self.number = 0
        #: number of urgent changes so far, and number of those that the last complete session saw
        self._changes, self._known = 0, 0
        self._news = asyncio.Event()
        self._patience = settings.session_patience
        self._thread = ThreadPoolExecutor(1, "session", self._entered)
        self._thread_id = 0

    def wake(self, urgent: bool = True) -> None:
        """Something changed. A change that is not urgent waits for the next period."""
        self._worthwhile = self._disturbed = True
        if urgent:
            self._changes += 1
            self._urgent.set()
        self._tell()

    @property
    def changes(self) -> int:
        """The number of changes so far that may make a pod schedulable."""
        return self._changes

    def knows(self, changes: int) -> bool:
        """Whether a session that saw at least this many of them has ended."""
        return self._known >= changes

    async def news(self) -> None:
        """Return at the next change or end of a session."""
        await self._news.wait()

    def _tell(self) -> None:
        """Wake all tasks that wait for news."""
        if not self._news.is_set():
            self._news.set()
            self._news = asyncio.Event()

    @property
    def session_age(self) -> float:
        """Seconds since the current session began; 0 between sessions."""
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def overdue(self, seconds: float) -> str:
        """Activity of the current session, if it has taken longer than some seconds; else empty."""
        age = self.session_age
        return f"a session has been running for {age:.0f} s, in {whereabouts(self._thread_id)}" if age > seconds else ""

    async def watch(self) -> None:
        """Log the activity of a session that takes long, until cancelled."""
        while True:
            await asyncio.sleep(self._patience)
            if self.session_age > self._patience:
                log.warning("session takes long", session=self.number, at=whereabouts(self._thread_id))

    def _entered(self) -> None:
        self._thread_id = threading.get_ident()

    async def run(self) -> None:
        """Run sessions until cancelled."""
        try:
            while True:
                await self._due()
                worthwhile = self._worthwhile or time.time() >= self._again
                if self.decider is None or not (worthwhile and self._allowed()):
                    continue
                if not await self._tick(self.decider):
                    # The same snapshot would raise again: wait for changes.
                    await asyncio.sleep(self._period)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _due(self) -> None:
        """Return when the next session is due.

        Sessions for jobs that the last one did not reach take at most half the time; changes do not wait for them.
        """
        try:
            async with asyncio.timeout(self._rest(self._took) if self._unfinished else self._period):
                await self._urgent.wait()
        except TimeoutError:
            pass
        else:
            # Under a stream of changes the event loop needs a part of the time to apply them.
            await asyncio.sleep(self._rest(_SHARE * self._took))
        await self._caught_up()
        self._urgent.clear()

    def _rest(self, seconds: float) -> float:
        """The rest of the pause after the last session; the pause lasts from the debounce to the schedule period."""
        return max(self._debounce, min(seconds, self._period) - (time.perf_counter() - self._ended))

    async def _tick(self, decider: Decider) -> bool:
        """Run one session; returns whether it was complete."""
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
        self._ended = time.perf_counter()
        self._took = self._ended - started
        self._again = result.again_at
        if not result.conclusive:
            self._worthwhile = True
        if result.unfinished:
            self._disturbed |= any(isinstance(each, Bind | Evict) for each in result.decisions)
            self._worthwhile = True
        elif self._unfinished and self._disturbed:
            # Jobs whose turns came before a change may be schedulable now.
            self._worthwhile = True
        self._unfinished = result.unfinished
        if self._allowed():
            self._carry_out(result, snapshot)
            # Bindings are sent before anything else is done with the session.
            await asyncio.sleep(0)
        self._observer.session(snapshot, result, now, self._took)
        log.debug("session ended", session=self.number, decisions=len(result.decisions), seconds=f"{self._took:.6f}")
        self._known = changes
        self._tell()
        return True


def still_valid(
    binds: Sequence[Bind], snapshot: Snapshot, state: ClusterState, held: Callable[[str], bool]
) -> tuple[list[Bind], list[Bind]]:
    """Split bindings into those still valid and those stale.

    The cluster has changed since the snapshot. If a pod is deleted, replaced, bound or held back, or its node has
    changed, the bindings of its whole gang are stale: the next session decides anew. So they are if another pod of the
    gang, whose binding was under way, will not be bound.
    """
    stale = {bind.uid for bind in binds if not _stands(bind, snapshot, state, held)}
    stale |= set(_dropped(snapshot, state)).difference(bind.uid for bind in binds)
    if not stale:
        return list(binds), []
    gang_of = {record.uid: record.job or record.uid for record in snapshot.pods.records if record is not None}
    broken = {gang_of[uid] for uid in stale}
    divided: tuple[list[Bind], list[Bind]] = ([], [])
    for bind in binds:
        divided[gang_of[bind.uid] in broken].append(bind)
    return divided


def _dropped(snapshot: Snapshot, state: ClusterState) -> Iterator[str]:
    """The uids of pods that a session saw with an assumed binding, or gave one, and that have none and no node."""
    pods = snapshot.pods
    for row in np.flatnonzero(pods.state == PodState.Binding).tolist():
        record = pods.records[row]
        if record is not None and record.key not in state.assumed:
            now = state.record(record.key)
            if now is None or now.uid != record.uid or not now.node_name:
                yield record.uid


def node_terms(node: NodeRecord | None) -> tuple[object, ...] | None:
    """The properties of a node that a binding relies on besides free resources; None if the node is gone."""
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
