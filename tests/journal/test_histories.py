"""What was recorded is what happens again, whatever happened and wherever recording began.

`STROMBOLI_HISTORIES=10000` tries more, a quarter as many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from stromboli.engine import SessionResult
from stromboli.framework.cluster.environment import Environment
from stromboli.state.snapshot import Snapshot
from tests.expectations.test_histories import HISTORIES, Histories
from tests.expectations.world import World
from tests.journal.recording import Recording


@dataclass
class RecordedWorld(World):
    """A world whose sessions are on one state, and recorded."""

    recording: Recording = field(init=False)

    def __post_init__(self) -> None:
        self.recording = Recording(self.engine)
        self.engine = Recorded(self.recording)  # type: ignore[assignment]

    def state(self) -> Any:
        self.recording.follow(self.objects())
        return self.recording.state


class Recorded:
    """An engine whose sessions are recorded."""

    def __init__(self, recording: Recording) -> None:
        self._sessions = recording.sessions

    def decide(self, snapshot: Snapshot, *, now: float, environment: Environment) -> SessionResult:
        self._sessions.environment = environment
        return self._sessions.decide(snapshot, now=now)


class RecordedHistories(Histories):
    """Random histories whose sessions are recorded and replayed."""

    make_world = RecordedWorld

    @rule()
    def a_segment_begins(self) -> None:
        self.world.recording.tape.wants_whole = True

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        report = self.world.recording.replayed()
        assert report.difference is None
        assert report.sessions > 1


def test_histories_are_replayed_equal() -> None:
    run_state_machine_as_test(
        RecordedHistories,
        settings=settings(
            max_examples=max(1, HISTORIES // 4), stateful_step_count=8, phases=[Phase.generate], deadline=None
        ),
    )
