"""The HTTP side of the service: probes, metrics and the extender of kube-scheduler, in one application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Iterator, Sequence

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from stromboli.extender import Extender, Published, extender_routes

#: how long requests that are being answered may take when the server stops, in seconds
_GRACE = 2


def make_app(
    published: Callable[[], Published | None],
    metrics: CollectorRegistry,
    ready: Callable[[], Sequence[str]],
    *,
    healthy: Callable[[], bool] = lambda: True,
    scheduler_names: Collection[str] = ("stromboli",),
    extender_scheduler_names: Collection[str] = (),
) -> FastAPI:
    """The application.

    `published` gives what the last session left; `ready` names what the service still waits for, and nothing when it
    is ready; `healthy` says whether all that should run runs.
    """
    app = FastAPI(title="Stromboli", docs_url=None, redoc_url=None)
    app.include_router(extender_routes(Extender(published, scheduler_names, extender_scheduler_names)))

    @app.get("/healthz", tags=["probes"])
    async def healthz() -> PlainTextResponse:
        """Answered by the loop that does all the work: whoever gets no answer knows that it is stuck."""
        return PlainTextResponse("ok\n") if healthy() else PlainTextResponse("a part has ended\n", 503)

    @app.get("/readyz", tags=["probes"])
    async def readyz() -> PlainTextResponse:
        missing = ready()
        return PlainTextResponse("".join(f"{line}\n" for line in missing) or "ok\n", 503 if missing else 200)

    # Not async: a scrape counts the pods of a whole session, in a thread of its own.
    @app.get("/metrics", tags=["metrics"])
    def scrape() -> Response:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return app


def listen(address: str) -> socket.socket:
    """A listening socket for `HOST:PORT`, `[IPv6]:PORT` or `:PORT`.

    Raises ValueError when the address is none of them, and OSError when it cannot be had.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"{address!r} is not an address such as 127.0.0.1:8080")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=128)


async def serve(app: FastAPI, listening: socket.socket) -> None:
    """Serve until cancelled; requests that are being answered are finished first."""
    config = uvicorn.Config(
        app,
        http="auto",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listening]), name="http-server")
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True
        await running
        raise


class _Server(uvicorn.Server):
    """uvicorn as a guest: signals belong to whoever owns the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
