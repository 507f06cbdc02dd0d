"""What spans tell of sessions, actions and bindings, and when there are none."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from stromboli.live.observer import Observer, Observers
from stromboli.metrics import Metrics
from stromboli.tracing import Tracing, from_environment, wanted
from tests import builders

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    return Tracing(SimpleSpanProcessor(exporter))


def tick(observer: Observer, number: int = 1) -> None:
    """A session that binds a gang of two, told as the tick loop tells it."""
    group = builders.pod_group("train", 2)
    state = builders.state(builders.node("n"), builders.queue("default", weight=1), group, builders.gang("train", 2))
    snapshot, ticking = state.snapshot(), iter(range(1_000))
    observer.session_began(number)
    result = builders.Engine(builders.policy("gang", "predicates", actions="enqueue, allocate")).decide(
        snapshot, now=builders.NOON, clock=lambda: 0.001 * next(ticking)
    )
    observer.session(snapshot, result, builders.NOON, 0.5)


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_session_has_its_actions_and_the_bindings_that_it_decided(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    tick(tracing, 7)
    tick(tracing, 8)
    tracing.bind_batch(7, "default/train", "default", bound=2, seconds=0.25)
    first, bind = (next(s for s in exporter.get_finished_spans() if s.name == name) for name in ("session", "bind"))
    assert dict(first.attributes or {}) == {
        "stromboli.session": 7, "stromboli.bound": 2, "stromboli.evicted": 0, "stromboli.jobs": 1,
    }  # fmt: skip
    assert {"stromboli.job": "default/train", "stromboli.queue": "default", "stromboli.bound": 2}.items() <= dict(
        bind.attributes or {}
    ).items()
    actions = [s for s in exporter.get_finished_spans() if s.name.startswith("action ")][:2]
    assert [span.name for span in actions] == ["action enqueue", "action allocate"]
    assert first.context is not None
    assert {span.parent.span_id for span in (*actions, bind) if span.parent} == {first.context.span_id}
    times = [at for span in actions for at in (span.start_time, span.end_time)]
    assert times == sorted(times, key=lambda at: at or 0)
    assert (first.end_time or 0) - (first.start_time or 0) == 500_000_000
    assert (bind.end_time or 0) - (bind.start_time or 0) == 250_000_000
    assert first.resource.attributes["service.name"] == "stromboli"


def test_a_session_that_fails_says_why(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    tracing.session_began(1)
    tracing.session_failed(RuntimeError("no dice"))
    [span] = exporter.get_finished_spans()
    assert (span.name, span.status.status_code, span.status.description) == ("session", StatusCode.ERROR, "no dice")


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({ENDPOINT: "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({ENDPOINT: "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({ENDPOINT: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_made_when_the_environment_says_where_they_go(environment: dict[str, str], on: bool) -> None:
    assert wanted(environment) is on


def test_without_an_endpoint_nobody_is_told() -> None:
    assert from_environment() is None


class _Collector(HTTPServer):
    """Takes what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.posted: list[tuple[str, bytes]] = []


class _Post(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        self.server.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[_Collector]:
    with _Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_spans_go_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, collector: _Collector) -> None:
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "queues-of-paris")
    tracing = from_environment()
    assert tracing is not None
    tick(tracing)
    tracing.close()
    [(path, body)] = collector.posted
    assert path == "/v1/traces"
    assert all(word in body for word in (b"queues-of-paris", b"action allocate", b"stromboli.session"))


def test_without_the_packages_a_line_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        assert from_environment() is None
    assert "stromboli[otel] is not installed" in caplog.text


def test_several_observers_are_told_and_one_alone_is_told_directly() -> None:
    exporter = InMemorySpanExporter()
    metrics, tracing = Metrics(), Tracing(SimpleSpanProcessor(exporter))
    both = Observers(metrics, tracing)
    tick(both)
    assert metrics.last_session is not None
    assert "session" in by_name(exporter)
    assert both.bind_result == metrics.bind_result
    assert both.bind_batch == tracing.bind_batch
