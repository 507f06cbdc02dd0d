"""Answers to kube-scheduler are as new as what is known of the cluster, or newer."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from stromboli.api.reasons import Reason
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.extender import Published
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.cluster.job import Queue
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.registry import Registry
from stromboli.http import extender
from stromboli.http.extender import LiveSessions
from stromboli.http.server import Probes, make_app
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.state.pods import PodRecord
from stromboli.state.snapshot import Snapshot
from tests import builders
from tests.live.cluster import Cluster, Object
from tests.live.conftest import StartService, until

SCHEDULER = "default-scheduler"
NODES = ["n0", "n1"]


class Asker:
    """kube-scheduler's side, and the sessions of a service."""

    def __init__(self, service: Service) -> None:
        self.published: Published | None = None
        self._service = service
        service.observer.session = self._session  # type: ignore[method-assign]
        sessions = LiveSessions(service, lambda: self.published)
        app = make_app(
            sessions,
            CollectorRegistry(),
            Probes(stuck=sessions.stuck),
            extender_scheduler_names=(SCHEDULER,),
        )
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stromboli")

    def _session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        self.published = Published(result.session, self._service.state.pods.by_key)

    def knows_group(self, key: str) -> bool:
        """Whether the service was told of a PodGroup."""
        return self._service.state.pod_group(key) is not None

    async def filter(self, pod: Object, nodes: list[str]) -> list[str]:
        """The nodes that a pod may go to."""
        found: list[str] = (await self.ask(pod, nodes)).raise_for_status().json()["NodeNames"]
        return found

    async def ask(self, pod: Object, nodes: list[str]) -> httpx.Response:
        """The answer to `/filter`."""
        return await self._http.post("/filter", content=msgspec.json.encode({"Pod": pod, "NodeNames": nodes}))

    async def alive(self) -> str:
        """What the probe says of which parts make no progress, empty when all do."""
        answer = await self._http.get("/healthz")
        return "" if answer.is_success else answer.text

    async def bind(self, pod: Object, node: str, uid: str = "") -> str:
        """Why a pod is not bound to a node, empty when it is."""
        meta = pod["metadata"]
        asked = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": uid or meta["uid"], "Node": node}
        error: str = (await self._http.post("/bind", json=asked)).raise_for_status().json()["Error"]
        return error


class Hanging(Successive):
    """Sessions that hang once they are not to go on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.goes_on, self.hangs = threading.Event(), threading.Event()
        self.goes_on.set()

    def decide(self, snapshot: Snapshot, *, now: float) -> SessionResult:
        if not self.goes_on.is_set():
            self.hangs.set()
            self.goes_on.wait(60)
        return super().decide(snapshot, now=now)


class HangsWhenAsked(Plugin):
    """A plugin that sessions come through, and that does not return to kube-scheduler once it is told to."""

    name = "hangs"
    hangs, goes_on = threading.Event(), threading.Event()

    def allocatable(self, queue: Queue, pod: PodRecord, count: int) -> tuple[int, Reason | None]:
        if self.hangs.is_set() and threading.current_thread().name.startswith("extender"):
            self.goes_on.wait(60)
        return count, None


@pytest.fixture
async def asker(cluster: Cluster, start: StartService) -> Asker:
    service = await start(lambda _: Successive(Engine(), Environment()), extender_scheduler_names=(SCHEDULER,))
    asker = Asker(service)
    service.wake()
    # The service creates the queue when it starts.
    await until(lambda: asker.published is not None and "default" in asker.published.session.view.queues)
    return asker


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait for sessions as long as a busy machine takes for them."""
    for name in ("_DUE", "_HOPED"):
        monkeypatch.setattr(extender, name, 30.0)


@pytest.mark.usefixtures("patient")
async def test_a_pod_is_not_refused_because_it_is_new(cluster: Cluster, asker: Asker) -> None:
    """Not even if it is the last of a gang whose other pods are known."""
    cluster.group("train", 2)
    await until(lambda: asker.knows_group("default/train"))
    pods = [cluster.pod(f"train-{number}", "train", schedulerName=SCHEDULER) for number in range(2)]
    for pod in reversed(pods):
        assert len(await asker.filter(pod, NODES)) == 1


@pytest.mark.usefixtures("patient")
async def test_a_pod_without_a_group_is_not_refused_before_it_has_one(cluster: Cluster, asker: Asker) -> None:
    notes = {"scheduling.volcano.sh/queue-name": "default"}
    pod = cluster.pod("alone", metadata={"annotations": notes}, schedulerName=SCHEDULER)
    assert len(await asker.filter(pod, NODES)) == 1


async def test_a_session_that_is_due_is_waited_for_and_a_group_that_may_never_come_is_not(
    cluster: Cluster, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender, "_DUE", 30.0)
    monkeypatch.setattr(extender, "_HOPED", 0.0)
    cluster.group("train", 1)
    await until(lambda: asker.knows_group("default/train"))
    assert len(await asker.filter(cluster.pod("train", "train", schedulerName=SCHEDULER), NODES)) == 1
    lost = cluster.pod("lost", "missing", schedulerName=SCHEDULER)
    async with asyncio.timeout(20):
        assert await asker.filter(lost, NODES) == []


@pytest.mark.usefixtures("patient")
async def test_a_session_that_hangs_holds_no_request_and_refuses_no_pod(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Hanging(Engine(), Environment())
    asker = Asker(await start(lambda _: engine, extender_scheduler_names=(SCHEDULER,)))
    cluster.group("train", 1)
    decided = cluster.pod("train", "train", schedulerName=SCHEDULER)
    await until(lambda: asker.published is not None)
    (node,) = await asker.filter(decided, NODES)
    engine.goes_on.clear()
    cluster.group("late", 1)
    late = [cluster.pod(f"late-{number}", "late", schedulerName=SCHEDULER) for number in range(3)]
    await until(engine.hangs.is_set)
    monkeypatch.setattr(extender, "_LONG", 0.0)
    async with asyncio.timeout(60):
        assert [await asker.filter(pod, NODES) for pod in late] == [[], [], []], "a long session is not waited for"
        monkeypatch.setattr(Settings, "session_patience", 0.0)
        told = [await asker.ask(pod, NODES) for pod in late]
    assert {answer.status_code for answer in told} == {503}
    assert all("a session has been running for 0 s, in " in answer.text for answer in told)
    assert await asker.filter(decided, NODES) == [node], "what was decided stands"
    monkeypatch.undo()
    engine.goes_on.set()
    assert all([await asker.filter(pod, NODES) for pod in late])


async def test_a_plugin_that_hangs_when_kube_scheduler_asks_holds_up_nothing_else(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = discover()
    registry = Registry(known.actions, known.plugins | {"hangs": HangsWhenAsked})
    engine = Engine(
        builders.policy("hangs priority gang", "predicates", actions="enqueue, allocate"), registry=registry
    )
    service = await start(lambda _: Successive(engine, Environment()), extender_scheduler_names=(SCHEDULER,))
    asker = Asker(service)
    for name in NODES:
        cluster.pod(f"old-{name}", cpu="8", nodeName=name, schedulerName="other")
    await until(lambda: len(asker.published.running()) == 2 if asker.published else False)
    cluster.group("late", 1)
    waits = functools.partial(asker.ask, cluster.pod("late", "late", cpu="8", schedulerName=SCHEDULER), NODES)
    assert (await waits()).status_code == 200
    monkeypatch.setattr(extender, "_WORKED", 0.2)
    HangsWhenAsked.hangs.set()
    try:
        for _ in range(3):
            async with asyncio.timeout(20):
                told = await waits()
            assert told.status_code == 503
            assert "in plugin hangs: HangsWhenAsked.allocatable" in told.text
        began = service.changes
        cluster.group("next", 1)
        cluster.pod("next", "next", cpu="1m")
        await until(lambda: service.changes > began and service.knows(service.changes))
        assert await asker.alive() == "", "it is given time, as a session is"
        monkeypatch.setattr(service, "settings", service.settings.model_copy(update={"session_timeout": 0.0}))
        assert "a question of kube-scheduler has been worked out for" in await asker.alive()
    finally:
        HangsWhenAsked.hangs.clear()
        HangsWhenAsked.goes_on.set()
    monkeypatch.undo()
    assert (await waits()).status_code == 200


async def test_room_that_was_just_made_is_known(cluster: Cluster, asker: Asker) -> None:
    for name in NODES:
        cluster.pod(f"old-{name}", cpu="8", nodeName=name, schedulerName="other")
    await until(lambda: len(asker.published.running()) == 2 if asker.published else False)
    cluster.group("urgent", 1)
    pod = cluster.pod("urgent", "urgent", cpu="8", schedulerName=SCHEDULER)
    assert await asker.filter(pod, NODES) == []
    cluster.delete("/api/v1/namespaces/default/pods/old-n0")
    # kube-scheduler has seen that sooner than the service.
    assert await asker.filter(pod, ["n0"]) == ["n0"]


def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds each refusal from now on may wait."""
    found: list[float] = []
    patience = LiveSessions.patience

    def told(self: LiveSessions, *args: Any) -> Callable[[], float]:
        asked = patience(self, *args)
        found.append(0.0)

        def tell() -> float:
            found[-1] = max(found[-1], seconds := asked())
            return seconds

        return tell

    monkeypatch.setattr(LiveSessions, "patience", told)
    return found


async def test_kube_scheduler_is_not_held_up_for_pods_that_no_end_of_another_makes_room_for(
    cluster: Cluster, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.group("train", 1)
    cluster.pod("train-0", "train", nodeName="n0", schedulerName=SCHEDULER)
    large = cluster.pod("train-1", "train", cpu="9", schedulerName=SCHEDULER)
    await asker.filter(large, NODES)
    waited = waited_for(monkeypatch)
    assert await asker.filter(large, NODES) == []
    assert waited == [0]


async def test_kube_scheduler_is_held_up_once_for_a_resource_that_it_does_not_count(
    cluster: Cluster, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ignoredByScheduler` it offers nodes whose devices are all in use, for each pod."""
    card = "example.com/card"
    for name in NODES:
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", card: "1"}
        cluster.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
    wants = {"resources": {"requests": {"cpu": "1", card: "1"}, "limits": {card: "1"}}}
    form = {"containers": [{"name": "main", "image": "busybox", **wants}], "schedulerName": SCHEDULER}
    cluster.group("train", 1)
    for number, name in enumerate(NODES):
        cluster.pod(f"train-{number}", "train", nodeName=name, **form)
    await until(lambda: len(asker.published.running()) == 2 if asker.published else False)
    more = [cluster.pod(f"train-{number}", "train", **form) for number in range(2, 5)]
    waited = waited_for(monkeypatch)
    assert [await asker.filter(pod, NODES) for pod in (*more, *more)] == [[]] * 6
    assert waited[0] > 0
    assert waited[3:] == [0, 0, 0]


@pytest.mark.usefixtures("patient")
async def test_a_pod_may_go_where_kube_scheduler_made_room_for_it(cluster: Cluster, asker: Asker) -> None:
    cluster.group("urgent", 1)
    pod = cluster.pod("urgent", "urgent", schedulerName=SCHEDULER)
    (decided,) = await asker.filter(pod, NODES)
    (other,) = {*NODES} - {decided}
    assert await asker.filter(pod, [other]) == []
    nominated = pod | {"status": {"phase": "Pending", "nominatedNodeName": other}}
    assert await asker.filter(nominated, [other]) == [other]
    assert await asker.filter(nominated, NODES) == [decided]


@pytest.mark.usefixtures("patient")
async def test_a_pod_is_bound_once_and_where_it_was_decided(cluster: Cluster, asker: Asker) -> None:
    cluster.group("train", 1)
    pod = cluster.pod("train-0", "train", schedulerName=SCHEDULER)
    (node,) = await asker.filter(pod, NODES)
    other = next(each for each in NODES if each != node)
    assert "was decided to go to node" in await asker.bind(pod, other)
    assert await asker.bind(pod, node) == ""
    assert await asker.bind(pod, node) == ""
    assert f"is on node {node}" in await asker.bind(pod, other)
    assert await asker.bind(pod, node, uid="another") != ""


async def test_a_pod_that_has_its_node_is_bound_though_no_watch_says_so(cluster: Cluster, asker: Asker) -> None:
    """kube-scheduler asks again when an answer was too late."""
    pod = cluster.pod("foreign", schedulerName=SCHEDULER)
    assert await asker.bind(pod, NODES[0]) == ""
    assert await asker.bind(pod, NODES[0]) == ""
    assert await asker.bind(pod, NODES[1]) != ""
    gone = {"metadata": {"name": "gone", "uid": "u"}}
    assert "was not bound" in await asker.bind(gone, NODES[0])
