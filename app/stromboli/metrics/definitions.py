"""Every metric by subject: its name as it is scraped, its labels, and what it says.

Series are made from these definitions, and so is docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from stromboli.api.crds import PodGroupPhase

#: `untyped` are Volcano's counters without the suffix that counters have
Kind = Literal["counter", "gauge", "histogram", "untyped"]

_QUEUE = "queue"
#: Volcano's name of the same label
_QUEUE_NAME = "queue_name"
_JOB = ("job_name", "queue", "job_namespace")


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. Buckets are the upper bounds of a histogram's, in the unit that its name ends with."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def family(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """What a scrape shows of a gauge or of what is untyped: values of the labels, in their order, and a number."""
        family = Metric(self.name, self.text, "unknown" if self.kind == "untyped" else self.kind)
        for values, number in samples:
            family.add_sample(self.name, dict(zip(self.labels, values, strict=True)), number)
        return family

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """A gauge in a registry, to be set."""
        return Gauge(self.name, self.text, self.labels, registry=registry)

    def counter(self, registry: CollectorRegistry) -> Counter:
        """A counter in a registry."""
        return Counter(self.name, self.text, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """A histogram in a registry."""
        return Histogram(self.name, self.text, self.labels, buckets=self.buckets, registry=registry)


def _gauge(name: str, text: str, *labels: str) -> Definition:
    return Definition(name, "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> Definition:
    return Definition(name, "counter", text, labels)


def _untyped(name: str, text: str, *labels: str) -> Definition:
    return Definition(name, "untyped", text, labels)


def _histogram(name: str, text: str, *labels: str, buckets: Iterable[float]) -> Definition:
    return Definition(name, "histogram", text, labels, tuple(buckets))


def geometric(low: float, high: float, count: int) -> list[float]:
    """Bounds of buckets from `low` to `high`, each the same multiple of the one before, to the digit as Go has them."""
    factor = (high / low) ** (1 / (count - 1))
    return [low * factor**i for i in range(count)]


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MICROSECONDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1.0)
#: a second to a week
_WAITING = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
_CYCLE = geometric(1, 5000, 20)
_POD = geometric(50, 60_000, 30)


@dataclass(frozen=True, slots=True)
class Amounts:
    """The gauges of one amount of queues, in Volcano's units."""

    milli_cpu: Definition
    memory_bytes: Definition
    memory: Definition
    scalars: Definition

    @classmethod
    def of(cls, amount: str, text: str) -> Amounts:
        """Those of an amount that the text says more about."""
        name = f"volcano_queue_{amount}"
        return cls(
            _gauge(f"{name}_milli_cpu", f"{text}: milli-CPU.", _QUEUE_NAME),
            _gauge(f"{name}_memory_bytes", f"{text}: memory in bytes.", _QUEUE_NAME),
            _gauge(f"{name}_memory", f"{text}: memory in bytes, under an older name.", _QUEUE_NAME),
            _gauge(
                f"{name}_scalar_resources",
                f"{text}: other resources, in thousandths except pods.",
                _QUEUE_NAME,
                "resource",
            ),
        )


class Queues:
    """What queues have and ask for. Gauges of the last session; a queue that is gone has no series.

    Amounts are in milli-CPU, bytes and thousandths of all else, pods as they are. What has no limit is 1.797e308, as
    Volcano writes it.
    """

    AMOUNTS: ClassVar = {
        "allocated": Amounts.of("allocated", "What the pods of a queue hold"),
        "request": Amounts.of("request", "What the pods of a queue hold and ask for"),
        "deserved": Amounts.of("deserved", "What a queue deserves"),
        "inqueue": Amounts.of("inqueue", "What admitted jobs of a queue claim and do not hold yet"),
        "capacity": Amounts.of("capacity", "What a queue may hold at most, where the plugin that divides limits it"),
        "real_capacity": Amounts.of("real_capacity", "The same without what is guaranteed to other queues"),
    }
    SHARE = _gauge(
        "volcano_queue_share",
        "The largest part of what a queue deserves that it holds, over all resources.",
        _QUEUE_NAME,
    )
    WEIGHT = _gauge("volcano_queue_weight", "The weight of a queue.", _QUEUE_NAME)
    OVERUSED = _gauge("volcano_queue_overused", "Whether a queue gets nothing more: 1 if so.", _QUEUE_NAME)
    POD_GROUPS: ClassVar = {
        phase: _gauge(
            f"volcano_queue_pod_group_{phase.lower()}_count", f"PodGroups of a queue in phase {phase}.", _QUEUE_NAME
        )
        for phase in PodGroupPhase
    }
    CAPABILITY = _gauge(
        "stromboli_queue_capability", "spec.capability of a queue, whatever the policy.", _QUEUE, "resource"
    )
    GUARANTEE = _gauge(
        "stromboli_queue_guarantee", "spec.guarantee of a queue, whatever the policy.", _QUEUE, "resource"
    )
    #: what the plugin fairshare worked out
    FAIR_SHARES: ClassVar = {
        "fair_share": _gauge(
            "stromboli_queue_fair_share",
            "What a queue is entitled to, over its quota as well (fairshare).",
            _QUEUE,
            "resource",
        ),
        "usage": _gauge(
            "stromboli_queue_usage",
            "What a queue held over time, as a part of the cluster (fairshare).",
            _QUEUE,
            "resource",
        ),
        "cluster_part": _gauge(
            "stromboli_queue_cluster_part",
            "What a queue holds, as a part of what is divided between queues (fairshare).",
            _QUEUE,
            "resource",
        ),
        "saturation": _gauge(
            "stromboli_queue_saturation",
            "What a queue holds, as a part of its fair share (fairshare).",
            _QUEUE,
            "resource",
        ),
    }


class Jobs:
    """Who waits, for how long, and why. A job is a PodGroup; jobs and queues that are gone have no series."""

    PENDING = _gauge(
        "stromboli_pending_pods",
        "Pods without a place, by queue and by what keeps them from it; in no queue it is empty.",
        _QUEUE,
        "stage",
        "reason",
    )
    ADMITTED = _counter("stromboli_admitted_jobs_total", "Jobs that were admitted: their phase left Pending.", _QUEUE)
    WAIT = _histogram(
        "stromboli_job_wait_seconds",
        "Time from the creation of a job until as many of its pods got places as it starts with.",
        _QUEUE,
        buckets=_WAITING,
    )
    PHASES = _gauge("stromboli_jobs", "PodGroups in the session.", "phase")
    PODS = _gauge("stromboli_pods", "Pods in the session.", "state")
    ASSUMED = _gauge(
        "stromboli_assumed_pods", "Pods that have a place by decision and wait for their binding to be seen."
    )
    UNSCHEDULABLE = _gauge("volcano_unschedule_job_count", "Jobs that are not ready and cannot be.")
    MISSING = _gauge(
        "volcano_unschedule_task_count",
        "Pods that a job lacks until it is ready; jobs of one name in several namespaces are added up.",
        "job_id",
    )
    RETRIES = _untyped(
        "volcano_job_retry_counts", "Sessions in which a job was not ready; jobs of one name are added up.", "job_id"
    )
    SHARE = _gauge(
        "volcano_job_share",
        "The largest part of the cluster that a job holds, over all resources (drf).",
        "job_ns",
        "job_id",
    )
    CREATED = _gauge("volcano_e2e_job_scheduling_start_time", "When a job was created, seconds since the epoch.", *_JOB)
    PLACED = _gauge(
        "volcano_e2e_job_scheduling_last_time",
        "When a pod of a job was last given a place, seconds since the epoch.",
        *_JOB,
    )
    TOOK = _gauge(
        "volcano_e2e_job_scheduling_duration",
        "Time from the creation of a job to the last place for one of its pods, in milliseconds.",
        *_JOB,
    )
    LATENCY = _histogram(
        "volcano_e2e_job_scheduling_latency_milliseconds",
        "Time from the creation of a PodGroup to the decision on each of its pods.",
        buckets=geometric(100, 120_000, 30),
    )
    POD_LATENCY = _histogram(
        "volcano_task_scheduling_latency_milliseconds",
        "Time from the creation of a pod to a stage.",
        "stage",
        buckets=_POD,
    )


class Sessions:
    """What sessions do, and how long they take. A cluster at rest has none."""

    ENDED = _counter("stromboli_sessions_total", "Sessions by how they ended: completed or failed.", "result")
    LAST = _gauge("stromboli_last_session_timestamp_seconds", "When the last session began, seconds since the epoch.")
    SECONDS = _histogram("stromboli_session_seconds", "Duration of a session.", buckets=_SECONDS)
    SNAPSHOT = _histogram("stromboli_snapshot_seconds", "Duration of taking a snapshot.", buckets=_SECONDS)
    FAILURES = _counter(
        "stromboli_plugin_failures_total",
        "Errors that plugins raised, and wrong answers: of each point of a session the first 20.",
        "plugin",
        "point",
    )
    NODES = _gauge("stromboli_nodes", "Nodes that the session saw.")
    QUEUES = _gauge("stromboli_queues", "Queues that the session saw.")
    CYCLE = _histogram("volcano_e2e_scheduling_latency_milliseconds", "Duration of a session.", buckets=_CYCLE)
    OPEN = _histogram(
        "volcano_open_session_duration_milliseconds", "Duration of a session before its first action.", buckets=_CYCLE
    )
    PLUGIN = _histogram(
        "volcano_plugin_scheduling_latency_milliseconds",
        "Duration of a plugin's opening and closing.",
        "plugin",
        "OnSession",
        buckets=geometric(0.1, 100, 15),
    )
    ACTION = _histogram(
        "volcano_action_scheduling_latency_milliseconds",
        "Duration of an action.",
        "action",
        buckets=geometric(1, 2000, 20),
    )


class Decisions:
    """What became of what was decided."""

    BINDINGS = _counter(
        "stromboli_bindings_total",
        "Bindings by how they ended: bound, refused, failed, stale or unconfirmed.",
        "result",
    )
    BINDING = _histogram("stromboli_binding_seconds", "Time that the API server took for a binding.", buckets=_SECONDS)
    STAGE = _histogram(
        "volcano_scheduling_stage_duration_milliseconds",
        "Duration of a stage for one pod.",
        "stage",
        buckets=geometric(0.1, 500, 20),
    )
    ATTEMPTS = _counter(
        "volcano_schedule_attempts_total",
        "Pods bound (scheduled), found without a place by a session (unschedulable), or not bound (error).",
        "result",
    )
    EVICTIONS = _counter(
        "stromboli_evictions_total",
        "Pods that were evicted, by their queue and by the action that decided it.",
        _QUEUE,
        "reason",
    )
    PAUSED = _gauge(
        "stromboli_evictions_paused",
        "Jobs that are not evicted for a queue for now, because they got their places back too often.",
        _QUEUE,
    )
    TRANSACTIONS = _counter("volcano_eviction_transactions_total", "Sessions in which an action evicted.", "action")
    VICTIMS = _gauge("volcano_pod_preemption_victims", "Pods that the last session preempted.")
    PREEMPTIONS = _untyped(
        "volcano_total_preemption_attempts", "How often plugins were asked for victims of preemption."
    )
    WRITES = _counter(
        "stromboli_api_writes_total", "Writes to the API server by object and how they ended.", "kind", "result"
    )
    REPAIRS = _counter(
        "stromboli_takeover_repairs_total", "Gangs found begun, and pods evicted, after a take-over.", "object"
    )


class Watching:
    """What comes in from the API server."""

    EVENTS = _counter("stromboli_watch_events_total", "Watch events that were applied.", "kind", "type")
    LAST = _gauge(
        "stromboli_last_watch_event_timestamp_seconds",
        "When the last watch event of a kind was applied, seconds since the epoch.",
        "kind",
    )
    EFFECT = _histogram(
        "stromboli_watch_event_seconds",
        "Time from reading a watch event to its effect.",
        "kind",
        buckets=_MICROSECONDS,
    )
    RELISTS = _counter("stromboli_relists_total", "Lists of a kind by why it was listed.", "kind", "why")
    MALFORMED = _counter("stromboli_malformed_objects_total", "Objects that could not be read.", "kind")


class Service:
    """The service itself."""

    LEADING = _gauge("stromboli_leading", "1 while this replica is the one that schedules.")
    BUILD = _gauge("stromboli_build_info", "Which version runs, on which Python.", "version", "python")
    POLICY = _gauge("stromboli_policy_info", "The policy in force.", "hash")
    POLICY_GOOD = _gauge("stromboli_policy_last_reload_successful", "1 unless the policy file was last refused.")
    POLICY_ERRORS = _counter("stromboli_policy_reload_errors_total", "Times that a new policy was refused.")


SUBJECTS: dict[str, type] = {
    "Queues": Queues,
    "Jobs and pods": Jobs,
    "Sessions": Sessions,
    "Decisions": Decisions,
    "What comes in": Watching,
    "The service": Service,
}


def definitions(subject: type) -> Iterator[Definition]:
    """All of a subject, in their order."""
    for value in vars(subject).values():
        yield from _in(value)


def _in(value: object) -> Iterator[Definition]:
    if isinstance(value, Definition):
        yield value
    elif isinstance(value, Amounts):
        yield from (value.milli_cpu, value.memory_bytes, value.memory, value.scalars)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _in(each)
