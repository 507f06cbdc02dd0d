"""Limits of the service's port: size of bodies and headers, number of connections, and time.

`Bounded` wraps the application and limits requests and bodies; `BoundedProtocol` works below it and limits connections,
headers and time. Probes are always answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeAlias

from fastapi import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stromboli.http.origin import from_another_site, on_loopback
from stromboli.live.settings import Settings

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_METRICS = "/metrics"
_EXTENDER = "/"
_PROBES = frozenset(("/healthz", "/readyz"))
#: paths that need no client certificate: kubelets and Prometheus have none
_OPEN = _PROBES | {_METRICS}
#: paths that check tokens, or loopback, themselves
_API = "/api/"
#: a path that writes, and so is not open to all who may ask what a session decided
_BIND = "/bind"
#: seconds that a refused client has for the next part of a body which is discarded
_LINGER = 2.0


class _GoneError(Exception):
    """The client has disconnected."""


class Bounded:
    """An ASGI application that reads bodies up to a limit for another one, and refuses other requests."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.settings = settings
        self._app = app
        #: running requests by lane
        self._running: Counter[str] = Counter()
        #: idle connections, the longest idle first
        self.waiting: dict[BoundedProtocol, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in _PROBES:
            await self._app(scope, receive, send)
        elif from_another_site(scope["headers"]):
            await _refuse(HTTPStatus.FORBIDDEN, "cross-site requests are refused", receive, send, self._most)
        elif not self._may_ask(scope):
            await _refuse(HTTPStatus.FORBIDDEN, "a client certificate is required", receive, send, self._most)
        elif self._running[lane := _lane(scope["path"])] >= self.settings.http_max_requests:
            await _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many concurrent requests", receive, send, self._most)
        else:
            self._running[lane] += 1
            try:
                await self._answer_unless_stopped(scope, receive, send)
            finally:
                self._running[lane] -= 1

    @property
    def _most(self) -> int:
        return self.settings.http_max_body

    def _may_ask(self, scope: Scope) -> bool:
        path = scope["path"]
        if path in _OPEN or path.startswith(_API) or scope["extensions"]["tls"]["client"]:
            return True
        if self.settings.client_ca_file is not None:
            return False
        return path.rstrip("/") != _BIND or on_loopback(Request(scope))

    async def _answer_unless_stopped(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._answer(scope, receive, sent)
        except asyncio.CancelledError:
            # The server stops, and its grace period is over.
            if started:
                raise
            await _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the service is stopping", receive, send, 0)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        try:
            body = await _read(receive, self._most) if int(announced) <= self._most else None
        except _GoneError:
            return
        if body is None:
            problem = f"the body exceeds {self._most} bytes"
            await _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem, receive, send, self._most)
        else:
            await self._app(scope, _replay(body, receive), send)


def _lane(path: str) -> str:
    """The lane of a request, whose limit it shares: long-running questions must not block other requests."""
    return next((lane for lane in (_API, _METRICS) if path.startswith(lane)), _EXTENDER)


async def _read(receive: Receive, most: int) -> bytes | None:
    """The body; None if it exceeds the limit. Raises _GoneError."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Replays a body that was read, and then passes on later messages."""
    left = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return again


async def _refuse(status: HTTPStatus, problem: str, receive: Receive, send: Send, most: int) -> None:
    """Respond at once, then discard up to `most` bytes: a client that is still sending would not read the response.

    One that sends nothing for `_LINGER` seconds has read it.
    """
    text = f"{problem}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
        *([(b"retry-after", b"1")] if status is HTTPStatus.SERVICE_UNAVAILABLE else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": True})
    with suppress(_GoneError):
        if most:
            with suppress(TimeoutError):
                await _read(lambda: asyncio.wait_for(receive(), _LINGER), most)
        await send({"type": "http.response.body"})


class BoundedProtocol(HttpToolsProtocol):
    """A connection. A request has one deadline from its first byte to the first byte of its response, and so has an
    idle connection before its first request."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._bounds: Bounded = config.app
        self._deadline: asyncio.TimerHandle | None = None
        #: bytes of the request's head, and whether it is complete
        self._head = 0
        self._complete = False
        self._refusal = HTTPStatus.BAD_REQUEST

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._bounds.waiting[self] = None
        self._set_deadline()
        if len(self.connections) > self._bounds.settings.http_max_connections:
            next(iter(self._bounds.waiting)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bounds.waiting.pop(self, None)
        self._clear_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._set_deadline()
        super().data_received(data)
        if not self._complete and not self.transport.is_closing():
            # `on_header` has not seen an unterminated header.
            self._count(len(data), refuse=lambda: self.send_400_response(""))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + len(": \r\n"), refuse=_stop)

    def on_headers_complete(self) -> None:
        if self._complete:
            # The queue of pipelined requests would be unbounded.
            _stop()
        self._complete = True
        self._bounds.waiting.pop(self, None)
        certificate = self.transport.get_extra_info("peercert")
        self.scope["extensions"] = {"tls": {"client": bool(certificate)}}
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._head, self._complete = 0, False
        self._bounds.waiting[self] = None
        if not self.flow.write_paused:
            self._clear_deadline()
        super().on_response_complete()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._complete and not self._head:
            # The response has been sent.
            self._clear_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be answered."""
        text = f"{self._refusal.phrase.lower()}\n"
        line = f"HTTP/1.1 {self._refusal.value} {self._refusal.phrase}"
        self.transport.write(
            f"{line}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode(),
        )
        self.transport.close()

    def _count(self, size: int, refuse: Callable[[], None]) -> None:
        self._head += size
        if self._head > self._bounds.settings.http_max_header:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            refuse()

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._bounds.settings.http_timeout, self._expire)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        begun = self._head > 0
        if self._complete:
            begun = self.cycle.more_body and not self.cycle.response_started
        if begun:
            self._refusal = HTTPStatus.REQUEST_TIMEOUT
            self.send_400_response("")
        else:
            self.transport.abort()


def _stop() -> None:
    """Stops the parser on a connection that is then refused."""
    raise ValueError
