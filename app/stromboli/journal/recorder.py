"""Hands the inputs and decisions of sessions to a thread that writes them; sessions never wait for it.

When the thread cannot keep up, what waits for it is bounded: sessions are left out, and a new segment begins.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from stromboli.engine import Clock, Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment, ExtenderError, ExtenderTransport
from stromboli.journal import wire
from stromboli.journal.outcome import Outcome
from stromboli.journal.redaction import Redaction
from stromboli.journal.ring import Folder, Ring
from stromboli.journal.tape import Tape
from stromboli.journal.writer import Recorded, Writer
from stromboli.state.snapshot import Snapshot

#: sessions that may wait to be written
_MOST_WAITING = 1_000
#: seconds for which sessions wait for others, for all together are written in less time
_SOON = 1.0


class Journal:
    """The newest sessions of this process, to be replayed."""

    def __init__(
        self,
        tape: Tape,
        largest: int,
        folder: Folder | None = None,
        report: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Keep `largest` bytes in memory.

        `report` is told when the folder cannot be written, which the next segment tries again, and when a session
        cannot, with which recording ends.
        """
        self._tape, state = tape, tape.state
        self._ring = Ring(largest)
        self._folder = folder
        self._report = report
        #: whether the file of the segment is whole so far
        self._filed = False
        self._writer = Writer(
            uuid.uuid4().hex[:12],
            sorted(state.scheduler_names),
            sorted(state.extender_scheduler_names),
            Redaction(state.reads),
            largest,
            self._put,
        )
        self._waiting: deque[Recorded] = deque()
        #: rings when a session waits that is the first, and when a caller waits until all are written
        self._bell: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._works = True
        tape.wants_whole = True

    @property
    def cpu(self) -> float:
        """CPU seconds that writing took so far."""
        ident = self._thread.ident
        return time.clock_gettime(time.pthread_getcpuclockid(ident)) if ident is not None else 0.0

    def record(self, session: Recorded) -> None:
        """Hand a session over."""
        if self._thread.ident is None:
            self._thread.start()
        if not self._works:
            self._tape.rest()
        elif len(self._waiting) >= _MOST_WAITING:
            self._tape.rest()
            self._tape.wants_whole = True
        else:
            self._waiting.append(session)
            if len(self._waiting) == 1:
                self._bell.put(None)

    def content(self) -> bytes:
        """The journal as it is now, empty when there was no session. Waits until sessions handed over are written."""
        self.flush()
        return self._ring.content()

    def flush(self, patience: float = 10.0) -> None:
        """Return when everything handed over is written, or after some seconds."""
        if self._thread.is_alive():
            written = threading.Event()
            self._bell.put(written)
            written.wait(patience)

    def _work(self) -> None:
        while True:
            rung = self._bell.get()
            if rung is None:
                # Woken once for all sessions of a while, for to wake a thread costs as much as to write one of them.
                with suppress(queue.Empty):
                    rung = self._bell.get(timeout=_SOON)
            self._write()
            if rung is not None:
                rung.set()

    def _write(self) -> None:
        try:
            while self._works and self._waiting:
                self._writer.write(self._waiting.popleft())
        except Exception as error:
            # A mistake of ours: that is no reason to schedule nothing.
            self._works = False
            self._report(error)
        self._writer.flush()
        if self._works and self._writer.is_full:
            self._tape.wants_whole = True

    def _put(self, frame: bytes, began: wire.Began | None) -> None:
        self._ring.add(frame, begins=began is not None)
        if self._folder is None or not (self._filed or began):
            return
        try:
            if began is not None:
                self._folder.begin(began)
            self._folder.add(frame)
            self._filed = True
        except OSError as error:
            # What lacks a part is worthless from there on.
            self._filed = False
            self._report(error)


class RecordedSessions(Successive):
    """Sessions one after the other on a state, each of them recorded."""

    def __init__(
        self,
        journal: Journal,
        tape: Tape,
        engine: Engine,
        environment: Environment,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._answers: list[wire.Answer] = []
        if environment.extender is not None:
            environment = replace(environment, extender=_Overheard(environment.extender, self._answers))
        super().__init__(engine, environment, clock)
        self._journal = journal
        self._tape = tape
        #: environment left by the session that was handed over last
        self._left: Environment | None = None

    def _run(self, snapshot: Snapshot, now: float, told: Environment) -> SessionResult:
        self._answers.clear()
        engine, began = self.engine, time.perf_counter()
        try:
            result = super()._run(snapshot, now, told)
        except Exception as error:
            self._record(snapshot, now, engine, told, None, f"{type(error).__name__}: {error}", began)
            raise
        self._record(snapshot, now, engine, told, result, "", began)
        return result

    def _record(
        self,
        snapshot: Snapshot,
        now: float,
        engine: Engine,
        told: Environment,
        result: SessionResult | None,
        failed: str,
        began: float,
    ) -> None:
        took, taken = time.perf_counter() - began, self._tape.take(snapshot)
        if taken is None:
            self._left = None
            return
        whole, happened = taken
        self._journal.record(
            Recorded(
                now=now,
                whole=whole,
                happened=happened,
                engine=engine,
                environment=told,
                refused=snapshot.refused,
                follows=self.environment is self._left,
                answers=self._answers.copy(),
                outcome=None if result is None else Outcome.of(result.session, result.decisions),
                failed=failed,
                took=took,
            )
        )
        self._left = self.environment if result is None else result.environment


class _Overheard:
    """Passes on requests to an extender, and keeps its answers. Sessions ask it in one thread only."""

    def __init__(self, extender: ExtenderTransport, answers: list[wire.Answer]) -> None:
        self._extender = extender
        self._answers = answers

    def post(self, url: str, payload: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
        """The decoded answer to a request. Raises ExtenderError."""
        path = urlsplit(url).path
        try:
            answer = self._extender.post(url, payload, timeout)
        except ExtenderError as error:
            self._answers.append(wire.Answer(path, None, str(error)))
            raise
        self._answers.append(wire.Answer(path, dict(answer)))
        return answer
