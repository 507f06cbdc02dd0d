"""Every metric by subject: name, labels and help text.

Series are made from these definitions, and so is docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from stromboli.api.crds import PodGroupPhase

#: `untyped` are Volcano's counters without the suffix of counters
Kind = Literal["counter", "gauge", "histogram", "untyped"]

_QUEUE = "queue"
#: Volcano's name of the same label
_QUEUE_NAME = "queue_name"
_JOB = ("job_name", "queue", "job_namespace")


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. Buckets are the upper bounds of a histogram, in the unit in which its name ends."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def family(self, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """The family of a gauge or untyped metric in a scrape: label values in order, and a number."""
        family = Metric(self.name, self.text, "unknown" if self.kind == "untyped" else self.kind)
        for values, number in samples:
            family.add_sample(self.name, dict(zip(self.labels, values, strict=True)), number)
        return family

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """Register as a gauge."""
        return Gauge(self.name, self.text, self.labels, registry=registry)

    def counter(self, registry: CollectorRegistry) -> Counter:
        """Register as a counter."""
        return Counter(self.name, self.text, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """Register as a histogram."""
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
    """Upper bounds from `low` to `high` with a constant factor, with the digits that Go prints."""
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
        """The gauges of an amount with a help text."""
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
    """Amounts of queues. Gauges of the last session; a deleted queue has no series.

    Amounts are in milli-CPU, bytes and thousandths of all else, pods as they are. Unlimited amounts are 1.797e308, as
    in Volcano.
    """

    AMOUNTS: ClassVar = {
        "allocated": Amounts.of("allocated", "Allocated to the pods of a queue"),
        "request": Amounts.of("request", "Allocated and pending requests of a queue"),
        "deserved": Amounts.of("deserved", "Deserved by a queue"),
        "inqueue": Amounts.of("inqueue", "Claimed by admitted jobs of a queue and not allocated yet"),
        "capacity": Amounts.of("capacity", "Limit of a queue, if the plugin that divides the cluster enforces it"),
        "real_capacity": Amounts.of("real_capacity", "Limit of a queue, without guarantees of other queues"),
    }
    SHARE = _gauge(
        "volcano_queue_share",
        "Allocated part of what a queue deserves, the largest over all resources.",
        _QUEUE_NAME,
    )
    WEIGHT = _gauge("volcano_queue_weight", "Weight of a queue.", _QUEUE_NAME)
    OVERUSED = _gauge("volcano_queue_overused", "1 if a queue gets nothing more.", _QUEUE_NAME)
    POD_GROUPS: ClassVar = {
        phase: _gauge(
            f"volcano_queue_pod_group_{phase.lower()}_count", f"PodGroups of a queue in phase {phase}.", _QUEUE_NAME
        )
        for phase in PodGroupPhase
    }
    CAPABILITY = _gauge(
        "stromboli_queue_capability", "spec.capability of a queue, independent of the policy.", _QUEUE, "resource"
    )
    GUARANTEE = _gauge(
        "stromboli_queue_guarantee", "spec.guarantee of a queue, independent of the policy.", _QUEUE, "resource"
    )
    #: computed by the plugin fairshare
    FAIR_SHARES: ClassVar = {
        "fair_share": _gauge(
            "stromboli_queue_fair_share",
            "Fair share of a queue, including its part beyond the quota (fairshare).",
            _QUEUE,
            "resource",
        ),
        "usage": _gauge(
            "stromboli_queue_usage",
            "Past usage of a queue, as a part of the cluster (fairshare).",
            _QUEUE,
            "resource",
        ),
        "cluster_part": _gauge(
            "stromboli_queue_cluster_part",
            "Allocated to a queue, as a part of what is divided among queues (fairshare).",
            _QUEUE,
            "resource",
        ),
        "saturation": _gauge(
            "stromboli_queue_saturation",
            "Allocated to a queue, as a part of its fair share (fairshare).",
            _QUEUE,
            "resource",
        ),
    }


class Jobs:
    """Waiting jobs and pods, for how long, and why. A job is a PodGroup; deleted jobs and queues have no series."""

    PENDING = _gauge(
        "stromboli_pending_pods",
        "Pending pods by queue, empty for none, and by the stage and reason that block them.",
        _QUEUE,
        "stage",
        "reason",
    )
    ADMITTED = _counter("stromboli_admitted_jobs_total", "Jobs whose phase left Pending.", _QUEUE)
    WAIT = _histogram(
        "stromboli_job_wait_seconds",
        "Time from the creation of a job until its minimum of pods was placed.",
        _QUEUE,
        buckets=_WAITING,
    )
    PHASES = _gauge("stromboli_jobs", "PodGroups in the session.", "phase")
    PODS = _gauge("stromboli_pods", "Pods in the session.", "state")
    ASSUMED = _gauge("stromboli_assumed_pods", "Pods that are assumed on a node until their binding is watched.")
    UNSCHEDULABLE = _gauge("volcano_unschedule_job_count", "Jobs that are not ready and could not be scheduled.")
    MISSING = _gauge(
        "volcano_unschedule_task_count",
        "Pods that a job lacks to be ready, summed over jobs of one name in several namespaces.",
        "job_id",
    )
    RETRIES = _untyped(
        "volcano_job_retry_counts", "Sessions in which a job was not ready, summed over jobs of one name.", "job_id"
    )
    SHARE = _gauge(
        "volcano_job_share",
        "Dominant share of a job (drf).",
        "job_ns",
        "job_id",
    )
    CREATED = _gauge("volcano_e2e_job_scheduling_start_time", "When a job was created, seconds since the epoch.", *_JOB)
    PLACED = _gauge(
        "volcano_e2e_job_scheduling_last_time",
        "When a pod of a job was last placed, seconds since the epoch.",
        *_JOB,
    )
    TOOK = _gauge(
        "volcano_e2e_job_scheduling_duration",
        "Time from the creation of a job to the last placement of one of its pods, in milliseconds.",
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
    """Number and duration of sessions. A cluster at rest runs none."""

    ENDED = _counter("stromboli_sessions_total", "Sessions by result: completed or failed.", "result")
    LAST = _gauge("stromboli_last_session_timestamp_seconds", "When the last session began, seconds since the epoch.")
    SECONDS = _histogram("stromboli_session_seconds", "Duration of a session.", buckets=_SECONDS)
    SNAPSHOT = _histogram("stromboli_snapshot_seconds", "Duration of taking a snapshot.", buckets=_SECONDS)
    FAILURES = _counter(
        "stromboli_plugin_failures_total",
        "Exceptions and invalid answers of plugins, at most 20 per extension point and session.",
        "plugin",
        "point",
    )
    NODES = _gauge("stromboli_nodes", "Nodes in the session.")
    QUEUES = _gauge("stromboli_queues", "Queues in the session.")
    FREE_CARDS = _gauge(
        "stromboli_free_cards", "Cards of nodes that no pod holds, parts of shared ones included.", "resource"
    )
    FRAGMENTED_CARDS = _gauge(
        "stromboli_fragmented_cards",
        "How much of these a typical pod cannot use: the fragmentation that the plugin fgd keeps low.",
        "resource",
    )
    CYCLE = _histogram("volcano_e2e_scheduling_latency_milliseconds", "Duration of a session.", buckets=_CYCLE)
    OPEN = _histogram(
        "volcano_open_session_duration_milliseconds", "Duration of a session before its first action.", buckets=_CYCLE
    )
    PLUGIN = _histogram(
        "volcano_plugin_scheduling_latency_milliseconds",
        "Duration of a plugin's session hooks.",
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
    """Results of decisions."""

    BINDINGS = _counter(
        "stromboli_bindings_total",
        "Bindings by result: bound, refused, failed, stale or unconfirmed.",
        "result",
    )
    BINDING = _histogram("stromboli_binding_seconds", "Duration of a binding request.", buckets=_SECONDS)
    STAGE = _histogram(
        "volcano_scheduling_stage_duration_milliseconds",
        "Duration of a stage for one pod.",
        "stage",
        buckets=geometric(0.1, 500, 20),
    )
    ATTEMPTS = _counter(
        "volcano_schedule_attempts_total",
        "Pods that were bound (scheduled), could not be placed in a session (unschedulable), or not be bound (error).",
        "result",
    )
    EVICTIONS = _counter(
        "stromboli_evictions_total",
        "Evicted pods by their queue and by the action that evicted them.",
        _QUEUE,
        "reason",
    )
    PAUSED = _gauge(
        "stromboli_evictions_paused",
        "Jobs that are protected from a queue for a while, after being evicted for it repeatedly.",
        _QUEUE,
    )
    TRANSACTIONS = _counter("volcano_eviction_transactions_total", "Sessions with evictions of an action.", "action")
    VICTIMS = _gauge("volcano_pod_preemption_victims", "Pods that the last session preempted.")
    PREEMPTIONS = _untyped(
        "volcano_total_preemption_attempts", "Number of times that plugins were asked for preemption victims."
    )
    WRITES = _counter("stromboli_api_writes_total", "Writes to the API server by object and result.", "kind", "result")
    REPAIRS = _counter(
        "stromboli_takeover_repairs_total",
        "Partial gangs, and evicted pods, after a change of leader.",
        "object",
    )


class Watching:
    """Changes from the API server."""

    EVENTS = _counter("stromboli_watch_events_total", "Watch events that were applied.", "kind", "type")
    LAST = _gauge(
        "stromboli_last_watch_event_timestamp_seconds",
        "When the last watch event of a kind was applied, seconds since the epoch.",
        "kind",
    )
    EFFECT = _histogram(
        "stromboli_watch_event_seconds",
        "Time from receiving a watch event to applying it.",
        "kind",
        buckets=_MICROSECONDS,
    )
    RELISTS = _counter("stromboli_relists_total", "Lists of a kind by cause.", "kind", "why")
    MALFORMED = _counter("stromboli_malformed_objects_total", "Objects that could not be read.", "kind")


class Service:
    """The service itself."""

    LEADING = _gauge("stromboli_leading", "1 while this replica is the leader.")
    BUILD = _gauge("stromboli_build_info", "Version of the service and of Python.", "version", "python")
    POLICY = _gauge("stromboli_policy_info", "The policy in force.", "hash")
    POLICY_GOOD = _gauge("stromboli_policy_last_reload_successful", "1 unless the current policy file was refused.")
    POLICY_ERRORS = _counter("stromboli_policy_reload_errors_total", "Number of refused policy files.")


SUBJECTS: dict[str, type] = {
    "Queues": Queues,
    "Jobs and pods": Jobs,
    "Sessions": Sessions,
    "Decisions": Decisions,
    "Watches": Watching,
    "The service": Service,
}


def definitions(subject: type) -> Iterator[Definition]:
    """All metrics of a subject, in order."""
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
