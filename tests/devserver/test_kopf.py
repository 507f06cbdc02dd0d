"""A kopf operator lives on the embedded server: discovery, watches, finalizers, patches of status."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf

from stromboli.devserver import DevServer, Options
from tests.contract.client import MERGE_PATCH, Answer, Client, Endpoint
from tests.contract.objects import ferry_definition

GROUP = "sea.example.com"
FERRIES = f"/apis/{GROUP}/v1/ferries"


class FerryOperator:
    """Tells new ferries to sail; `next` returns what kopf calls its handlers for.

    It runs in a loop of its own: kopf waits for, and in the end cancels, all tasks that it finds in its loop.
    """

    def __init__(self, url: str) -> None:
        self.seen: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=self._registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=url)

        @kopf.on.create(GROUP, "ferries", registry=self._registry)
        async def created(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
            patch.status["phase"] = "Sailing"
            self.seen.put(("created", spec["route"]))

        @kopf.on.update(GROUP, "ferries", registry=self._registry)
        async def updated(spec: kopf.Spec, **_: Any) -> None:
            self.seen.put(("updated", spec["cabins"]))

        @kopf.on.delete(GROUP, "ferries", registry=self._registry)
        async def deleted(name: str, **_: Any) -> None:
            self.seen.put(("deleted", name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ready, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._run, args=(ready, stop), name="operator", daemon=True)
        thread.start()
        assert await asyncio.to_thread(ready.wait, 30)
        try:
            yield
        finally:
            stop.set()
            # kopf does not always come to its end, and no test may wait for that.
            await asyncio.to_thread(thread.join, 10)

    async def next(self) -> tuple[str, Any]:
        return await asyncio.to_thread(self.seen.get, timeout=30)

    def _run(self, ready: threading.Event, stop: threading.Event) -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        asyncio.run(
            kopf.operator(
                registry=self._registry,
                settings=settings,
                clusterwide=True,
                standalone=True,
                ready_flag=ready,
                stop_flag=stop,
            )
        )


async def test_an_operator_sees_the_life_of_a_custom_resource() -> None:
    async with DevServer(Options(kubelet=False)) as server, aiohttp.ClientSession() as session:
        server.api.load([ferry_definition(GROUP)])
        api = Client(Endpoint(server.url), session)
        operator = FerryOperator(server.url)
        async with operator.running():
            ferry = {"metadata": {"name": "laurana"}, "spec": {"route": "milazzo"}}
            assert (await api.post(FERRIES, ferry)).code == 201
            assert await operator.next() == ("created", "milazzo")
            sailing = {"phase": "Sailing"}
            await _until(lambda: api.get(f"{FERRIES}/laurana"), lambda a: a.body.get("status") == sailing)
            await api.patch(f"{FERRIES}/laurana", MERGE_PATCH, {"spec": {"cabins": 9}})
            assert await operator.next() == ("updated", 9)
            held = (await api.delete(f"{FERRIES}/laurana")).body["metadata"]
            assert held["finalizers"]
            assert await operator.next() == ("deleted", "laurana")
            await _until(lambda: api.get(f"{FERRIES}/laurana"), lambda answer: answer.code == 404)
            assert operator.seen.empty()


async def test_an_operator_lists_again_when_its_version_is_forgotten() -> None:
    # With a log of one change, every burst of changes outruns the watch.
    async with DevServer(Options(kubelet=False, log_limit=1)) as server, aiohttp.ClientSession() as session:
        server.api.load([ferry_definition(GROUP)])
        api = Client(Endpoint(server.url), session)
        operator = FerryOperator(server.url)
        resource = server.api.resources.find(GROUP, "v1", "ferries")
        assert resource is not None
        async with operator.running():
            await api.post(FERRIES, {"metadata": {"name": "first"}, "spec": {"route": "first"}})
            assert await operator.next() == ("created", "first")
            for number in range(8):
                name = f"burst-{chr(ord('a') + number)}"
                server.api.create(resource, "", {"metadata": {"name": name}, "spec": {"route": name}})
            created = {(await operator.next())[1] for _ in range(8)}
            assert created == {f"burst-{letter}" for letter in "abcdefgh"}


async def _until(get: Callable[[], Awaitable[Answer]], holds: Callable[[Answer], bool]) -> None:
    """Asks again and again; a test whose condition never holds ends by the timeout."""
    async with asyncio.timeout(30):
        while not holds(await get()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
