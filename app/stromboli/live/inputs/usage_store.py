"""Keeps the past usage of queues and the run times of past jobs where the next leader finds them.

A ConfigMap beside the Lease, not a file: the next leader may be on another node, and a restarted pod has no disk. It is
read before the first session and written once a minute, so a crash loses a minute at most.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from stromboli.explain.past_runs import PastRuns
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Kube, Object
from stromboli.live.process.limits import Backoff
from stromboli.live.process.logs import Logger
from stromboli.plugins.fairshare.usage import UsageHistory

log = Logger(__name__)

#: seconds between writes
_INTERVAL = 60.0
#: timeout of a read in seconds: first and last
_PATIENCE = (0.5, 8.0)
_USAGE, _RUNS = "usage.json.gz", "runs.json.gz"
#: an API server accepts ConfigMaps of 1 MiB; base64 leaves three quarters of that
_LARGEST = 700_000
#: limit on the uncompressed size
_LONGEST = 64 << 20
#: tolerated clock skew between replicas, in seconds
_AHEAD = 300.0
#: zlib parameter: gzip header and the largest window
_GZIP = 31


class UsageMemory(Protocol):
    """The memory of sessions for the usage of queues."""

    def recall(self) -> UsageHistory | None:
        """The memory that the last session left; None if usage is not tracked."""
        ...

    def remember(self, history: UsageHistory) -> None:
        """The memory for the next session."""
        ...


class UsageStore:
    """Reads and writes the ConfigMap; it is not written while there is nothing to remember."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, memory: UsageMemory, past: PastRuns | None = None
    ) -> None:
        self._kube = kube
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path = f"{self._collection}/{name}"
        self._metadata = {"name": name, "namespace": namespace}
        self._memory = memory
        self._past = past or PastRuns()
        self._written: UsageHistory | None = None
        #: number of runs seen when they were written
        self._runs_written = 0

    async def restore(self) -> None:
        """Read the ConfigMap, retrying until there is an answer; invalid content is ignored."""
        data = await self._read()
        if data is None:
            return
        written = data if isinstance(data, dict) else {}
        if _RUNS in written:
            self._restore("run times of past jobs", written[_RUNS], self._past.restore)
        if _USAGE in written or _RUNS not in written:
            self._restore("usage of queues", written.get(_USAGE), self._restore_usage)
        self._runs_written = self._past.added

    def _restore(self, what: str, content: object, restore: Callable[[object], None]) -> None:
        try:
            restore(_unpacked(content))
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError, zlib.error) as error:
            log.warning(f"stored {what} is invalid, starting from zero", error=f"{error!r:.200}")

    def _restore_usage(self, data: object) -> None:
        history = UsageHistory.from_data(data)
        if history.until > time.time() + _AHEAD:
            raise ValueError("it is dated in the future")
        self._memory.remember(history)

    async def _read(self) -> object:
        """The content of the ConfigMap; None if it is absent or may not be read."""
        backoff, (patience, longest) = Backoff(0.2, 5.0), _PATIENCE
        while True:
            try:
                # The first session of a term waits for this.
                async with asyncio.timeout(patience):
                    return (await self._kube.get(self._path)).get("binaryData") or {}
            except (ApiError, *CONNECTION_ERRORS) as error:
                if isinstance(error, ApiError) and error.status == 404:
                    return None
                log.recurring("usage of queues not read", error)
                if isinstance(error, ApiError) and not error.retriable:
                    return None
            await asyncio.sleep(backoff.delay())
            patience = min(2 * patience, longest)

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self.save()

    async def save(self) -> None:
        """Write changed parts."""
        history, added = self._memory.recall(), self._past.added
        if history is self._written and added == self._runs_written:
            return
        parts: dict[str, Any] = {_USAGE: history, _RUNS: self._past if added else None}
        data, room = {}, _LARGEST
        for key, part in parts.items():
            content = b"" if part is None else await asyncio.to_thread(_packed, part.as_data())
            if len(content) > room:
                log.warning("usage not written: it exceeds the size of a ConfigMap", part=key, bytes=len(content))
            elif content:
                data[key], room = base64.b64encode(content).decode(), room - len(content)
        if not data:
            return
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._metadata, "binaryData": data}
        try:
            await self._write(manifest)
            self._written, self._runs_written = history, added
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.recurring("usage of queues not written", error)

    async def _write(self, manifest: Object) -> None:
        try:
            await self._kube.replace(self._path, manifest)
        except ApiError as error:
            if error.status != 404:
                raise
            await self._kube.create(self._collection, manifest)


def _packed(data: object) -> bytes:
    return gzip.compress(msgspec.json.encode(data), mtime=0)


def _unpacked(content: object) -> object:
    """Raises ValueError, KeyError, TypeError, RecursionError or zlib.error."""
    if not isinstance(content, str):
        raise TypeError(f"{content!r:.99} is not a string")
    unpacking = zlib.decompressobj(wbits=_GZIP)
    written = unpacking.decompress(base64.b64decode(content), _LONGEST)
    if not unpacking.eof:
        raise ValueError("it is truncated or too long")
    return msgspec.json.decode(written)
