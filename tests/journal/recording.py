"""A cluster in memory whose sessions are recorded."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import Environment
from stromboli.journal import Journal, RecordedSessions, Report, Tape, read, replay
from stromboli.journal.wire import Entry
from stromboli.state.cluster import ClusterState, object_key
from tests import builders


class Recording:
    """A state that follows lists of objects, sessions on it, and their journal."""

    def __init__(self, engine: Engine, environment: Environment | None = None, **options: Any) -> None:
        self.state = ClusterState(("stromboli",), reads=builders.READS)
        self.tape = Tape(self.state)
        self.journal = Journal(self.tape, options.pop("largest", 1 << 24), **options)
        self.sessions = RecordedSessions(self.journal, self.tape, engine, environment or Environment())
        self._known: dict[tuple[str, str], Any] = {}

    def follow(self, objs: Iterable[Any]) -> None:
        """Make the cluster one of these objects, by changes as a watch tells them."""
        now = {(type(obj).__name__, object_key(obj)): obj for obj in objs}
        for kind, key in self._known.keys() - now.keys():
            self.state.delete(kind, key)
        for (kind, key), obj in now.items():
            if obj != self._known.get((kind, key)):
                self.state.upsert(kind, obj)
        self._known = now

    def session(self, now: float = builders.NOON) -> SessionResult:
        return self.sessions.decide(self.state.snapshot(), now=now)

    def replayed(self) -> Report:
        return replay(self.entries(), self.sessions.engine.registry)

    def entries(self) -> list[Entry]:
        return list(read("the journal", BytesIO(self.journal.content())))
