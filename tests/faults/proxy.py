"""Between a service and its API server: passes requests on, but for those that a plan has go wrong."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
from aiohttp import web

from tests.controlplane.cluster import Cluster
from tests.faults.plan import REFUSALS, Plan

#: seconds for which a request that hangs gets no answer
_HANG = 5.0


class FaultProxy:
    """Runs in a thread of its own, for one client."""

    def __init__(self, cluster: Cluster, plan: Plan, kubeconfig: Path) -> None:
        """`kubeconfig` is written: its user is the administrator, its server this proxy."""
        self._target = cluster.url
        self._plan = plan
        self._tls = ssl.create_default_context(cafile=str(cluster.ca_file))
        #: the last answer to each list
        self._lists: dict[str, bytes] = {}
        self._runner: web.ServerRunner | None = None
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._run(self._open())
        config = json.loads(cluster.kubeconfig().read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._port}"}
        kubeconfig.write_text(json.dumps(config))

    def cut(self) -> None:
        """Break all connections, and take no new ones."""
        self._run(self._cut())

    def join(self) -> None:
        """Take connections again."""
        self._run(self._accept())

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        await self._accept()

    async def _accept(self) -> None:
        server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def _cut(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _close(self) -> None:
        await self._cut()
        await self._session.close()

    # -- requests --------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        watch = "watch" in request.query
        fault = self._plan.request(request.method, request.path, watch=watch)
        body = await request.read()
        if fault in ("reset", "hang"):
            await asyncio.sleep(_HANG if fault == "hang" else 0)
            _break(request)
        if fault in REFUSALS:
            return _refused(REFUSALS[fault])
        if fault == "stale list" and request.raw_path in self._lists:
            return web.Response(body=self._lists[request.raw_path], content_type="application/json")
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Content-Length")}
        try:
            async with self._session.request(
                request.method, self._target + request.raw_path, data=body or None, headers=headers
            ) as answer:
                if watch and answer.status == 200:
                    return await self._watch(request, answer, expired=fault == "410")
                return await self._whole(request, answer.status, answer.headers, await answer.read(), fault)
        except aiohttp.ClientError:
            _break(request)

    async def _whole(
        self, request: web.BaseRequest, status: int, headers: Any, content: bytes, fault: str
    ) -> web.StreamResponse:
        if fault == "lost answer":
            _break(request)
        passed = {k: v for k, v in headers.items() if k in ("Content-Type", "Retry-After")}
        if fault == "truncated body":
            response = web.StreamResponse(status=status, headers=passed)
            response.content_length = len(content)
            await response.prepare(request)
            await response.write(content[: len(content) // 2])
            _break(request)
        if status == 200 and "limit" in request.query:
            self._lists[request.raw_path] = content
        return web.Response(status=status, body=content, headers=passed)

    # -- watches ---------------------------------------------------------------------------------------------------

    async def _watch(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, *, expired: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if expired:
            await response.write(_EXPIRED)
            return response
        async for line in self._disturbed(request.path, answer):
            await response.write(line)
        return response

    async def _disturbed(self, path: str, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The lines of a watch, and what becomes of some."""
        async for lines in _chunks(answer):
            while lines:
                line = lines.pop(0)
                fault = self._plan.line(path)
                if fault == "reorder" and lines and _uid(lines[0]) != _uid(line):
                    # Events of one object never overtake each other.
                    yield lines.pop(0)
                if fault == "410":
                    yield _EXPIRED
                if fault == "half a line":
                    yield line[: len(line) // 2]
                if fault in ("410", "half a line", "cut"):
                    return
                yield line
                if fault == "duplicate":
                    yield line


_EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"told to"}}\n'


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
    """The lines that came together."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        yield [line + b"\n" for line in lines]


def _uid(line: bytes) -> str:
    return str(json.loads(line)["object"].get("metadata", {}).get("uid"))


def _refused(status: int) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": "Conflict" if status == 409 else "Fault", "message": "told to"}
    return web.json_response(body, status=status, headers={"Retry-After": "1"} if status == 429 else {})


def _break(request: web.BaseRequest) -> NoReturn:
    """Break the connection of a request, and end its handler as when the client had gone."""
    if request.transport is not None:
        request.transport.abort()
    raise asyncio.CancelledError
