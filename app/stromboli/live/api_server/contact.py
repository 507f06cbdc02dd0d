"""Asks the API server regularly whether it is ready: a silent watch does not prove that the connection is dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from stromboli.api.errors import in_words
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube
from stromboli.live.process.logs import Logger

log = Logger(__name__)

#: seconds between two requests, and their timeout
_PERIOD = 5.0


class Contact:
    """Remembers when the API server last answered that it is ready."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._answered = clock()
        self._problem = "no request was sent yet"

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_PERIOD):
                    await self._kube.request("GET", "/readyz")
                self._answered = self._clock()
            except ApiError as error:
                # A 403, or a 404 from a proxy that does not know the path, is an answer too.
                if error.status < 500:
                    self._answered = self._clock()
                else:
                    self._failed(error)
            except CONNECTION_ERRORS as error:
                self._failed(error)
            await asyncio.sleep(_PERIOD)

    def trouble(self, patience: float) -> str:
        """The problem if there was no answer for `patience` seconds, else empty."""
        silent = self._clock() - self._answered
        return "" if silent < patience else f"API server: no answer for {silent:.0f} s: {self._problem}"

    def _failed(self, error: Exception) -> None:
        self._problem = in_words(error)
        log.recurring("the API server is not ready", self._problem)
