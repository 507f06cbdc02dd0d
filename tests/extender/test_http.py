"""Probes, and the server as it runs inside another program's event loop."""

from __future__ import annotations

import asyncio
import signal
import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry

from stromboli.extender import Standing
from stromboli.http.server import Probes, listen, make_app, serve
from stromboli.metrics import Metrics
from tests import builders
from tests.extender.questions import by_name, published


def probe(ready: list[str], stuck: list[str]) -> httpx.AsyncClient:
    app = make_app(Standing(lambda: None), CollectorRegistry(), Probes(lambda: ready, lambda: stuck))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stromboli")


async def test_it_is_ready_when_nothing_is_missing() -> None:
    missing = ["pods are not listed", "no session has ended"]
    async with probe(missing, []) as http:
        response = await http.get("/readyz")
        assert (response.status_code, response.text) == (503, "pods are not listed\nno session has ended\n")
        missing.clear()
        response = await http.get("/readyz")
        assert (response.status_code, response.text) == (200, "ok\n")


async def test_who_is_ready_tells_of_plugins_that_failed() -> None:
    failing = ["plugin odd failed in node_order: LookupError: no such team"]
    app = make_app(lambda: None, CollectorRegistry(), Probes(notes=lambda: failing))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stromboli") as http:
        response = await http.get("/readyz")
        assert (response.status_code, response.text) == (200, f"ok\n{failing[0]}\n")


async def test_it_is_alive_while_its_parts_make_progress() -> None:
    stuck: list[str] = []
    async with probe(["no session has ended"], stuck) as http:
        assert (await http.get("/healthz")).status_code == 200
        stuck.append("a session has been running for 301 s")
        response = await http.get("/healthz")
        assert (response.status_code, response.text) == (503, "a session has been running for 301 s\n")


@pytest.mark.parametrize("address", ["127.0.0.1:0", ":0", "[::1]:0"])
def test_it_listens_on(address: str) -> None:
    with listen(address) as listening:
        assert listening.getsockname()[1] > 0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_without_a_host_it_listens_on_all_addresses_of_both_families(family: socket.AddressFamily) -> None:
    with listen(":0") as listening, socket.socket(family) as client:
        client.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", listening.getsockname()[1]))


def test_an_answer_is_sent_without_waiting_for_an_acknowledgement() -> None:
    with listen("127.0.0.1:0") as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("address", ["8080", "localhost", "127.0.0.1:http", "127.0.0.1:", ":65536"])
def test_it_does_not_listen_on(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as"):
        listen(address)


def test_an_address_in_use_is_an_error_of_the_system() -> None:
    with listen("127.0.0.1:0") as taken, pytest.raises(OSError, match="in use"):
        listen(f"127.0.0.1:{taken.getsockname()[1]}")


async def test_it_serves_until_cancelled_and_leaves_signals_alone() -> None:
    pod = builders.pod("a", "a")
    state = builders.state(builders.node("n0"), builders.queue("default"), builders.pod_group("a"), pod)
    seen, metrics = published(state, builders.policy("gang", "predicates")), Metrics()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    listening = listen("127.0.0.1:0")
    port = listening.getsockname()[1]
    server = asyncio.create_task(serve(make_app(Standing(lambda: seen), metrics.registry, Probes()), listening))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        answer = await http.post("/filter", content=by_name(pod, ["n0", "n1"]))
        assert answer.json()["NodeNames"] == ["n0"]
        scrape = await http.get("/metrics")
        assert scrape.headers["content-type"].startswith("text/plain; version=")
        assert "stromboli_policy_last_reload_successful 1.0" in scrape.text
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    with listen(f"127.0.0.1:{port}"):
        pass
