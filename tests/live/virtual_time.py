"""An event loop whose clock stands still but for what is slept: waits take no time, and as long as they say."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Clock:
    """Seconds since it was made. What works in a thread may move it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Sequence[tuple[selectors.SelectorKey, int]]:
        found: Sequence[tuple[selectors.SelectorKey, int]] = super().select(None if timeout is None else 0)
        if not found and timeout:
            self._clock.now += timeout
        return found


def run(clock: Clock, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine by a clock."""
    loop = asyncio.SelectorEventLoop(_Selector(clock))
    loop.time = clock  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
