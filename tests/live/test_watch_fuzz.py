"""Whatever a list or a watch holds, a reflector comes into step again, and nothing is our mistake."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.observer import Observer
from stromboli.live.process.limits import Backoff
from stromboli.live.watch import reflector as reflectors
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import SOURCES
from stromboli.state.cluster import ClusterState
from tests.builders import READS
from tests.fuzz import CHANGES, Change, changed, tried
from tests.test_gate import base

_KINDS = ("Pod", "Node", "PodGroup", "ResourceSlice")
_SOURCES = {source.kind: source for source in SOURCES}
_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
_RAW = (b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 5_000, b'{"type":"ADDED","object":' * 2_000, b'{"type":"ERROR"}')


def event(kind: str, type: str) -> Any:
    """A sound event."""
    metadata = {**base(kind)["metadata"], "resourceVersion": "7", "creationTimestamp": "2024-01-01T00:00:00Z"}
    status = {"kind": "Status", "code": 410, "reason": "Expired", "details": {"retryAfterSeconds": 0}}
    return {"type": type, "object": status if type == "ERROR" else {**base(kind), "metadata": metadata}}


class Script:
    """An API server that says what it is told to, and then what is so: there is one object, `last`."""

    def __init__(self, kind: str, listed: bytes, lines: list[bytes]) -> None:
        self._sound = {**base(kind), "metadata": {**base(kind)["metadata"], "name": "last"}}
        self._listed: bytes | None = listed
        self._lines: list[bytes] | None = lines
        self.end = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        listed, self._listed = self._listed, None
        # When the watch has said all, the list is what is so.
        items = [self._sound] if self._lines is None else []
        sound = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
        return web.Response(body=sound if listed is None else listed, content_type="application/json")

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        lines, self._lines = self._lines, None
        if lines is not None:
            await response.write(b"\n".join(lines) + b"\n")
            return response
        await response.write(json.dumps({"type": "ADDED", "object": self._sound}).encode() + b"\n")
        await self.end.wait()
        return response


def _config(port: int) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


async def follow(kind: str, listed: bytes, lines: list[bytes], kubeconfig: Path) -> ClusterState:
    """The state after a reflector followed a script to its end."""
    script = Script(kind, listed, lines)
    runner = web.ServerRunner(web.Server(script.answer, access_log=None), shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = _config(runner.addresses[0][1])
    await asyncio.to_thread(kubeconfig.write_text, json.dumps(config))
    kube = Kube(Credentials.load(kubeconfig, None))
    mirror, seen = Mirror(ClusterState(["stromboli"], reads=READS), lambda urgent: None, Observer()), asyncio.Event()

    def listen(type: str, obj: Any) -> None:
        metadata = obj.get("metadata", {}) if isinstance(obj, dict) else getattr(obj, "metadata", None)
        if (metadata["name"] if isinstance(metadata, dict) else getattr(metadata, "name", "")) == "last":
            seen.set()

    mirror.listen(kind, listen)
    task = asyncio.create_task(Reflector(kube, _SOURCES[kind], mirror, Observer()).run())
    try:
        await asyncio.wait_for(seen.wait(), 60)
        assert not task.done()
        return mirror.state
    finally:
        script.end.set()
        task.cancel()
        await asyncio.wait((task,))
        await kube.close()
        await runner.cleanup()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that are short."""
    monkeypatch.setattr(reflectors, "Backoff", lambda first, limit: Backoff(1e-4, 1e-3))
    monkeypatch.setattr(reflectors, "_FORBIDDEN_PERIOD", 1e-3)
    monkeypatch.setattr(reflectors, "_ABSENT_PERIOD", 1e-3)
    monkeypatch.setattr(reflectors, "_RESTORED", 0.0)


def _line(kind: str, type: str, changes: Any, cut: int | None) -> bytes:
    line = json.dumps(changed(event(kind, type), changes)).encode()
    return line if cut is None else line[: cut % len(line)]


def _lines(kind: str) -> st.SearchStrategy[list[bytes]]:
    none: list[Change] = []
    changes = st.just(none) | CHANGES
    made = st.builds(
        partial(_line, kind), st.sampled_from(_TYPES), changes, st.none() | st.none() | st.integers(0, 10_000)
    )
    return st.lists(made | st.sampled_from(_RAW) | st.binary(max_size=50), min_size=1, max_size=6)


def _list(kind: str) -> st.SearchStrategy[bytes]:
    sound = {"metadata": {"resourceVersion": "3"}, "items": [event(kind, "ADDED")["object"]] * 2}
    none: list[Change] = []
    return (st.just(none) | CHANGES).map(
        lambda changes: json.dumps(changed(sound, changes)).encode()
    ) | st.sampled_from(_RAW)


_STREAMS = st.sampled_from(_KINDS).flatmap(lambda kind: st.tuples(st.just(kind), _list(kind), _lines(kind)))


@tried(15)
@given(_STREAMS)
def test_any_list_and_any_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: tuple[str, bytes, list[bytes]]
) -> None:
    kind, listed, lines = stream
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        state = asyncio.run(follow(kind, listed, lines, tmp_path / "kubeconfig"))
    assert any(key.endswith("last") for key in state.keys(kind))
    assert "reflector failed" not in caplog.text
