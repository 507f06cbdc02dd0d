"""Keeps a leader from writing once another replica may lead.

A process can be paused at any instruction for seconds without noticing. So the lease is checked last, when the bytes of
a request are about to be sent, on a clock that keeps running while the process is paused. A request in flight is
abandoned when the lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from stromboli.live.api_server.client import CONNECTION_ERRORS, Credentials, Kube, NotSentError


class FencedKube(Kube):
    """Requests of a leader. Writes raise NotSentError once the lease has expired; reads do not."""

    def __init__(self, credentials: Credentials, connections: int = 0, *, remaining: Callable[[], float]) -> None:
        """`remaining` returns the seconds for which this replica certainly leads; at most 0 when it may not write."""
        super().__init__(credentials, connections)
        self._remaining = remaining

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | aiohttp.Payload | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """Like `Kube.request`, but writes are only sent while the lease lasts, else NotSentError is raised."""
        if method == "GET":
            return await super().request(method, path, body, content_type, params)
        fenced = _FencedBody(body if isinstance(body, bytes) else b"", self._check)
        try:
            async with asyncio.timeout(self._check()):
                return await super().request(method, path, fenced, content_type, params)
        except CONNECTION_ERRORS as error:
            if fenced.refused:
                raise NotSentError(str(error.__cause__)) from None
            raise

    def _check(self) -> float:
        """The seconds that are left. Raises NotSentError when there are none."""
        remaining = self._remaining()
        if remaining <= 0:
            raise NotSentError("another replica may hold the lease")
        return remaining


class _FencedBody(aiohttp.BytesPayload):
    """A body that looks once more whether it may be sent, when it is written to an open connection."""

    def __init__(self, content: bytes, check: Callable[[], object]) -> None:
        super().__init__(content)
        self._check = check
        self.refused = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        try:
            self._check()
        except NotSentError:
            self.refused = True
            raise
        await super().write_with_length(writer, content_length)
