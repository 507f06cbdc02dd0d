"""The HTTP application of the service: probes, metrics and the extender of kube-scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from stromboli.extender import Extender, ExtenderFirst, Source, extender_routes
from stromboli.http.limits import Bounded, BoundedProtocol
from stromboli.http.schema import Responses, describe
from stromboli.live.process.logs import Logger
from stromboli.live.settings import Settings

log = Logger(__name__)

#: grace period in seconds for running requests when the server stops
_GRACE = 2
_PROBE: Responses = {200: {"description": "`ok`"}, 503: {"description": "One line for each problem."}}


@dataclass(frozen=True, slots=True)
class Probes:
    """The state of the service, each as lines of text."""

    #: why it is not ready
    unready: Callable[[], Sequence[str]] = list
    #: parts that make no progress
    stuck: Callable[[], Sequence[str]] = list
    #: problems to report although it is ready
    notes: Callable[[], Sequence[str]] = list


def make_app(
    source: Source,
    metrics: CollectorRegistry,
    probes: Probes,
    *,
    scheduler_names: Collection[str] = ("stromboli",),
    extender_scheduler_names: Collection[str] = (),
    more: Sequence[APIRouter] = (),
) -> FastAPI:
    """The application.

    `source` provides the extender's answers. `probes` report the state of the service; `more` are further routes.
    """
    app = FastAPI(title="Stromboli", docs_url=None, redoc_url=None)
    describe(app)
    extender = Extender(source, scheduler_names, extender_scheduler_names)
    app.include_router(extender_routes(extender))
    app.add_middleware(ExtenderFirst, extender=extender)
    for router in more:
        app.include_router(router)

    # Answered by the event loop that does all the work, so no answer means that it is stuck.
    @app.get("/healthz", tags=["probes"], response_class=PlainTextResponse, responses=_PROBE)
    async def healthz() -> PlainTextResponse:
        """Whether all parts make progress; one line for each that does not."""
        return _probe(probes.stuck())

    @app.get("/readyz", tags=["probes"], response_class=PlainTextResponse, responses=_PROBE)
    async def readyz() -> PlainTextResponse:
        """Whether the cluster is known and followed; one line for each problem, with a remedy.

        After `ok` a line for each plugin that failed in the last session, and for a session that takes long.
        """
        return _probe(probes.unready(), probes.notes())

    # Not async: a scrape reads the pods of a whole session, in a thread of its own.
    @app.get("/metrics", tags=["metrics"], response_class=PlainTextResponse)
    def scrape() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return app


def _probe(problems: Sequence[str], notes: Sequence[str] = ()) -> PlainTextResponse:
    lines = problems or ["ok", *notes]
    return PlainTextResponse("".join(f"{line}\n" for line in lines), 503 if problems else 200)


def listen(address: str) -> socket.socket:
    """A listening socket for `HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for all addresses of both families.

    Raises ValueError for an invalid address, and OSError if it cannot be bound.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) >= 1 << 16:
        raise ValueError(f"{address!r} is not an address such as 127.0.0.1:8080")
    host = host.removeprefix("[").removesuffix("]")
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    listening = socket.create_server((host, int(port)), family=family, backlog=128, dualstack_ipv6=both)
    # Inherited by connections; without it the second packet of a response waits for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve(app: FastAPI, listening: socket.socket, settings: Settings | None = None) -> None:
    """Serve until cancelled; running requests are finished first."""
    settings = settings or Settings()
    config = uvicorn.Config(
        Bounded(app, settings),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        ssl_certfile=settings.tls_cert_file,
        ssl_keyfile=settings.tls_private_key_file,
        ssl_ca_certs=str(settings.client_ca_file) if settings.client_ca_file else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if settings.client_ca_file else ssl.CERT_NONE,
        log_config=None,
        # Invalid requests are answered; logging each would flood the log.
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listening]), name="http-server")
    rotating = asyncio.create_task(_follow_certificates(config, settings), name="certificates")
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True
        await running
        raise
    finally:
        rotating.cancel()


async def _follow_certificates(config: uvicorn.Config, settings: Settings) -> None:
    """Have new connections use certificates that were replaced, as cert-manager and a changed Secret do."""
    files = [path for path in (settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file) if path]
    known = await asyncio.to_thread(_content, files)
    while files:
        await asyncio.sleep(settings.tls_period)
        found = await asyncio.to_thread(_content, files)
        if config.ssl is None or found is None or found == known:
            continue
        try:
            # A key that does not belong to the certificate is refused, and what was loaded before stays.
            ssl.create_default_context().load_cert_chain(files[0], files[1])
            config.ssl.load_cert_chain(files[0], files[1])
            if settings.client_ca_file is not None:
                config.ssl.load_verify_locations(settings.client_ca_file)
        except (OSError, ValueError) as error:
            log.recurring("certificate not read", error)
        else:
            known = found
            log.info("certificate read", path=str(files[0]))


def _content(files: Sequence[Path]) -> list[bytes] | None:
    """Contents of the files; None while one of them is missing."""
    try:
        return [path.read_bytes() for path in files]
    except OSError:
        return None


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which belong to the owner of the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
