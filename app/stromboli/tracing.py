"""OpenTelemetry spans of sessions, their actions, and the bindings of a job.

Off unless OpenTelemetry's environment variables configure an exporter. Times are measured by the session in any case,
so spans are created when they are over, at no cost to the session.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stromboli.api.decisions import Bind, Evict
from stromboli.api.version import version
from stromboli.framework.session.session import Session
from stromboli.live.observer import Observer
from stromboli.live.process.logs import Logger

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span
    from opentelemetry.util.types import Attributes

log = Logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OFF = (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"))
#: seconds for exporting the last spans at shutdown
_GRACE = 2.0
#: number of sessions that are remembered for bindings in flight
_SESSIONS = 256


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment configures an exporter."""
    named = any(environment.get(name) for name in _ENDPOINTS)
    return named and not any(environment.get(name, "").lower() == value for name, value in _OFF)


def from_environment() -> Tracing | None:
    """Spans as the environment configures them; None if it does not, or the packages are missing."""
    if not wanted():
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("no spans are exported: stromboli[otel] is not installed", missing=error.name or str(error))
        return None
    return Tracing(BatchSpanProcessor(OTLPSpanExporter()))


class Tracing(Observer):
    """Creates spans and passes them to a processor."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = _provider(processor)
        self._tracer = self._provider.get_tracer("stromboli", version())
        self._number = 0
        #: the span of each of the last sessions, by number
        self._contexts: OrderedDict[int, Context] = OrderedDict()

    def session_began(self, number: int) -> None:
        self._number = number

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        ended, session = time.time_ns(), result.session
        began = ended - _nanoseconds(seconds)
        counts = {kind: sum(isinstance(each, kind) for each in result.decisions) for kind in (Bind, Evict)}
        span = self._session(began, bound=counts[Bind], evicted=counts[Evict], jobs=len(session.view.jobs))
        self._actions(session, began, ended)
        span.end(ended)

    def session_failed(self, error: BaseException) -> None:
        from opentelemetry.trace import Status, StatusCode

        span = self._session(time.time_ns())
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    def bind_batch(self, session: int, job: str, queue: str, bound: int, seconds: float) -> None:
        ended = time.time_ns()
        about: Attributes = {
            "stromboli.session": session,
            "stromboli.job": job,
            "stromboli.queue": queue,
            "stromboli.bound": bound,
        }
        began = ended - _nanoseconds(seconds)
        self._tracer.start_span("bind", self._contexts.get(session), attributes=about, start_time=began).end(ended)

    def close(self) -> None:
        """Export the remaining spans, within a time limit."""
        leaving = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        leaving.start()
        leaving.join(_GRACE)

    def _session(self, began: int, **counts: int) -> Span:
        from opentelemetry.trace import set_span_in_context

        about = {"stromboli.session": self._number} | {f"stromboli.{name}": count for name, count in counts.items()}
        span = self._tracer.start_span("session", attributes=about, start_time=began)
        self._contexts[self._number] = set_span_in_context(span)
        if len(self._contexts) > _SESSIONS:
            self._contexts.popitem(last=False)
        return span

    def _actions(self, session: Session, began: int, ended: int) -> None:
        """A span for each action, consecutively, between the opening and closing of plugins."""
        spent = {name: _nanoseconds(seconds) for name, seconds in session.timings.actions.items()}
        closing = sum(seconds for (_, what), seconds in session.timings.plugins.items() if what == "close")
        at = max(began, ended - _nanoseconds(closing) - sum(spent.values()))
        for name, duration in spent.items():
            about: Attributes = {"stromboli.session": self._number, "stromboli.action": name}
            parent = self._contexts[self._number]
            span = self._tracer.start_span(f"action {name}", parent, attributes=about, start_time=at)
            at = min(ended, at + duration)
            span.end(at)


def _provider(processor: SpanProcessor) -> TracerProvider:
    """A tracer provider of our own, not the global one."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    ours = Resource({"service.name": "stromboli", "service.version": version()})
    # Resource attributes of the environment take precedence.
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def _nanoseconds(seconds: float) -> int:
    return int(1e9 * seconds)
