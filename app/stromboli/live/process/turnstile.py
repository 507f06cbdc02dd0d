"""Shared passes of the event loop: numerous tasks do their work one in each pass.

The answers to many requests come together, and what is done with each takes a part of a millisecond. Done in one pass
they would hold up everything else, such as the bindings of another gang, once for each step that this takes. Behind a
turnstile a step of others waits for one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """Lets one task continue in each pass of the event loop, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: whether a task went on in this pass
        self._closed = False

    async def wait(self) -> None:
        """Return in a pass of the event loop in which no other task has gone on."""
        loop = asyncio.get_running_loop()
        if self._closed:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._closed = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        """Let the next task that still waits continue."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._closed = False
