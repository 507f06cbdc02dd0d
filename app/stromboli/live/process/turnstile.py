"""Shared passes of the event loop: of numerous tasks, each does one step per pass.

The responses to many requests arrive together, and processing each takes a part of a millisecond. In one pass they
would hold up everything else, such as the bindings of another gang, once for each of its steps. With a turnstile a step
of another task waits for one of them only.
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
