"""The kopf operator, isolated so that its failures do no harm.

It watches what changes at a low rate, one object at a time: Queues, and workloads of many kinds. Its handlers hand
objects over; the rules are functions elsewhere. Pods and nodes, at thousands of changes a second, come through
reflectors, which cost a hundredth and tolerate any server: kopf terminates on an error event or a truncated line,
retries without delay when a watch ends immediately, and misses deletions while it was away.

It has a thread, an event loop and a rate limit of its own. When it terminates it is restarted with growing delays;
meanwhile new queues are opened after a session, and PodGroups stay as they are. Which kinds of workloads are served and
may be read is found out before it begins, and now and then: kopf would end at the first that may not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import aiohttp
import kopf

from stromboli.api.crds import KINDS, SCHEDULING
from stromboli.live.client import CONNECTION_ERRORS, ApiError, Credentials, Kube, Object
from stromboli.live.limits import Backoff, TokenBucket
from stromboli.live.logs import Logger
from stromboli.live.owners import Owners
from stromboli.live.versions import versions_of
from stromboli.workloads import Kind, Starts
from stromboli.workloads.paths import text

log = Logger(__name__)

Seen: TypeAlias = Callable[[Object], None]
"""Called with an object that was listed, added or modified, in the loop of `Operator.run`."""
Watched: TypeAlias = tuple[tuple[str, str, str], Seen, Seen | None]
"""Group, version and plural of a kind, its handler, and that of what is deleted."""

#: requests per second, and burst
_REQUESTS = (2.0, 20.0)
#: an operator that ran for this many seconds was not broken from the start
_LASTING = 60.0
#: seconds that the operator gets to stop before all its tasks are cancelled; it is abandoned after three times as long
_GRACE = 1.0
#: seconds between two cancellations of what still runs
_INSISTS = 0.1
#: seconds between two looks at which kinds are served
_LOOK = 60.0


class Operator:
    """Keeps a kopf operator running, with handlers for queues and for the kinds of workloads that there are."""

    def __init__(
        self, credentials: Credentials, kube: Kube, owners: Owners, queue: Seen, workload: Seen, gone: Seen
    ) -> None:
        """Calls `queue` with each Queue, `workload` with each workload whose pods start together, and `gone` with each
        of these that was deleted.
        """
        self._credentials = credentials
        self._kube = kube
        self._owners = owners
        self._workload = workload
        self._gone = gone
        group, _, version = SCHEDULING.partition("/")
        self._queues: Watched = (group, version, KINDS["Queue"].plural), queue, None

    async def run(self) -> None:
        """Keep an operator running until cancelled."""
        loop, backoff = asyncio.get_running_loop(), Backoff(1.0, 60.0)
        while True:
            began = loop.time()
            served = await self._served()
            problem = await self._live([self._queues, *served], {each for each, *_ in served})
            if problem is None:
                continue
            if loop.time() - began > _LASTING:
                backoff.reset()
            log.recurring("operator ended", problem)
            await asyncio.sleep(backoff.delay())

    async def _live(self, watched: Sequence[Watched], served: set[tuple[str, str, str]]) -> str | None:
        """Run until kopf ends, and return why; None if other kinds are served by now."""
        life = asyncio.create_task(_Life(self._credentials, watched).run(), name="operator life")
        try:
            while True:
                done, _ = await asyncio.wait((life,), timeout=_LOOK)
                if done:
                    return life.result()
                if {each for each, *_ in await self._served()} != served:
                    return None
        finally:
            life.cancel()
            with suppress(asyncio.CancelledError):
                await life

    # -- kinds -------------------------------------------------------------------------------------------------------

    async def _served(self) -> list[Watched]:
        """The kinds of workloads that the API server has and that may be watched."""
        try:
            groups = (await self._kube.get("/apis")).get("groups") or []
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.recurring("kinds of workloads not looked up", error)
            return []
        versions = {text(group, "name"): versions_of(group) for group in groups}
        found: list[Watched] = []
        for kind in self._owners.kinds:
            group = kind.row.group
            # Volcano's controller makes groups itself.
            if kind.row.starts is Starts.together and group != "batch.volcano.sh":
                version = await self._version(kind, versions.get(group, []))
                if version:
                    name = {"apiVersion": f"{group}/{version}", "kind": kind.row.kind}
                    seen, gone = (partial(self._named, name, call) for call in (self._workload, self._gone))
                    found.append(((group, version, kind.row.plural), seen, gone))
        return found

    async def _version(self, kind: Kind, versions: Sequence[str]) -> str:
        """The first version in which a kind is served and may be read, empty for none.

        The version that its group prefers may have other kinds only.
        """
        for version in versions:
            if await self._may_be_read(kind, f"/apis/{kind.row.group}/{version}/{kind.row.plural}"):
                return version
        return ""

    def _named(self, name: Object, seen: Seen, owner: Object) -> None:
        seen({**name, **owner})

    async def _may_be_read(self, kind: Kind, path: str) -> bool:
        """Whether a kind is served and may be listed."""
        try:
            await self._kube.request("GET", path, params={"limit": "1"})
        except ApiError as error:
            if error.status == 403:
                self._owners.forbidden(kind, "get, list, watch")
            return False
        except CONNECTION_ERRORS as error:
            log.recurring("kinds of workloads not looked up", error)
            return False
        return True


class _Life:
    """One run of the operator."""

    def __init__(self, credentials: Credentials, watched: Sequence[Watched]) -> None:
        self._credentials = credentials
        self._watched = watched
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
                async with asyncio.timeout(3 * _GRACE):
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
        # kopf swallows a cancellation that comes while a watch ends, and goes on: cancel until nothing does.
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_INSISTS)

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

        @kopf.on.login(registry=registry)
        async def log_in(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=self._credentials.server, aiohttp_session=self._session())

        for number, (resource, seen, gone) in enumerate(self._watched):
            kopf.on.event(*resource, registry=registry, id=f"seen-{number}")(self._handler(seen, gone))
        return registry

    def _handler(self, seen: Seen, gone: Seen | None) -> Callable[..., Any]:
        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            heeding = gone if event["type"] == "DELETED" else seen
            if heeding is not None:
                self._in(self._outer, partial(heeding, dict(event["object"])))

        return handle

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
