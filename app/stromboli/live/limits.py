"""Waiting: token buckets and backoff."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable


class TokenBucket:
    """Lets `rate` pass per second, and up to `burst` at once after a pause."""

    __slots__ = ("_burst", "_clock", "_rate", "_tokens", "_updated")

    def __init__(self, rate: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, rate / 10 if burst is None else burst)
        self._tokens = self._burst
        self._clock = clock
        self._updated = clock()

    def take(self) -> float:
        """Take one token now; returns the seconds to wait until it is there."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate) - 1.0
        self._updated = now
        return max(0.0, -self._tokens / self._rate)

    async def wait(self) -> None:
        """Return when a token is there."""
        delay = self.take()
        if delay > 0:
            await asyncio.sleep(delay)


class Backoff:
    """Delays that double from `first` to `limit`, each of them somewhere in its upper half."""

    __slots__ = ("_first", "_limit", "_next")

    def __init__(self, first: float, limit: float) -> None:
        self._first = self._next = first
        self._limit = limit

    def delay(self, at_least: float | None = None) -> float:
        """The next delay in seconds, not shorter than what a server asked for."""
        delay = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._limit, 2 * self._next)
        return max(delay, at_least or 0.0)

    def reset(self) -> None:
        """What was tried has succeeded."""
        self._next = self._first
