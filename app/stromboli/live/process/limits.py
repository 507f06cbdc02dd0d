"""Rate limits and delays: token buckets and backoff."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Hashable


class TokenBucket:
    """Limits to `rate` per second, and to bursts of `burst` after a pause."""

    __slots__ = ("_burst", "_clock", "_rate", "_tokens", "_updated")

    def __init__(self, rate: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, rate / 10 if burst is None else burst)
        self._tokens = self._burst
        self._clock = clock
        self._updated = clock()

    def take(self) -> float:
        """Take one token; returns the seconds to wait until it is available."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate) - 1.0
        self._updated = now
        return max(0.0, -self._tokens / self._rate)

    async def wait(self) -> None:
        """Return when a token is available."""
        delay = self.take()
        if delay > 0:
            await asyncio.sleep(delay)


class Backoff:
    """Delays that double from `first` to `limit`, each randomized within its upper half."""

    __slots__ = ("_first", "_limit", "_next")

    def __init__(self, first: float, limit: float) -> None:
        self._first = self._next = first
        self._limit = limit

    def delay(self, at_least: float | None = None) -> float:
        """The next delay in seconds, at least what the server asked for."""
        delay = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._limit, 2 * self._next)
        return max(delay, at_least or 0.0)

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self._first


class Reluctance:
    """Delays before an object's message is updated, which grow with the number of updates.

    An object that waits for a week is updated a handful of times, however often its numbers change; a new reason is
    written within seconds, unless reasons keep changing.
    """

    __slots__ = ("_clock", "_first", "_told")

    def __init__(self, first: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A new message of an object without earlier ones waits `first` seconds."""
        self._first = first
        self._clock = clock
        #: by object: number of new messages, number of all messages, and time of the last
        self._told: dict[Hashable, tuple[int, int, float]] = {}

    def pause(self, what: Hashable, *, minor: bool) -> float:
        """Seconds until a message may be written; `minor` messages differ from the last one in numbers only."""
        told = self._told.get(what)
        if told is None:
            return _MINOR * self._first if minor else self._first
        new, all_told, last = told
        pause = _MINOR * 4.0 ** (all_told - 1) if minor else 3.0 ** (new - 1)
        return max(self._first, last + pause * self._first - self._clock())

    def told(self, what: Hashable, *, minor: bool) -> None:
        """A message was written."""
        new, all_told, _ = self._told.get(what, (0, 0, 0.0))
        self._told[what] = (new + (not minor), all_told + 1, self._clock())
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]

    def forget(self, what: Hashable) -> None:
        """Treat the object's next message as its first."""
        self._told.pop(what, None)


#: factor by which messages that differ only in numbers wait longer
_MINOR = 60.0
_REMEMBERED = 200_000
