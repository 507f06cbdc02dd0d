"""The server: in the caller's event loop, or in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from .handlers import Handler
from .kubelet import Kubelet
from .operations import Api
from .store import Store

_MAX_BODY = 3 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a server; times are in seconds."""

    #: 0 takes a free one
    port: int = 0
    #: whether bound pods start and deleted ones end by themselves
    kubelet: bool = True
    start_delay: float = 0.05
    stop_delay: float = 0.05
    #: changes kept per resource; a watch from before them gets 410 Expired
    log_limit: int = 10_000
    bookmark_seconds: float = 20.0
    #: time for which the next page of a list can be asked for
    continue_seconds: float = 300.0


class DevServer:
    """An in-memory Kubernetes API server on 127.0.0.1, over plain HTTP, that believes every client.

    `async with DevServer() as server:` serves in the running loop; `DevServer.spawn()` in another process.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        #: the cluster itself, for seeding and looking at it without HTTP
        self.api = Api(Store(self.options.log_limit, self.options.continue_seconds))
        self._runner: web.ServerRunner | None = None
        self._kubelet: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DevServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; the server must have been started."""
        if self._runner is None:
            raise RuntimeError("the server has not been started")
        return "http://{}:{}".format(*self._runner.addresses[0][:2])

    async def start(self) -> None:
        handler = Handler(self.api, bookmark_seconds=self.options.bookmark_seconds)
        loop = asyncio.get_running_loop()

        def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY)

        server = web.Server(handler, request_factory=make_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.options.port).start()
        if self.options.kubelet:
            delays = {"start_delay": self.options.start_delay, "stop_delay": self.options.stop_delay}
            self._kubelet = asyncio.create_task(Kubelet(self.api, **delays).run(), name="kubelet")

    async def stop(self) -> None:
        """Ends all watches and closes the port."""
        self.api.store.close()
        if self._kubelet is not None:
            self._kubelet.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._kubelet
        if self._runner is not None:
            await self._runner.cleanup()

    @classmethod
    @contextlib.contextmanager
    def spawn(
        cls,
        options: Options | None = None,
        *,
        kubeconfig: Path | None = None,
        manifests: tuple[Path, ...] = (),
    ) -> Iterator[str]:
        """Runs a server in a process of its own, as long as the context lasts, and yields its URL."""
        command = [sys.executable, "-m", "stromboli.devserver", "--until-stdin-closes"]
        for field in fields(Options):
            value = getattr(options or Options(), field.name)
            flag = field.name.replace("_", "-")
            if isinstance(value, bool):
                command.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                command.append(f"--{flag}={value}")
        if kubeconfig is not None:
            command.append(f"--kubeconfig={kubeconfig}")
        command += [f"--manifest={path}" for path in manifests]
        with serving(command) as url:
            yield url


@contextlib.contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Runs a server that prints its URL and ends with its input, as long as the context lasts, and yields the URL.

    Raises RuntimeError when it ends before it is ready.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"the server ended with code {process.wait()} before it was ready")
            yield url
        finally:
            process.stdin.close()


def write_kubeconfig(path: Path, url: str) -> None:
    """A kubeconfig whose only context is the server at `url`; JSON, which is YAML too."""
    name = "stromboli-dev"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    path.write_text(json.dumps(config, indent=1))
