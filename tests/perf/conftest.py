"""The service's fixtures, and a record of what reaches the API server."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.live.cluster import Proxy
from tests.live.conftest import bare_cluster, cluster, definitions, options, start
from tests.perf.writes import Write

__all__ = ["bare_cluster", "cluster", "definitions", "options", "start", "writes"]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """What a service that is started later writes, in order of arrival."""
    found: list[Write] = []
    handle = Proxy._handle

    async def record(proxy: Proxy, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET":
            found.append(Write(request.method, request.path, await request.read()))
        return await handle(proxy, request)

    monkeypatch.setattr(Proxy, "_handle", record)
    return found
