"""What queues held over time, asked of a server that answers as Prometheus does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stromboli.engine import Engine
from stromboli.live.inputs import queue_usage

POLICY = """
actions: allocate
metrics: {type: prometheus, address: "http://127.0.0.1:1"}
tiers: [{plugins: [{name: fairshare, arguments: {ARGUMENTS}}]}]
"""


@pytest.fixture
async def asked() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of the server, and what it was asked."""
    queries: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        queries.append(request.query["query"])
        result: list[dict[str, Any]] = [
            {"metric": {"queue": "a", "resource": resource}, "value": [0, value]}
            for resource, value in (("cpu", "0.25"), ("memory", "0.5"), ("gpu", "NaN"))
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_get("/api/v1/query", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")), queries


async def test_the_average_over_the_window_is_asked_for(
    asked: tuple[str, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """What is no amount is left out, and told."""
    address, queries = asked
    usage = await queue_usage.read({"type": "prometheus", "address": address}, 3_600.0)
    assert usage == {"a": {"cpu": 0.25, "memory": 0.5}}
    assert "nan is not a number" in caplog.text
    assert queries == ["avg by (queue, resource) (avg_over_time(stromboli_queue_cluster_part[3600s]))"]


@pytest.mark.parametrize(
    ("arguments", "window"), [("usage.source: prometheus, usage.window: 2h", 7_200.0), ("usage.window: 2h", None)]
)
def test_nothing_is_asked_unless_the_policy_says_so(arguments: str, window: float | None) -> None:
    assert queue_usage.window_of(Engine(POLICY.replace("ARGUMENTS", arguments)).policy) == window
