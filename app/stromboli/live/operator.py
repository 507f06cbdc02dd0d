"""The kopf operator, isolated so that its failures do no harm.

It watches Queues, of which there are few, and its handler opens new ones. All other objects come through reflectors,
which cost a hundredth and tolerate any server: kopf terminates on an error event or a truncated line, retries without
delay when a watch ends immediately, and misses deletions while it was away.

It has a thread, an event loop and a rate limit of its own. When it terminates it is restarted with growing delays;
meanwhile new queues are opened after a session.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf

from stromboli.api.crds import KINDS, SCHEDULING
from stromboli.live.client import Credentials, Object
from stromboli.live.limits import Backoff, TokenBucket
from stromboli.live.logs import Logger

log = Logger(__name__)

#: requests per second, and burst
_REQUESTS = (2.0, 20.0)
#: an operator that ran for this many seconds was not broken from the start
_LASTING = 60.0
#: seconds that the operator gets to stop; after half as many more it is abandoned
_GRACE = 1.0


class QueueOperator:
    """Calls `seen`, in the loop of `run`, with each Queue that is listed, added or modified."""

    def __init__(self, credentials: Credentials, seen: Callable[[Object], None]) -> None:
        self._credentials = credentials
        self._seen = seen

    async def run(self) -> None:
        """Keep an operator running until cancelled."""
        loop, backoff = asyncio.get_running_loop(), Backoff(1.0, 60.0)
        while True:
            began = loop.time()
            problem = await _Life(self._credentials, self._seen).run()
            if loop.time() - began > _LASTING:
                backoff.reset()
            log.recurring("operator ended", problem)
            await asyncio.sleep(backoff.delay())


class _Life:
    """One run of the operator."""

    def __init__(self, credentials: Credentials, seen: Callable[[Object], None]) -> None:
        self._credentials = credentials
        self._seen = seen
        self._outer = asyncio.get_running_loop()
        self._inner: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        #: set when the operator has stopped working, and when its thread has ended
        self._ended: asyncio.Future[str] = self._outer.create_future()
        self._gone = asyncio.Event()
        self._bucket = TokenBucket(*_REQUESTS)
        self._problem = ""

    async def run(self) -> str:
        """Run until the operator terminates, and return why; on cancellation it is stopped."""
        threading.Thread(target=self._main, name="operator", daemon=True).start()
        try:
            return await asyncio.shield(self._ended)
        finally:
            self._stop.set()
            try:
                async with asyncio.timeout(1.5 * _GRACE):
                    await self._gone.wait()
            except TimeoutError:
                self._break_off()

    def _main(self) -> None:
        try:
            asyncio.run(self._operate())
        except BaseException as error:
            self._problem = self._problem or repr(error)
        self._in(self._outer, self._tell)
        self._in(self._outer, self._gone.set)

    async def _operate(self) -> None:
        self._inner = asyncio.get_running_loop()
        # Errors about tasks that are left over at its end repeat the error that ended it.
        self._inner.set_exception_handler(lambda loop, context: None)
        tasks = await kopf.spawn_tasks(
            registry=self._registry(), settings=_settings(), standalone=True, clusterwide=True, stop_flag=self._stop
        )
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._problem = "; ".join(repr(task.exception()) for task in done)
        self._in(self._outer, self._tell)
        # Cancel the operator's own tasks only: some tasks of kopf wait for others that go on.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_GRACE)

    def _tell(self) -> None:
        if not self._ended.done():
            self._ended.set_result(self._problem)

    def _break_off(self) -> None:
        """Its cancelled tasks do not end: abandon them."""
        if self._inner is not None:
            self._in(self._inner, self._inner.stop)

    @staticmethod
    def _in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The loop is closed, so nothing can be scheduled on it.
            return

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        group, _, version = SCHEDULING.partition("/")

        @kopf.on.login(registry=registry)
        async def log_in(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=self._credentials.server, aiohttp_session=self._session())

        @kopf.on.event(group, version, KINDS["Queue"].plural, registry=registry)
        async def seen(event: kopf.RawEvent, **_: Any) -> None:
            if event["type"] != "DELETED":
                self._in(self._outer, partial(self._seen, dict(event["object"])))

        return registry

    def _session(self) -> aiohttp.ClientSession:
        """A session that kopf closes when its token is refused, and whose requests are rate-limited."""

        async def wait(_: aiohttp.ClientSession, __: SimpleNamespace, ___: aiohttp.TraceRequestStartParams) -> None:
            await self._bucket.wait()

        session = self._credentials.session()
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(wait)
        trace.freeze()
        session.trace_configs.append(trace)
        return session


def _settings() -> kopf.OperatorSettings:
    """Settings of kopf for objects that it only watches."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.request_timeout = 600
    settings.queueing.exit_timeout = 0.1
    settings.process.ultimate_exiting_timeout = None
    return settings
