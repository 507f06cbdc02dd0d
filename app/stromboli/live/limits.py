"""Waiting: token buckets and backoff."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Hashable


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


class Reluctance:
    """How long a change of what an object says may wait: the longer, the more often it has changed already.

    An object that waits for a week says so a handful of times, however often the numbers change; what is truly new is
    said within seconds, unless that has gone on for a while.
    """

    __slots__ = ("_clock", "_first", "_told")

    def __init__(self, first: float, clock: Callable[[], float] = time.monotonic) -> None:
        """What is new of an object that has said nothing may wait `first` seconds."""
        self._first = first
        self._clock = clock
        #: by object, how often it said something new and something at all, and when it last did
        self._told: dict[Hashable, tuple[int, int, float]] = {}

    def pause(self, what: Hashable, *, minor: bool) -> float:
        """Seconds from now until it may be told; `minor` is what says the same with other numbers."""
        told = self._told.get(what)
        if told is None:
            return _MINOR * self._first if minor else self._first
        new, all_told, last = told
        pause = _MINOR * 4.0 ** (all_told - 1) if minor else 3.0 ** (new - 1)
        return max(self._first, last + pause * self._first - self._clock())

    def told(self, what: Hashable, *, minor: bool) -> None:
        """It was told."""
        new, all_told, _ = self._told.get(what, (0, 0, 0.0))
        self._told[what] = (new + (not minor), all_told + 1, self._clock())
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]

    def forget(self, what: Hashable) -> None:
        """It is over: what comes next is told as the first time."""
        self._told.pop(what, None)


#: what differs only in numbers waits so many times as long as what is new
_MINOR = 60.0
_REMEMBERED = 200_000
