"""How tasks of which there are many share the event loop with others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stromboli.api import objects
from stromboli.live.api_server.client import ApiError, Kube
from stromboli.live.groups.owners import Owners
from stromboli.live.groups.podgroups import PodGroupMaker
from stromboli.live.observer import Observer
from stromboli.live.process.turnstile import Turnstile
from stromboli.live.reporting.events import Events
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import SOURCES
from stromboli.state.cluster import ClusterState
from stromboli.workloads.table import known_kinds
from tests import builders

_PODS = next(source for source in SOURCES if source.kind == "Pod")


async def steps_until(done: Any, of: Any) -> list[int]:
    """How much of something was done in each pass of the event loop, until all of it was."""
    passes, before = list[int](), of()
    while not done():
        await asyncio.sleep(0)
        passes.append(of() - before)
        before = of()
        assert len(passes) < 10_000
    return passes


async def test_one_task_goes_on_in_each_pass_in_order() -> None:
    turnstile, went = Turnstile(), list[int]()

    async def go(number: int) -> None:
        await turnstile.wait()
        went.append(number)

    tasks = [asyncio.create_task(go(number)) for number in range(50)]
    passes = await steps_until(lambda: len(went) == 50, lambda: len(went))
    assert went == list(range(50))
    assert max(passes) == 1
    # None is left without a task, so that many take no longer than their work does.
    assert len(passes) <= 53
    await asyncio.gather(*tasks)


async def test_one_that_was_cancelled_holds_up_no_other() -> None:
    turnstile, went = Turnstile(), list[int]()

    async def go(number: int) -> None:
        await turnstile.wait()
        went.append(number)

    tasks = [asyncio.create_task(go(number)) for number in range(10)]
    await asyncio.sleep(0)
    for each in tasks[1:9]:
        each.cancel()
    await asyncio.wait(tasks, timeout=5)
    assert went == [0, 9]
    await turnstile.wait()


class Answers:
    """An API server whose answers to all that wait come in one pass of the event loop."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def persist(self, method: str, path: str, body: bytes = b"", *_: object) -> bytes:
        if method == "GET":
            raise ApiError(404, "NotFound", path)
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        made = json.loads(body)
        return json.dumps({**made, "metadata": {**made["metadata"], "uid": "u", "resourceVersion": "1"}}).encode()

    def answer(self) -> None:
        for each in self.waiting:
            each.set_result(None)
        self.waiting.clear()


async def test_groups_of_a_mass_of_pods_are_made_one_in_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    state, api = ClusterState(("stromboli",), (), builders.READS), Answers()
    mirror, kube = Mirror(state, lambda urgent: None, Observer()), api
    made, manifests = list[str](), list[str]()
    mirror.listen("PodGroup", lambda type, group: made.append(group.key))
    events = Events(kube, Observer(), "test", 50)  # type: ignore[arg-type]
    owners = Owners(kube, known_kinds())  # type: ignore[arg-type]
    maker = PodGroupMaker(kube, mirror, events, owners, lambda queue, parent: None)  # type: ignore[arg-type]
    manifest = maker._manifest

    def counted(*arguments: Any) -> Any:
        manifests.append("")
        return manifest(*arguments)

    monkeypatch.setattr(maker, "_manifest", counted)
    for number in range(20):
        mirror.upsert("Pod", f"mass/p{number}", builders.pod(f"p{number}", namespace="mass"), "ADDED")
    task = asyncio.create_task(maker.run())
    try:
        assert max(await steps_until(lambda: len(api.waiting) == 20, lambda: len(manifests))) == 1
        api.answer()
        assert max(await steps_until(lambda: len(made) == 20, lambda: len(made))) == 1
    finally:
        task.cancel()


class Content:
    """The body of a watch whose events come in one piece."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece
        self.over = asyncio.Event()

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._piece
        await self.over.wait()


async def test_events_that_come_together_leave_room_for_others() -> None:
    pod = {"metadata": {"namespace": "mass", "resourceVersion": "7"}, "spec": {"containers": [{"name": "c"}]}}
    lines = [
        json.dumps({"type": "ADDED", "object": {**pod, "metadata": {**pod["metadata"], "name": f"p{number}"}}})
        for number in range(200)
    ]
    content = Content("".join(f"{line}\n" for line in lines).encode())

    class Api(Kube):
        def __init__(self) -> None:
            pass

        def watch(self, *_: object) -> Any:
            @asynccontextmanager
            async def opened() -> AsyncIterator[Any]:
                answer = type("Answer", (), {"status": 200, "content": content})
                yield answer

            return opened()

    state = ClusterState(("stromboli",), (), builders.READS)
    mirror = Mirror(state, lambda urgent: None, Observer())
    seen = list[objects.Pod]()
    mirror.listen("Pod", lambda type, pod: seen.append(pod))
    reflector = Reflector(Api(), _PODS, mirror, Observer())
    task = asyncio.create_task(reflector._follow())
    passes = await steps_until(lambda: len(seen) == 200, lambda: len(seen))
    task.cancel()
    assert max(passes) <= 10
    assert [each.metadata.name for each in seen] == [f"p{number}" for number in range(200)]


async def test_the_event_of_a_group_that_was_made_is_applied_once() -> None:
    """The answer to the write has told all that the event tells."""
    state, wakes, told = ClusterState(("stromboli",), (), builders.READS), list[bool](), list[str]()
    mirror = Mirror(state, wakes.append, Observer())
    mirror.listen("PodGroup", lambda type, group: told.append(type))
    made = {
        "metadata": {"name": "g", "namespace": "mass", "uid": "u", "resourceVersion": "5"},
        "spec": {"minMember": 1},
    }
    mirror.looked_up("PodGroup", made)
    mirror.event("PodGroup", "ADDED", made)
    assert (told, len(wakes)) == (["MODIFIED"], 1)
    changed = {**made, "metadata": {**made["metadata"], "resourceVersion": "6"}, "spec": {"minMember": 2}}
    mirror.event("PodGroup", "MODIFIED", changed)
    assert (told, len(wakes)) == (["MODIFIED", "MODIFIED"], 2)
    mirror.event("PodGroup", "DELETED", changed)
    assert state.pod_group("mass/g") is None
