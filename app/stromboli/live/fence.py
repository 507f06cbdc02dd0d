"""Keeps a leader from writing once another may lead.

A process can stand still at any instruction, for seconds, and go on without knowing. So whether the lease is still
ours is asked last: when the bytes of a request are about to leave, on the lease's clock, which goes on meanwhile. A
request that was sent is given up when the lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from stromboli.live.client import CONNECTION_ERRORS, Credentials, Kube, NotSentError


class FencedKube(Kube):
    """Requests of a leader. Those that change the cluster raise NotSentError when its time is over; reads do not."""

    def __init__(self, credentials: Credentials, connections: int = 0, *, remaining: Callable[[], float]) -> None:
        """`remaining` are the seconds for which this replica certainly leads, none or less when it may not write."""
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
        """As `Kube.request`."""
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
            raise NotSentError("the lease may be another's")
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
