"""Turns sessions that are handed over into frames of segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from stromboli.api.version import version
from stromboli.engine import Engine
from stromboli.framework.cluster.environment import Environment, NodeUsage
from stromboli.journal import redaction, wire
from stromboli.journal.outcome import Outcome, Waiting
from stromboli.journal.redaction import Redaction
from stromboli.journal.remembered import written
from stromboli.journal.whole import Whole
from stromboli.state.refusals import Refusal

#: a segment is full when it has so many times the bytes of what it began with, and at least so many, or such a part of
#: all that is kept: to take the whole state down costs as much as many sessions
_TIMES, _LEAST, _PART = 3, 1 << 20, 8


class Recorded(Struct, frozen=True):
    """A session as it is handed over."""

    now: float
    #: the whole state, when a segment begins with the session
    whole: Whole | None
    happened: list[wire.Change]
    engine: Engine
    #: inputs of the session
    environment: Environment
    #: pods whose eviction was refused, by uid
    refused: Mapping[str, Refusal]
    #: whether that is what the session handed over before left
    follows: bool
    answers: Sequence[wire.Answer]
    #: None when it failed
    outcome: Outcome | None
    failed: str
    took: float


class Writer:
    """Calls `put` with each frame that is full, and whether it begins a segment; `largest` bytes are kept of all."""

    def __init__(
        self,
        run: str,
        scheduler_names: Sequence[str],
        extender_scheduler_names: Sequence[str],
        redaction: Redaction,
        largest: int,
        put: Callable[[bytes, wire.Began | None], None],
    ) -> None:
        self._run = run
        self._names = list(scheduler_names), list(extender_scheduler_names)
        self._redaction = redaction
        self._largest = largest
        self._put = put
        self._segments = 0
        self._has_begun = False
        self._items: list[bytes] = []
        self._size = 0
        #: bytes of the segment so far, and of its beginning
        self._written = self._basis = 0
        self._policy: Engine | None = None
        self._waiting = Waiting()
        self._refused: Mapping[str, Refusal] = {}
        self._node_usage: Mapping[str, NodeUsage] = {}
        self._queue_usage: Mapping[str, Mapping[str, float]] = {}

    @property
    def is_full(self) -> bool:
        """Whether another segment should begin."""
        return self._written > largest_segment(self._basis, self._largest)

    def write(self, session: Recorded) -> None:
        """Write one session, unless it belongs to no segment."""
        if session.whole is not None:
            self._begin(session, session.whole)
        if not self._has_begun:
            return
        first, told = session.whole is not None, session.environment
        outcome = session.outcome
        waiting = self._waiting if outcome is None else outcome.waiting
        entry = wire.Session(
            now=session.now,
            changes=session.happened,
            policy="" if session.engine is self._policy else redaction.policy(session.engine.text),
            remembered=None if first or session.follows else written(told, session.engine.registry),
            node_usage=None if told.node_usage is self._node_usage else dict(told.node_usage),
            queue_usage=None
            if told.queue_usage is self._queue_usage
            else {queue: dict(usage) for queue, usage in told.queue_usage.items()},
            refused=None if session.refused == self._refused else dict(session.refused),
            answers=list(session.answers),
            decisions=b"\x90" if outcome is None else outcome.decided(),
            reasons=waiting.news(self._waiting),
            failed=session.failed,
            took=session.took,
        )
        self._policy, self._waiting, self._refused = session.engine, waiting, session.refused
        self._node_usage, self._queue_usage = told.node_usage, told.queue_usage
        self._add(entry)

    def flush(self) -> None:
        """Write pending entries."""
        if self._items:
            frame = wire.frame(self._items)
            self._items, self._size = [], 0
            self._written += len(frame)
            self._put(frame, None)

    def _begin(self, session: Recorded, whole: Whole) -> None:
        self.flush()
        self._segments += 1
        began = wire.Began(
            self._run,
            self._segments,
            session.now,
            version(),
            *self._names,
            session.engine.compatibility,
        )
        self._has_begun, told = True, session.environment
        layout = whole.layout(written(told, session.engine.registry))
        frame = wire.heading() + wire.frame([wire.item(began), wire.item(layout)])
        self._put(frame, began)
        self._written = len(frame)
        for changes in whole.parts(self._redaction):
            self._add(wire.Part(changes))
        self.flush()
        self._basis = self._written
        self._policy, self._waiting, self._refused = None, Waiting(), {}
        self._node_usage, self._queue_usage = told.node_usage, told.queue_usage

    def _add(self, entry: wire.Entry) -> None:
        item = wire.item(entry)
        self._items.append(item)
        self._size += len(item)
        if self._size >= wire.FULL:
            self.flush()


def largest_segment(basis: int, kept: int) -> int:
    """Bytes of a segment that is full, when it began with `basis` bytes and `kept` are kept of all segments."""
    return max(_LEAST, kept // _PART, _TIMES * basis)
