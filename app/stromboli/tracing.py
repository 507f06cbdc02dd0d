"""OpenTelemetry spans of sessions, their actions, and the bindings of a job that leave together.

Off unless the environment names where spans go, in the variables that OpenTelemetry has for it. Times are those that
the session measured anyway, so a span is made when it is over, and nothing is measured for it.
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
from stromboli.framework.session import Session
from stromboli.live.logs import Logger
from stromboli.live.observer import Observer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span
    from opentelemetry.util.types import Attributes

log = Logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OFF = (("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"))
#: seconds that spans may take to leave when the service ends
_GRACE = 2.0
#: how many sessions are remembered whose bindings may still be on their way
_SESSIONS = 256


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment says where spans go, and does not say that they go nowhere."""
    named = any(environment.get(name) for name in _ENDPOINTS)
    return named and not any(environment.get(name, "").lower() == value for name, value in _OFF)


def from_environment() -> Tracing | None:
    """Spans as the environment asks for them; None when it asks for none, or the packages for it are not there."""
    if not wanted():
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("no spans are sent: stromboli[otel] is not installed", missing=error.name or str(error))
        return None
    return Tracing(BatchSpanProcessor(OTLPSpanExporter()))


class Tracing(Observer):
    """Makes spans and gives them to a processor."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = _provider(processor)
        self._tracer = self._provider.get_tracer("stromboli", version())
        self._number = 0
        #: the span of each of the last sessions, by its number
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
        """Send what is left, for as long as that may take."""
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
        """A span for each action: they follow each other, after the plugins opened and before they close."""
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
    """A provider of our own, for nobody else."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    ours = Resource({"service.name": "stromboli", "service.version": version()})
    # What the environment says of the service outweighs what we say.
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def _nanoseconds(seconds: float) -> int:
    return int(1e9 * seconds)
