"""Collections of garbage between sessions, by a clock of their own."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from stromboli.live.process.garbage import Garbage
from tests.live.virtual_time import Clock, run


class Cycle:
    """What only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def full() -> Iterator[list[Any]]:
    """The full collections so far."""
    found, before = list[Any](), gc.get_threshold()

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            found.append(info)

    gc.callbacks.append(count)
    yield found
    gc.callbacks.remove(count)
    gc.unfreeze()
    gc.freeze()
    gc.set_threshold(*before)


def some() -> list[list[int]]:
    """As many objects as make a full collection worth while in a pause."""
    return [[at] for at in range(150_000)]


def test_everything_is_collected_in_a_pause_and_not_while_sessions_follow_each_other(full: list[Any]) -> None:
    async def work() -> None:
        garbage, kept = Garbage(), list[Any]()
        garbage.session_ended(bound=False)
        garbage.session_began()
        kept.append(some())
        # A session that takes longer than a pause.
        await asyncio.sleep(10)
        garbage.session_ended(bound=False)
        assert not full
        await asyncio.sleep(10)
        assert len(full) == 1
        # What comes without a session is of questions.
        kept.append(some())
        await asyncio.sleep(10)
        assert len(full) == 2

    run(Clock(), work())


def test_garbage_is_collected_in_the_end_where_there_is_no_pause_and_later_while_bindings_are_sent(
    full: list[Any],
) -> None:
    async def work(bound: bool) -> int:
        garbage, kept, before = Garbage(), list[Any](), len(full)
        garbage.session_ended(bound)
        while len(full) == before and len(kept) < 20:
            kept.append(some())
            garbage.session_began()
            garbage.session_ended(bound)
        assert len(full) > before
        return len(kept)

    assert run(Clock(), work(bound=False)) < run(Clock(), work(bound=True))


@pytest.mark.exhaustive
def test_what_was_frozen_is_freed_in_the_end(full: list[Any]) -> None:
    async def work() -> None:
        garbage, kept = Garbage(), list[Any]()
        garbage.session_ended(bound=False)
        session: Cycle | None = Cycle()
        gone = weakref.ref(session)
        for _ in range(8):
            garbage.session_ended(bound=False)
            kept.append(some())
            # What other tests have left is frozen, too, and it is not worth while for less than a part of that.
            lacking = gc.get_freeze_count() // 8 - len(gc.get_objects())
            kept.append([[at] for at in range(lacking + 1)])
            await asyncio.sleep(10)
            session = None
        assert gone() is None

    run(Clock(), work())
