"""A connection to a pod's port through the API server, like `kubectl port-forward`, for as long as a command runs.

Kubelets use a WebSocket protocol for it: each connection is a WebSocket of its own, and each frame begins with a stream
number. Stream 0 carries the bytes, stream 1 an error, and the first frame of either contains the port.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stromboli.api.errors import StromboliError, in_words

if TYPE_CHECKING:
    from stromboli.cli.located import Located
    from stromboli.live.api_server.client import Kube

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
#: bytes that are read at once, and seconds for the first answer of a pod
_CHUNK, _PATIENCE = 1 << 16, 10.0


class ForwardError(StromboliError):
    """The API server opens no way to the pod."""


class Forward:
    """A port on loopback whose connections lead to a pod's port, served in a thread of its own until it is closed."""

    def __init__(self, kubeconfig: Path | None, context: str | None, to: Located) -> None:
        """Raises ForwardError when no way can be opened."""
        self._kubeconfig, self._context, self._to = kubeconfig, context, to
        self._ready = threading.Event()
        self._problem = ""
        self._stop: Callable[[], object] = lambda: None
        #: the port on loopback
        self.port = 0
        # A daemon: a command that ends does not wait for it.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="port-forward", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem:
            raise ForwardError(self._problem)

    @property
    def url(self) -> str:
        """The address that leads to the pod."""
        return f"{'https' if self._to.https else 'http'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Close the port and all connections."""
        self._stop()
        self._thread.join()

    async def _serve(self) -> None:
        from stromboli.live.api_server.client import CONNECTION_ERRORS, Credentials, Kube

        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        try:
            kube = Kube(Credentials.load(self._kubeconfig, self._context))
            try:
                await self._try(kube)
                server = await asyncio.start_server(lambda *ends: self._connect(kube, *ends), "127.0.0.1", 0)
                self.port = server.sockets[0].getsockname()[1]
                self._ready.set()
                await stopped.wait()
                server.close()
            finally:
                await kube.close()
        except (StromboliError, *CONNECTION_ERRORS) as error:
            self._problem = self._problem or in_words(error)
        finally:
            self._ready.set()

    async def _try(self, kube: Kube) -> None:
        """Raises ForwardError when a connection to the pod cannot be opened."""
        async with asyncio.timeout(_PATIENCE):
            async with kube.websocket(self._path, PROTOCOL) as socket:
                for _ in (DATA, ERROR):
                    said = await socket.receive()
                    if not isinstance(said.data, bytes):
                        raise ForwardError(f"pod {self._to.namespace}/{self._to.pod}: no connection to its port")

    @property
    def _path(self) -> str:
        to = self._to
        return f"/api/v1/namespaces/{to.namespace}/pods/{to.pod}/portforward?ports={to.port}"

    async def _connect(self, kube: Kube, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end closes it."""
        from stromboli.live.api_server.client import CONNECTION_ERRORS

        try:
            async with kube.websocket(self._path, PROTOCOL) as socket:

                async def send() -> None:
                    while chunk := await reader.read(_CHUNK):
                        await socket.send_bytes(bytes([DATA]) + chunk)

                async def receive() -> None:
                    opened = set[int]()
                    async for said in socket:
                        if not isinstance(said.data, bytes) or not said.data:
                            break
                        stream, rest = said.data[0], said.data[1:]
                        if stream not in opened:
                            opened.add(stream)
                        elif stream == DATA:
                            writer.write(rest)
                            await writer.drain()
                        elif rest:
                            break

                ends = [asyncio.create_task(each()) for each in (send, receive)]
                # The rest of the pod's answer is passed on when the caller has sent everything.
                await ends[1]
                ends[0].cancel()
        except CONNECTION_ERRORS:
            pass
        finally:
            writer.close()
