"""Counters and histograms of what the service tells, beside the gauges of the last session."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from stromboli.api.decisions import Evict
from stromboli.api.pod_state import PodState
from stromboli.framework.session import Session
from stromboli.live.observer import Observer
from stromboli.metrics.sessions import SessionCollector


def geometric(low: float, high: float, count: int) -> list[float]:
    """Bounds of buckets from `low` to `high`, each the same multiple of the one before, to the digit as Go has them."""
    factor = (high / low) ** (1 / (count - 1))
    return [low * factor**i for i in range(count)]


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MICROSECONDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1.0)
_CYCLE = geometric(1, 5000, 20)
_JOB = geometric(100, 120_000, 30)
_POD = geometric(50, 60_000, 30)
_JOB_LABELS = ("job_name", "queue", "job_namespace")
#: Volcano's label of the moments at which a plugin is called
_ON_SESSION = {"open": "OnSessionOpen", "close": "OnSessionClose"}
#: how a binding ends, in the words of `schedule_attempts_total`
_ATTEMPTS = {"bound": "scheduled", "refused": "error", "failed": "error"}


class Metrics(Observer):
    """Everything in `registry`, which is nobody else's. Feed it from one thread; it may be scraped from another."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._last: Session | None = None
        #: sessions in which a job was not ready, by job key, for the jobs of the last session
        self._retries: dict[str, int] = {}
        self._attempts_to_preempt = 0
        #: when a pod of a job was last given a place, seconds since the epoch, by job key
        self._placed: dict[str, float] = {}
        ProcessCollector(registry=registry)
        registry.register(SessionCollector(lambda: self._last))
        registry.register(_Untyped(self))
        registry.register(_JobTimes(self))
        self._make_volcano(registry)
        self._make_own(registry)

    def _make_volcano(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: list[float]) -> Histogram:
            return Histogram(f"volcano_{name}", text, labels, buckets=buckets, registry=registry)

        self._cycle = histogram("e2e_scheduling_latency_milliseconds", "Duration of a session.", (), _CYCLE)
        self._open = histogram(
            "open_session_duration_milliseconds", "Duration of a session before its first action.", (), _CYCLE
        )
        self._plugin = histogram(
            "plugin_scheduling_latency_milliseconds",
            "Duration of a plugin's opening and closing.",
            ("plugin", "OnSession"),
            geometric(0.1, 100, 15),
        )
        self._action = histogram(
            "action_scheduling_latency_milliseconds", "Duration of an action.", ("action",), geometric(1, 2000, 20)
        )
        self._job = histogram(
            "e2e_job_scheduling_latency_milliseconds",
            "Time from the creation of a PodGroup to the decision on each of its pods.",
            (),
            _JOB,
        )
        self._task = histogram(
            "task_scheduling_latency_milliseconds", "Time from the creation of a pod to a stage.", ("stage",), _POD
        )
        self._stage = histogram(
            "scheduling_stage_duration_milliseconds",
            "Duration of a stage for one pod.",
            ("stage",),
            geometric(0.1, 500, 20),
        )
        self._attempts = Counter(
            "volcano_schedule_attempts",
            "Pods bound (scheduled), found without a place by a session (unschedulable), or not bound (error).",
            ("result",),
            registry=registry,
        )
        self._evictions = Counter(
            "volcano_eviction_transactions", "Sessions in which an action evicted.", ("action",), registry=registry
        )
        self._victims = Gauge(
            "volcano_pod_preemption_victims", "Pods that the last session preempted.", registry=registry
        )

    def _make_own(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stromboli_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"stromboli_{name}", text, labels, buckets=buckets, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"stromboli_{name}", text, registry=registry)

        self._sessions = counter("sessions", "Sessions by how they ended: completed or failed.", "result")
        self._plugin_failures = counter("plugin_failures", "Errors that plugins raised.", "plugin")
        self._session_seconds = histogram("session_seconds", "Duration of a session.")
        self._snapshot_seconds = histogram("snapshot_seconds", "Duration of taking a snapshot.")
        self._bindings = counter("bindings", "Bindings by how they ended.", "result")
        self._binding_seconds = histogram("binding_seconds", "Time that the API server took for a binding.")
        self._writes = counter("api_writes", "Writes to the API server by object and how they ended.", "kind", "result")
        self._events = counter("watch_events", "Watch events that were applied.", "kind", "type")
        self._event_seconds = histogram(
            "watch_event_seconds", "Time from reading a watch event to its effect.", "kind", buckets=_MICROSECONDS
        )
        self._relists = counter("relists", "Lists of a kind by why it was listed.", "kind", "why")
        self._malformed = counter("malformed_objects", "Objects that could not be read.", "kind")
        self._policy_errors = counter("policy_reload_errors", "Times that a new policy was refused.")
        self._policy_good = gauge("policy_last_reload_successful", "1 unless the policy file was last refused.")
        self._policy_good.set(1)
        self._mended = counter("takeover_repairs", "Gangs found begun, and pods evicted, after a take-over.", "object")
        self._leading = gauge("leading", "1 while this replica is the one that schedules.")

    # -- sessions --------------------------------------------------------------------------------------------------

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        session: Session = result.session
        self._last = session
        self._sessions.labels("completed").inc()
        self._session_seconds.observe(seconds)
        for failure in session.failures:
            self._plugin_failures.labels(failure.plugin).inc()
        self._time(session, seconds)
        self._count_places(session, now)
        self._count_evictions(result.decisions)
        self._attempts_to_preempt += session.ask.preemption_attempts
        retries, placed = self._retries, self._placed
        self._placed = {key: placed[key] for key in session.view.jobs if key in placed} if placed else {}
        self._retries = {job.key: retries.get(job.key, 0) + job.unschedulable for job in session.view.jobs.values()}

    def session_failed(self, error: BaseException) -> None:
        self._sessions.labels("failed").inc()

    def snapshot(self, seconds: float) -> None:
        self._snapshot_seconds.observe(seconds)

    def _time(self, session: Session, seconds: float) -> None:
        timings = session.timings
        later = sum(timings.actions.values()) + sum(s for (_, what), s in timings.plugins.items() if what == "close")
        self._cycle.observe(1e3 * seconds)
        self._open.observe(1e3 * max(0.0, seconds - later))
        for action, spent in timings.actions.items():
            self._action.labels(action).observe(1e3 * spent)
        for (plugin, what), spent in timings.plugins.items():
            self._plugin.labels(plugin, _ON_SESSION[what]).observe(1e3 * spent)

    def _count_places(self, session: Session, now: float) -> None:
        unschedulable = len(session.view.trace.pods)
        if unschedulable:
            self._attempts.labels("unschedulable").inc(unschedulable)
        if not session.bound:
            return
        assumed = self._task.labels("Assumed")
        for pod in session.view.records(np.flatnonzero(session.view.pods.state == PodState.Binding)):
            if pod.key not in session.bound:
                continue
            assumed.observe(1e3 * (now - pod.created))
            job = session.view.jobs.get(pod.job)
            if job is not None:
                self._job.observe(1e3 * (now - job.created))
                self._placed[job.key] = now

    def _count_evictions(self, decisions: list[Any]) -> None:
        victims = Counts(decision.action for decision in decisions if isinstance(decision, Evict))
        for action in victims:
            self._evictions.labels(action).inc()
        self._victims.set(victims["preempt"])

    # -- what came of decisions ------------------------------------------------------------------------------------

    def bind_result(self, result: str, seconds: float) -> None:
        self._bindings.labels(result).inc()
        if result not in _ATTEMPTS:
            return
        self._attempts.labels(_ATTEMPTS[result]).inc()
        self._writes.labels("Binding", result).inc()
        self._binding_seconds.observe(seconds)
        if result == "bound":
            self._stage.labels("Bind").observe(1e3 * seconds)

    def evict_result(self, result: str, seconds: float) -> None:
        self._writes.labels("Eviction", result).inc()

    def status_result(self, kind: str, result: str) -> None:
        self._writes.labels(f"{kind}/status", result).inc()

    def event_result(self, result: str) -> None:
        self._writes.labels("Event", result).inc()

    # -- what comes in ---------------------------------------------------------------------------------------------

    def watch_event(self, kind: str, type: str) -> None:
        self._events.labels(kind, type).inc()

    def event_applied(self, kind: str, seconds: float) -> None:
        """A watch event took effect so many seconds after it was read."""
        self._event_seconds.labels(kind).observe(seconds)

    def relist(self, kind: str, why: str) -> None:
        self._relists.labels(kind, why).inc()

    def malformed(self, kind: str, key: str) -> None:
        self._malformed.labels(kind).inc()

    def policy(self, error: str | None) -> None:
        self._policy_good.set(error is None)
        if error is not None:
            self._policy_errors.inc()

    def mended(self, what: str) -> None:
        self._mended.labels(what).inc()

    def leading(self, leads: bool) -> None:
        self._leading.set(leads)

    @property
    def last_session(self) -> Session | None:
        """The last session; None before the first has ended."""
        return self._last

    @property
    def placed(self) -> dict[str, float]:
        """When a pod of a job was last given a place, by job key; a new dictionary after each session."""
        return self._placed

    @property
    def attempts_to_preempt(self) -> int:
        """How often plugins were asked for victims of preemption."""
        return self._attempts_to_preempt

    @property
    def retries(self) -> dict[str, int]:
        """Sessions in which a job was not ready, by job key; a new dictionary after each session."""
        return self._retries


class _Untyped(Collector):
    """Volcano's counters without the suffix that counters have, so they go out untyped."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        by_name: Counts[str] = Counts()
        for key, count in self._metrics.retries.items():
            if count:
                by_name[key.partition("/")[2]] += count
        name = "volcano_job_retry_counts"
        metric = Metric(name, "Sessions in which a job was not ready; jobs of one name are added up.", "unknown")
        for job, count in by_name.items():
            metric.add_sample(name, {"job_id": job}, count)
        yield metric
        name = "volcano_total_preemption_attempts"
        metric = Metric(name, "How often plugins were asked for victims of preemption.", "unknown")
        metric.add_sample(name, {}, self._metrics.attempts_to_preempt)
        yield metric


class _JobTimes(Collector):
    """When jobs came and when their pods got places, of the jobs of the last session."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        session, placed = self._metrics.last_session, self._metrics.placed
        jobs = [] if session is None else list(session.view.jobs.values())
        for what, text, values in (
            ("start_time", "When a job was created, seconds since the epoch.", {j.key: j.created for j in jobs}),
            ("last_time", "When a pod of a job was last given a place, seconds since the epoch.", placed),
            (
                "duration",
                "Time from the creation of a job to the last place for one of its pods, in milliseconds.",
                {job.key: 1e3 * (placed[job.key] - job.created) for job in jobs if job.key in placed},
            ),
        ):
            family = GaugeMetricFamily(f"volcano_e2e_job_scheduling_{what}", text, labels=_JOB_LABELS)
            for job in jobs:
                if job.key in values:
                    family.add_metric([job.name, job.queue.name, job.namespace], values[job.key])
            yield family
