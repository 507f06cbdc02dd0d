"""The kopf operator, isolated so that its failures do no harm.

It watches what changes at a low rate, one object at a time: Queues, Commands, and workloads of many kinds. Its handlers
hand objects over; the rules are functions elsewhere. Pods and nodes, at thousands of changes a second, come through
reflectors, which cost a fraction and tolerate any server: kopf terminates on an error event or a truncated line,
retries without delay when a watch ends immediately, and does not report what was deleted while it was disconnected. So
consumers of a kind are told when its list is complete, and forget what they know.

It has a thread, an event loop and a rate limit of its own. When it terminates it is restarted with growing delays;
meanwhile new queues are opened after a session, a deleted default queue is recreated a minute later, and PodGroups stay
as they are. Which kinds are served and readable is found out before it starts, and periodically: kopf would terminate
at the first that is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import kopf

from stromboli.api.crds import KINDS, SCHEDULING
from stromboli.live.api_server.client import CONNECTION_ERRORS, ApiError, Credentials, Kube, Object
from stromboli.live.api_server.versions import versions_of
from stromboli.live.groups.owners import Owners
from stromboli.live.process.limits import Backoff, TokenBucket
from stromboli.live.process.logs import Logger
from stromboli.state.queue_states import BUS
from stromboli.workloads import Kind, Starts
from stromboli.workloads.paths import text

log = Logger(__name__)

Seen: TypeAlias = Callable[[Object], None]


@dataclass(frozen=True, slots=True)
class Follower:
    """The callbacks for the objects of a kind, called in the loop of `Operator.run`."""

    #: with each object that was listed, added or modified, and with each that was deleted
    seen: Seen
    gone: Seen
    #: when a list begins: each existing object will be seen
    listed: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Watched:
    """A kind that is served and may be read, and what follows it."""

    group: str
    version: str
    plural: str
    follower: Follower

    @property
    def resource(self) -> tuple[str, str, str]:
        """The kind as API paths name it."""
        return self.group, self.version, self.plural


@dataclass(frozen=True, slots=True)
class Followers:
    """The followers of queues, Commands, and each kind of workload."""

    queues: Follower
    commands: Follower
    workloads: Callable[[Kind], Follower]


#: requests per second, and burst
_REQUESTS = (2.0, 20.0)
#: an operator that ran for this many seconds was not broken from the start
_LASTING = 60.0
#: seconds that the operator gets to stop before all its tasks are cancelled; it is abandoned after three times as long
_GRACE = 1.0
#: seconds between two cancellations of tasks that still run
_INSISTS = 0.1
#: seconds between two looks at which kinds are served
_LOOK = 60.0
#: seconds between the attempts of a request; kopf's own grow to 21, for which it would see nothing after an outage
_RETRIES = (1, 1, 2, 3, *[5] * 10)


class Operator:
    """Keeps a kopf operator running, with handlers for queues, Commands and the kinds of workloads that there are."""

    def __init__(self, credentials: Credentials, kube: Kube, owners: Owners, followers: Followers) -> None:
        self._credentials = credentials
        self._kube = kube
        self._owners = owners
        self._followers = followers

    async def run(self) -> None:
        """Keep an operator running until cancelled."""
        loop, backoff = asyncio.get_running_loop(), Backoff(1.0, 60.0)
        while True:
            began = loop.time()
            served = await self._served()
            problem = "its kinds are not known" if served is None else await self._live(served)
            if problem is None:
                continue
            if loop.time() - began > _LASTING:
                backoff.reset()
            log.recurring("operator ended", problem)
            await asyncio.sleep(backoff.delay())

    async def _live(self, served: Sequence[Watched]) -> str | None:
        """Run until kopf ends, and return why; None if other kinds are served by now."""
        resources = {each.resource for each in served}
        life = asyncio.create_task(Life(self._credentials, served).run(), name="operator life")
        try:
            while True:
                done, _ = await asyncio.wait((life,), timeout=_LOOK)
                if done:
                    return life.result()
                now = await self._served()
                if now is not None and {each.resource for each in now} != resources:
                    return None
        finally:
            life.cancel()
            with suppress(asyncio.CancelledError):
                await life

    # -- kinds -------------------------------------------------------------------------------------------------------

    async def _served(self) -> list[Watched] | None:
        """The kinds that the API server has and that may be watched; None where it does not say."""
        try:
            groups = (await self._kube.get("/apis")).get("groups") or []
            versions = {text(group, "name"): versions_of(group) for group in groups}
            found: list[Watched] = []
            for group, plural, follower, forbidden in self._wanted():
                for version in versions.get(group, []):
                    # The version that its group prefers may have other kinds only.
                    if await self._may_be_read(f"/apis/{group}/{version}/{plural}", forbidden):
                        found.append(Watched(group, version, plural, follower))
                        break
        except (ApiError, *CONNECTION_ERRORS) as error:
            log.recurring("kinds of the operator not looked up", error)
            return None
        return found

    def _wanted(self) -> Iterator[tuple[str, str, Follower, Callable[[], None]]]:
        """Group, plural and follower of all kinds, and the callback for a kind that may not be read."""
        group, plural = SCHEDULING.partition("/")[0], KINDS["Queue"].plural
        yield group, plural, self._followers.queues, lambda: None
        yield BUS, "commands", self._followers.commands, partial(log.recurring, "commands not watched", "forbidden")
        for kind in self._owners.kinds:
            # Volcano's controller makes groups itself.
            if kind.row.starts is Starts.together and kind.row.group not in ("", "batch.volcano.sh"):
                forbidden = partial(self._owners.forbidden, kind)
                yield kind.row.group, kind.row.plural, self._followers.workloads(kind), forbidden

    async def _may_be_read(self, path: str, forbidden: Callable[[], None]) -> bool:
        """Whether a kind is served and may be listed. Raises ApiError and CONNECTION_ERRORS where that is not known."""
        try:
            await self._kube.request("GET", path, params={"limit": "1"})
        except ApiError as error:
            if error.retriable:
                raise
            if error.status == 403:
                forbidden()
            return False
        return True


class Life:
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
        # Cancel only the operator's own tasks: some tasks of kopf wait for others that keep running.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_GRACE)
        # kopf swallows a cancellation that arrives while a watch ends, and continues: cancel until all tasks are done.
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

        for number, watched in enumerate(self._watched):
            kopf.on.event(*watched.resource, registry=registry, id=f"seen-{number}")(self._handler(watched.follower))
        return registry

    def _handler(self, follower: Follower) -> Callable[..., Any]:
        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            heeding = follower.gone if event["type"] == "DELETED" else follower.seen
            self._in(self._outer, partial(heeding, dict(event["object"])))

        return handle

    def _session(self) -> aiohttp.ClientSession:
        """A session that kopf closes when its token is refused, and whose requests are rate-limited."""
        root = f"{urlsplit(self._credentials.server).path}/apis/"
        listed = {f"{root}{'/'.join(each.resource)}": each.follower.listed for each in self._watched}

        async def wait(_: aiohttp.ClientSession, __: SimpleNamespace, ___: aiohttp.TraceRequestStartParams) -> None:
            await self._bucket.wait()

        async def ended(_: aiohttp.ClientSession, __: SimpleNamespace, seen: aiohttp.TraceRequestEndParams) -> None:
            call = None if "watch" in seen.url.query else listed.get(seen.url.path)
            if call is not None and seen.response.status == HTTPStatus.OK:
                self._in(self._outer, call)

        session = self._credentials.session()
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(wait)
        trace.on_request_end.append(ended)
        trace.freeze()
        session.trace_configs.append(trace)
        return session


def _settings() -> kopf.OperatorSettings:
    """Settings of kopf for objects that it only watches."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.request_timeout = 600
    settings.networking.error_backoffs = _RETRIES
    settings.queueing.exit_timeout = 0.1
    settings.process.ultimate_exiting_timeout = None
    return settings
