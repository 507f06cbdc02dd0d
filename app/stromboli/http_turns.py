"""Who is answered when: questions that take long are worked out one at a time, and those who ask take turns."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from fastapi import HTTPException, Request

T = TypeVar("T")

#: seconds between two looks at whether the client is still connected
_GLANCE = 0.1
#: nginx's status for a client that has left; it is only seen in logs
_CLIENT_GONE = 499


class Turns:
    """A lock that its users hold in turn, so that many questions of one user delay no other."""

    def __init__(self, most: int = 4) -> None:
        """`most` questions of one user may wait."""
        self._most = most
        self._busy = False
        #: futures of those who wait, by user; the user whose turn is next comes first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Hold the lock. Raises HTTPException when too many questions of the user wait already."""
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
            problem = f"{self._most} questions of yours wait already: ask again when they are answered"
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
        """Let the next user's first question begin; that user's others come after everyone else's next."""
        if not self._waiting:
            self._busy = False
            return
        user = next(iter(self._waiting))
        queue = self._waiting.pop(user)
        queue.popleft().set_result(None)
        if queue:
            self._waiting[user] = queue


async def while_asked(request: Request, work: Callable[[], T], abandon: Callable[[], None]) -> T:
    """What a function that runs in a thread returns; `abandon` is called when the client leaves before that."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        while not (await asyncio.wait([working], timeout=_GLANCE))[0]:
            if await request.is_disconnected():
                raise HTTPException(_CLIENT_GONE, "the client has left")
        return working.result()
    finally:
        if not working.done():
            abandon()
            with suppress(Exception):
                await asyncio.shield(working)
