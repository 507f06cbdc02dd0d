"""What a server may say, or leave out, without ending a watch or the service."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from typing import Any

import kopf
import pytest

from stromboli.live.service import Service
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import StartService, until
from tests.live.test_service import recorder

TOPOLOGY = "/apis/topology.volcano.sh/v1alpha1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def queue(cluster: Cluster, name: str) -> None:
    meta = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    cluster.create(f"{SCHEDULING}/queues", {**meta, "spec": {"weight": 1}})


def hyper_node(cluster: Cluster, name: str) -> None:
    member = {"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}
    meta = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    cluster.create(f"{TOPOLOGY}/hypernodes", {**meta, "spec": {"tier": 1, "members": [member]}})


#: kinds by resource: how one is made, and the name under which the mirror then has it
KINDS = {
    "queues": ("Queue", queue, "{}"),
    "podgroups": ("PodGroup", lambda cluster, name: cluster.group(name, 1), "default/{}"),
    "hypernodes": ("HyperNode", hyper_node, "{}"),
    "nodes": ("Node", lambda cluster, name: cluster.node(name), "{}"),
}


def event(type: object, **more: object) -> bytes:
    return json.dumps({"type": type, **more}).encode() + b"\n"


def status(code: object, **more: object) -> Object:
    return {"kind": "Status", "code": code, "message": "told to", **more}


STREAMS = {
    "error 500": event("ERROR", object=status(500)),
    "error 403": event("ERROR", object=status(403)),
    "error 410": event("ERROR", object=status(410)),
    "error of a strange code": event("ERROR", object=status("many", details=["x"])),
    "error null": event("ERROR", object=None),
    "error without object": event("ERROR"),
    "error that is text": event("ERROR", object="x"),
    "no type": event(None, object={"metadata": {"name": "x"}}),
    "unknown type": event("RENAMED", object={"metadata": {"name": "x"}}),
    "object null": event("MODIFIED", object=None),
    "object without metadata": event("MODIFIED", object={}),
    "metadata null": event("ADDED", object={"metadata": None}),
    "bookmark without metadata": event("BOOKMARK", object={}),
    "half a line": event("ADDED", object={"metadata": {"name": "half"}})[:-20],
    "no JSON": b"<html>\n\xff\xfe\n",
    "an array": b"[]\n",
    "nothing": b"",
}


async def recovers(cluster: Cluster, service: Service, *resources: str) -> None:
    """Whatever was answered: the service runs, and what is made now becomes known."""
    for resource in resources:
        KINDS[resource][1](cluster, "late")

    def known(resource: str) -> bool:
        kind, _, key = KINDS[resource]
        return key.format("late") in service.mirror.state.keys(kind)

    await until(lambda: all(map(known, resources)), "what is made is seen")
    await until(lambda: service.unready() == [])
    assert service.stuck() == []


@pytest.mark.one_in(6)
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_watches_outlive_what_they_are_told(cluster: Cluster, start: StartService, stream: bytes) -> None:
    service = await start()
    for resource in KINDS:
        cluster.answer(f"/{resource}?", stream, times=3)
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: not cluster.proxy.faults)
    await recovers(cluster, service, *KINDS)


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("code", "content"),
    [
        (503, b'{"kind":"Status","code":"busy","details":null}'),
        (503, b'{"details":{"retryAfterSeconds":1e999}}'),
        (500, b"null"),
        (403, b'{"reason":"Forbidden"}'),
        (404, b"404 page not found"),
        (401, b""),
        (200, b"null"),
        (200, b'{"metadata":{},"items":[{}, null, 7, {"metadata":{"name":7}}]}'),
        (200, b"<html>log in</html>"),
    ],
)
async def test_lists_are_repeated_whatever_is_answered(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch, code: int, content: bytes
) -> None:
    for name in (
        "api_server.client._LONGEST_WAIT",
        "watch.reflector._FORBIDDEN_PERIOD",
        "watch.reflector._ABSENT_PERIOD",
    ):
        monkeypatch.setattr(f"stromboli.live.{name}", 0.05)
    for resource in KINDS:
        cluster.answer(f"/{resource}?", content, code, times=2)
    service = await start(wait=False)
    await until(lambda: not cluster.proxy.faults)
    await recovers(cluster, service, *KINDS)


@pytest.mark.parametrize("resource", ["queues", "podgroups"])
async def test_definitions_may_go_and_come_back(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    monkeypatch.setattr("stromboli.live.api_server.contact._PERIOD", 0.1)
    service = await start(contact_timeout=0.3)
    name = f"{resource}.scheduling.volcano.sh"
    cluster.gang("before", 2)
    await until(lambda: cluster.all_bound(2))
    definition = cluster.get(f"{DEFINITIONS}/{name}")
    cluster.delete(f"{DEFINITIONS}/{name}")
    kind = KINDS[resource][0]
    said = re.compile(f"{kind}: out of sync for .*install the CRD of {resource} with: kubectl apply -f ")
    await until(lambda: any(map(said.match, service.unready())))
    cluster.create(
        DEFINITIONS, {key: definition[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name}}
    )
    await until(lambda: service.unready() == [])
    if resource == "queues":
        # The service makes it again by itself, a minute later at most.
        with suppress(AssertionError):
            queue(cluster, "default")
    cluster.gang("after", 2)
    await until(lambda: cluster.all_bound(4))


async def test_watches_that_end_at_once_are_repeated_ever_more_seldom(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, burst = 10.0, 12.0
    monkeypatch.setattr("stromboli.live.groups.operator._REQUESTS", (rate, burst))
    await start()

    def all_watches(resource: str, limited: bool) -> list[float]:
        found = [(path, when) for path, when in cluster.proxy.requests if f"/{resource}?watch" in path]
        return [when for path, when in found if ("timeoutSeconds" in path) == limited]

    def watches(resource: str, *, limited: bool = True) -> list[float]:
        """When a reflector, or the operator, which sets no limit of time, watched again."""
        return all_watches(resource, limited)[1:]

    await until(lambda: all_watches("queues", limited=False) != [], "the operator watches")
    for resource in KINDS:
        cluster.answer(f"/{resource}?", b"", times=10_000)
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: all(len(watches(resource)) >= 5 for resource in KINDS))
    for resource in KINDS:
        pauses = [after - before for before, after in pairwise(watches(resource))]
        assert all(pause >= 0.1 * 2**n / 2 for n, pause in enumerate(pauses[1:])), (resource, pauses)
    await until(lambda: len(watches("queues", limited=False)) >= 20)
    of_operator = watches("queues", limited=False)
    assert len(of_operator) <= burst + 1 + rate * (of_operator[-1] - of_operator[0])


async def test_readiness_says_what_is_out_of_step_and_that_nobody_answers(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stromboli.live.api_server.contact._PERIOD", 0.2)
    service = await start(contact_timeout=0.7)
    await until(lambda: service.unready() == [])
    cluster.fail("GET", "/api/v1/pods", 500, times=10_000)
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: len(service.unready()) == 1)
    assert service.unready()[0].startswith("Pod: out of sync for ")
    assert "500 Fault: told to" in service.unready()[0]
    cluster.disconnect()
    await until(lambda: any(line.startswith("API server: no answer for ") for line in service.unready()))
    await until(lambda: {line.split(":")[0] for line in service.unready()} >= {"Pod", "Node", "Queue", "PodGroup"})
    cluster.proxy.faults.clear()
    cluster.reconnect()
    await until(lambda: service.unready() == [])


async def test_it_says_what_the_initial_lists_wait_for(cluster: Cluster, start: StartService) -> None:
    cluster.fail("GET", "/podgroups?", 403, times=10_000)
    service = await start(wait=False)
    await until(lambda: any("403" in line for line in service.unready()))
    line = next(line for line in service.unready() if line.startswith("PodGroup: not listed for "))
    assert "grant the right to list and watch podgroups with: helm upgrade" in line
    assert service.stuck() == []
    cluster.proxy.faults.clear()
    await until(lambda: service.unready() == [])


async def test_an_operator_that_fails_is_begun_anew(cluster: Cluster, start: StartService) -> None:
    """Its requests are those that set no time limit; here its watch fails, and the reflector's does not."""
    service = await start()
    watch = "/queues?watch=true&allowWatchBookmarks=true&resourceVersion="

    def lists() -> int:
        return sum(path.endswith("/queues") for path, _ in cluster.proxy.requests)

    def watches() -> bool:
        return any(watch in path and "timeoutSeconds" not in path for path, _ in cluster.proxy.requests)

    # The service has made its queues, too: that is a request to the same path.
    await until(lambda: watches() and len(cluster.items(f"{SCHEDULING}/queues")) == 2)
    before = lists()
    cluster.answer(watch, event("ERROR", object=status(500)), unless="timeoutSeconds")
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: lists() > before, "the operator lists again")
    await recovers(cluster, service, "queues")


async def test_an_operator_stops_though_a_task_of_kopf_swallows_its_cancellation(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a watch of kopf does that is cancelled while it ends: it goes on with the next."""
    swallowed: list[int] = []
    began, ended = threading.Event(), threading.Event()
    spawn = kopf.spawn_tasks

    async def stubborn() -> None:
        began.set()
        while len(swallowed) < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
        ended.set()

    async def with_another(*arguments: Any, **options: Any) -> Collection[asyncio.Task[None]]:
        return [*await spawn(*arguments, **options), asyncio.create_task(stubborn())]

    monkeypatch.setattr(kopf, "spawn_tasks", with_another)
    service = await start()
    await until(began.is_set)
    await service.stop()
    assert ended.is_set()


async def test_an_unreadable_event_is_made_good_by_a_list(cluster: Cluster, start: StartService) -> None:
    service = await start()
    cluster.answer("/nodes?", b"?\n", times=1)
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: ("Node", "unreadable") in recorder(service).relists)


async def test_a_login_that_fails_is_tried_again(cluster: Cluster, start: StartService) -> None:
    service = await start()
    config = cluster.kubeconfig.read_text()
    cluster.kubeconfig.write_text("}{")
    cluster.fail("GET", "/nodes?", 401, times=4)
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: not cluster.proxy.faults)
    cluster.kubeconfig.write_text(config)
    await recovers(cluster, service, "nodes")


async def test_watches_that_tell_of_errors_are_listed_anew_ever_more_seldom(
    cluster: Cluster, start: StartService
) -> None:
    await start()
    cluster.answer("/nodes?watch", event("ERROR", object=status(500)), times=10_000)
    cluster.disconnect()
    cluster.reconnect()

    def lists() -> list[float]:
        return [when for path, when in cluster.proxy.requests if "/nodes?limit" in path][1:]

    await until(lambda: len(lists()) >= 5)
    pauses = [after - before for before, after in pairwise(lists())]
    assert all(pause >= 0.1 * 2**n / 2 for n, pause in enumerate(pauses)), pauses


async def old_lists(cluster: Cluster, service: Service, times: int) -> None:
    """The next lists of pods are of when none of a gang was bound, which the service has seen since."""
    with cluster.held("POST", "/binding", 4):
        cluster.gang("gang", 4)
        before = cluster.raw("/api/v1/pods")
    pods = service.state.pods
    await until(lambda: len(pods.by_key) == 4 and all(pods.records[row].node_name for row in pods.by_key.values()))
    cluster.answer("/pods?watch", event("ERROR", object=status(410)))
    cluster.answer("/pods?limit", before, times=times)
    cluster.disconnect()
    cluster.reconnect()


async def test_a_list_from_before_what_was_seen_frees_no_place(cluster: Cluster, start: StartService) -> None:
    service = await start()
    await old_lists(cluster, service, times=3)
    await until(lambda: recorder(service).relists.count(("Pod", "old")) == 3)
    await until(lambda: service.unready() == [])
    assert cluster.count("POST", "/binding") == 4


async def test_when_all_lists_are_old_the_server_was_restored(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stromboli.live.watch.reflector._RESTORED", 0.5)
    caplog.set_level("INFO", "stromboli.live.watch.reflector")
    await old_lists(cluster, await start(), times=10_000)
    await until(lambda: "listed kind=Pod why=old objects=4 dropped=0" in caplog.text)


async def test_watches_that_end_at_once_but_told_of_something_are_taken_up_soon(
    cluster: Cluster, start: StartService
) -> None:
    """A minute would pass if each pause were longer than the one before."""
    service = await start()
    version = int(cluster.get("/api/v1/nodes")["metadata"]["resourceVersion"])
    for number in range(12):
        told = {"kind": "Node", "metadata": {"name": "n0", "resourceVersion": str(version - number % 2)}}
        cluster.answer("/nodes?watch", event("BOOKMARK", object=told))
    cluster.disconnect()
    cluster.reconnect()
    await until(lambda: not cluster.proxy.faults)
    await recovers(cluster, service, "nodes")
