"""Fair queueing of expensive requests: one is processed at a time, and users take turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from fastapi import HTTPException, Request

T = TypeVar("T")

#: seconds between checks whether the client is still connected
_GLANCE = 0.1
#: nginx's status for a client that has disconnected; it is visible in logs only
_CLIENT_GONE = 499


class Turns:
    """A lock that users hold in turn, so that many requests of one user do not delay others."""

    def __init__(self, most: int = 4) -> None:
        """`most` requests of one user may wait."""
        self._most = most
        self._busy = False
        #: waiting futures by user, the next user first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Hold the lock. Raises HTTPException if too many requests of the user are waiting."""
        if self._busy:
            await self._wait(user)
        self._busy = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, user: str) -> None:
        queue = self._waiting.setdefault(user, deque())
        if len(queue) >= self._most:
            problem = f"{self._most} of your requests are waiting already: retry when they are answered"
            raise HTTPException(429, problem, {"Retry-After": "1"})
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._pass_on()
            else:
                self._forget(user, place)
            raise

    def _forget(self, user: str, place: asyncio.Future[None]) -> None:
        with suppress(KeyError, ValueError):
            self._waiting[user].remove(place)
            if not self._waiting[user]:
                del self._waiting[user]

    def _pass_on(self) -> None:
        """Pass the lock to the next user's first request; the user's other requests go to the end."""
        if not self._waiting:
            self._busy = False
            return
        user = next(iter(self._waiting))
        queue = self._waiting.pop(user)
        queue.popleft().set_result(None)
        if queue:
            self._waiting[user] = queue


async def while_asked(request: Request, work: Callable[[], T], abandon: Callable[[], None]) -> T:
    """The result of a function in a thread; `abandon` is called if the client disconnects before."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        while not (await asyncio.wait([working], timeout=_GLANCE))[0]:
            if await request.is_disconnected():
                raise HTTPException(_CLIENT_GONE, "the client has disconnected")
        return working.result()
    finally:
        if not working.done():
            abandon()
            with suppress(Exception):
                await asyncio.shield(working)
