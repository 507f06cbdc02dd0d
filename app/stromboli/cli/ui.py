"""`stromboli ui`: the page about a running service."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stromboli.api.errors import StromboliError
from stromboli.cli.options import DEFAULT_URL, CaFile, CertFile, KeyFile, Url
from stromboli.cli.problems import misset

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from stromboli.live.settings import Settings
    from stromboli.ui import Service

#: bytes of a form: a change of the size that the service takes, as forms are written
_LARGEST_FORM = 16 << 20


def ui(
    url: Url = DEFAULT_URL,
    listen: Annotated[str, typer.Option(help="Where the page is served.")] = "127.0.0.1:8081",
    host: Annotated[
        list[str] | None, typer.Option(help="A host name under which the page is reached. May be repeated.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Token of the cluster with whose rights clients read that bring no token of their own."),
    ] = None,
    certificate_authority: CaFile = None,
    tls_cert_file: CertFile = None,
    tls_private_key_file: KeyFile = None,
    refresh: Annotated[float, typer.Option(min=1, max=86_400, help="Seconds between renewals of an open page.")] = 5.0,
) -> None:
    """Serve the web page: queues, jobs and why they wait, nodes, shares, sessions. It never writes.

    It needs the extra `stromboli[ui]`, and no rights in the cluster: it asks the service, on loopback without a token,
    elsewhere with the token that a browser's proxy passes on or that of --token-file.

    Example: stromboli ui --url http://127.0.0.1:8080
    """
    try:
        from stromboli.ui import Service, make_ui
    except ModuleNotFoundError as error:
        raise StromboliError(f"the page needs {error.name}: pip install 'stromboli[ui]'") from None
    from pydantic import ValidationError

    from stromboli.http.server import listen as open_socket
    from stromboli.live.settings import Settings

    try:
        settings = Settings(
            http_max_body=_LARGEST_FORM, tls_cert_file=tls_cert_file, tls_private_key_file=tls_private_key_file
        )
        service = Service(url, token_file=token_file, ca_file=certificate_authority)
        listening = open_socket(listen)
    except ValidationError as error:
        raise StromboliError("; ".join(map(misset, error.errors()))) from None
    except (OSError, ValueError) as error:
        raise StromboliError(str(error)) from None
    name, port = listening.getsockname()[:2]
    scheme = "https" if tls_cert_file else "http"
    print(f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}", flush=True)
    app = make_ui(service, refresh=refresh, hosts=frozenset(host or ()))
    asyncio.run(_serve(app, listening, settings, service))


async def _serve(app: FastAPI, listening: socket.socket, settings: Settings, service: Service) -> None:
    from stromboli.http.server import serve

    serving = asyncio.create_task(serve(app, listening, settings))

    def stop() -> None:
        # A second question does not cut off the answer that the first one waits for.
        if not serving.cancelling():
            serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await service.close()
