"""Counters and histograms of the service's reports, next to the gauges of the last session."""

from __future__ import annotations

import platform
import time
from collections import Counter as Counts
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector

from stromboli.api.crds import PodGroupPhase
from stromboli.api.decisions import Decision, Evict, SetPodGroupStatus
from stromboli.api.pod_state import PodState
from stromboli.api.version import version
from stromboli.framework.session.session import Session
from stromboli.live.observer import Observer
from stromboli.metrics.definitions import Decisions, Jobs, Service, Sessions, Watching
from stromboli.metrics.sessions import SessionCollector

#: Volcano's label of the moments at which a plugin is called
_ON_SESSION = {"open": "OnSessionOpen", "close": "OnSessionClose"}
#: results of a binding, in the words of `schedule_attempts_total`
_ATTEMPTS = {"bound": "scheduled", "refused": "error", "failed": "error"}
#: phases of jobs that are not admitted, and of those that have not started
_UNADMITTED = ("", PodGroupPhase.Pending)
_WAITING = (*_UNADMITTED, PodGroupPhase.Inqueue)


class Registry(CollectorRegistry):
    """A registry without the `_created` series."""

    def collect(self) -> Iterable[Metric]:
        """All families."""
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class Metrics(Observer):
    """All metrics in `registry`, which must be its own. Written by one thread; scraped by any."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        self._last: Session | None = None
        #: start of the last session, seconds since the epoch
        self._last_at = 0.0
        #: number of sessions in which each job of the last session was not ready, by job key
        self._retries: dict[str, int] = {}
        self._attempts_to_preempt = 0
        #: when a pod of a job was last placed, seconds since the epoch, by job key
        self._placed: dict[str, float] = {}
        #: queues with series in counters and histograms
        self._labelled: set[str] = set()
        #: when a watch event was last applied, seconds since the epoch, by kind
        self.last_events: dict[str, float] = {}
        ProcessCollector(registry=registry)
        registry.register(SessionCollector(lambda: self._last))
        registry.register(_Remembered(self))
        self._make_of_sessions(registry)
        self._make_of_the_service(registry)

    def _make_of_sessions(self, registry: CollectorRegistry) -> None:
        self._sessions = Sessions.ENDED.counter(registry)
        self._session_seconds = Sessions.SECONDS.histogram(registry)
        self._snapshot_seconds = Sessions.SNAPSHOT.histogram(registry)
        self._plugin_failures = Sessions.FAILURES.counter(registry)
        self._cycle = Sessions.CYCLE.histogram(registry)
        self._open = Sessions.OPEN.histogram(registry)
        self._plugin = Sessions.PLUGIN.histogram(registry)
        self._action = Sessions.ACTION.histogram(registry)
        self._job = Jobs.LATENCY.histogram(registry)
        self._task = Jobs.POD_LATENCY.histogram(registry)
        self._admitted = Jobs.ADMITTED.counter(registry)
        self._waits = Jobs.WAIT.histogram(registry)
        self._victims = Decisions.VICTIMS.gauge(registry)
        self._transactions = Decisions.TRANSACTIONS.counter(registry)

    def _make_of_the_service(self, registry: CollectorRegistry) -> None:
        self._attempts = Decisions.ATTEMPTS.counter(registry)
        self._stage = Decisions.STAGE.histogram(registry)
        self._bindings = Decisions.BINDINGS.counter(registry)
        self._binding_seconds = Decisions.BINDING.histogram(registry)
        self._evictions = Decisions.EVICTIONS.counter(registry)
        self._writes = Decisions.WRITES.counter(registry)
        self._mended = Decisions.REPAIRS.counter(registry)
        # Looking up the series costs more than counting.
        self._events_of = cache(Watching.EVENTS.counter(registry).labels)
        self._event_seconds_of = cache(Watching.EFFECT.histogram(registry).labels)
        self._relists = Watching.RELISTS.counter(registry)
        self._malformed = Watching.MALFORMED.counter(registry)
        self._policy_errors = Service.POLICY_ERRORS.counter(registry)
        self._policy_good = Service.POLICY_GOOD.gauge(registry)
        self._policy_good.set(1)
        self._leading = Service.LEADING.gauge(registry)
        Service.BUILD.gauge(registry).labels(version(), platform.python_version()).set(1)

    # -- sessions --------------------------------------------------------------------------------------------------

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        session: Session = result.session
        self._last, self._last_at = session, now
        self._forget_queues(session)
        self._sessions.labels("completed").inc()
        self._session_seconds.observe(seconds)
        for failure in list(session.failures):
            self._plugin_failures.labels(failure.plugin, failure.point or failure.where).inc()
        self._time(session, seconds)
        self._count_places(session, now)
        self._count_decisions(session, result.decisions)
        self._attempts_to_preempt += session.ask.preemption_attempts
        retries, placed = self._retries, self._placed
        self._placed = {key: when for key, when in placed.items() if key in session.view.jobs}
        again = [job.key for job in session.view.jobs.made if job.unschedulable]
        known = {key: count for key, count in retries.items() if key in session.view.jobs}
        self._retries = known | {key: known.get(key, 0) + 1 for key in again}

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
        assumed, starting = self._task.labels("Assumed"), Counts[str]()
        for pod in session.view.records(np.flatnonzero(session.view.pods.state == PodState.Binding)):
            if pod.key not in session.bound:
                continue
            assumed.observe(1e3 * (now - pod.created))
            job = session.view.jobs.get(pod.job)
            if job is not None:
                self._job.observe(1e3 * (now - job.created))
                self._placed[job.key] = now
                starting[job.key] += 1
        for key, placed in starting.items():
            job = session.view.jobs[key]
            before, least = job.ready_count - placed, max(1, job.min_available)
            if before < least <= job.ready_count and job.pod_group.status.phase in _WAITING:
                self._waits.labels(self._labelling(job.queue.name)).observe(max(0.0, now - job.created))

    def _count_decisions(self, session: Session, decisions: list[Decision]) -> None:
        victims = Counts(decision.action for decision in decisions if isinstance(decision, Evict))
        for action in victims:
            self._transactions.labels(action).inc()
        self._victims.set(victims["preempt"])
        for decision in decisions:
            if isinstance(decision, SetPodGroupStatus) and decision.status.phase not in _UNADMITTED:
                job = session.view.jobs.get(decision.key)
                if job is not None and job.pod_group.status.phase in _UNADMITTED:
                    self._admitted.labels(self._labelling(job.queue.name)).inc()

    def _labelling(self, queue: str) -> str:
        """The label of a queue, whose series exist until it is deleted."""
        self._labelled.add(queue)
        return queue

    def _forget_queues(self, session: Session) -> None:
        """Drop the series of deleted queues."""
        for queue in self._labelled - session.view.queues.keys():
            for of_queues in (self._admitted, self._waits, self._evictions):
                of_queues.remove_by_labels({"queue": queue})
            self._labelled.discard(queue)

    # -- outcomes of decisions -------------------------------------------------------------------------------------

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

    def evicted(self, queue: str, reason: str) -> None:
        self._evictions.labels(self._labelling(queue), reason).inc()

    def status_result(self, kind: str, result: str) -> None:
        self._writes.labels(f"{kind}/status", result).inc()

    def event_result(self, result: str) -> None:
        self._writes.labels("Event", result).inc()

    # -- requests and changes --------------------------------------------------------------------------------------

    def watch_event(self, kind: str, type: str) -> None:
        self._events_of(kind, type).inc()
        self.last_events[kind] = time.time()

    def event_applied(self, kind: str, seconds: float) -> None:
        """A watch event was applied `seconds` after it was read."""
        self._event_seconds_of(kind).observe(seconds)

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
    def last_session_at(self) -> float:
        """Start of the last session, seconds since the epoch."""
        return self._last_at

    @property
    def placed(self) -> dict[str, float]:
        """Time of the last placement of a pod, by job key; a new dictionary after each session."""
        return self._placed

    @property
    def attempts_to_preempt(self) -> int:
        """Number of times that plugins were asked for preemption victims."""
        return self._attempts_to_preempt

    @property
    def retries(self) -> dict[str, int]:
        """Number of sessions in which a job was not ready, by job key; a new dictionary after each session."""
        return self._retries


class _Remembered(Collector):
    """Update facts about jobs across sessions."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All families that exist so far."""
        metrics = self._metrics
        yield Watching.LAST.family(([kind], when) for kind, when in sorted(metrics.last_events.items()))
        yield Decisions.PREEMPTIONS.family([([], metrics.attempts_to_preempt)])
        by_name: Counts[str] = Counts()
        for key, count in metrics.retries.items():
            by_name[key.partition("/")[2]] += count
        yield Jobs.RETRIES.family(([job], count) for job, count in by_name.items())
        session, placed = metrics.last_session, metrics.placed
        if session is None:
            return
        yield Sessions.LAST.family([([], metrics.last_session_at)])
        jobs = [([job.name, job.queue.name, job.namespace], job) for job in session.view.jobs.values()]
        yield Jobs.CREATED.family((labels, job.created) for labels, job in jobs)
        moved = [(labels, job.created, placed[job.key]) for labels, job in jobs if job.key in placed]
        yield Jobs.PLACED.family((labels, last) for labels, _, last in moved)
        yield Jobs.TOOK.family((labels, 1e3 * (last - created)) for labels, created, last in moved)
