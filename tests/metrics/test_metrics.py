"""What a scrape shows after real sessions."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stromboli.api.decisions import Evict
from stromboli.api.version import version
from stromboli.metrics import Metrics
from stromboli.metrics.definitions import SUBJECTS, definitions, geometric
from stromboli.state.cluster import ClusterState
from tests import builders

PROPORTION = builders.policy(
    "priority gang", "drf predicates proportion nodeorder", actions="enqueue, allocate, backfill"
)
DIVIDED_BY_NOBODY = builders.policy("gang", "predicates", actions="allocate")
CAPACITY = builders.policy("priority gang", "drf predicates capacity", actions="enqueue, allocate")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics) -> Samples:
    """All samples of a scrape; a series that comes twice is an error."""
    samples: Samples = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def series(samples: Samples, name: str) -> list[Mapping[str, str]]:
    return [dict(labels) for found, labels in samples if found == name]


def tick(metrics: Metrics, state: ClusterState, policy: str = PROPORTION, now: float = builders.NOON) -> None:
    """One session, told as the tick loop tells it."""
    snapshot = state.snapshot()
    result = builders.Engine(policy).decide(snapshot, now=now)
    metrics.session(snapshot, result, now, 0.25)


def cluster() -> ClusterState:
    """Two queues on 16 CPUs and 8 GPUs: a gang that fits, one that lacks a pod, one that is too large."""
    return builders.state(
        [builders.node(f"n{i}", cpu="8", memory="32Gi", resources={"nvidia.com/gpu": "4"}) for i in range(2)],
        builders.queue("default", weight=1),
        builders.queue("research", weight=3, capability={"cpu": "10"}),
        builders.pod_group("fits", 2, queue="research", phase="Pending"),
        builders.pod_group("lacks", 3),
        builders.pod_group("large", 1),
        builders.gang("fits", 2, cpu="2", memory="1Gi", resources={"nvidia.com/gpu": "1"}),
        builders.gang("lacks", 2),
        builders.gang("large", 1, cpu="9"),
    )


def test_before_the_first_session_there_are_no_gauges_of_it() -> None:
    samples = scrape(Metrics())
    assert value(samples, "stromboli_policy_last_reload_successful") == 1
    assert not [name for name, _ in samples if name.startswith(("volcano_queue", "stromboli_pods"))]


def test_amounts_of_queues_are_in_volcanos_units() -> None:
    metrics = Metrics()
    tick(metrics, cluster())
    samples = scrape(metrics)
    queue = {"queue_name": "research"}
    assert value(samples, "volcano_queue_allocated_milli_cpu", **queue) == 4_000
    assert value(samples, "volcano_queue_allocated_memory_bytes", **queue) == 2 * 2**30
    assert value(samples, "volcano_queue_allocated_memory", **queue) == 2 * 2**30
    gpus = {**queue, "resource": "nvidia.com/gpu"}
    assert value(samples, "volcano_queue_allocated_scalar_resources", **gpus) == 2_000
    assert value(samples, "volcano_queue_request_scalar_resources", **gpus) == 2_000
    assert value(samples, "volcano_queue_inqueue_scalar_resources", **gpus) == 0
    assert value(samples, "volcano_queue_allocated_scalar_resources", **queue, resource="pods") == 2
    assert value(samples, "volcano_queue_deserved_milli_cpu", **queue) >= 4_000
    assert value(samples, "volcano_queue_weight", **queue) == 3
    assert value(samples, "volcano_queue_share", **queue) == 1
    assert value(samples, "volcano_queue_overused", **queue) in (0, 1)
    assert {"queue_name": "research", "resource": "cpu"} not in series(
        samples, "volcano_queue_allocated_scalar_resources"
    )


def test_what_has_no_limit_is_the_largest_number() -> None:
    metrics = Metrics()
    tick(metrics, cluster(), CAPACITY)
    samples = scrape(metrics)
    assert value(samples, "volcano_queue_capacity_milli_cpu", queue_name="research") == 10_000
    assert value(samples, "volcano_queue_capacity_memory_bytes", queue_name="research") == sys.float_info.max
    assert value(samples, "volcano_queue_real_capacity_milli_cpu", queue_name="research") == 10_000


@pytest.mark.parametrize("policy", [PROPORTION, CAPACITY, DIVIDED_BY_NOBODY])
def test_limits_and_guarantees_are_told_whatever_the_policy(policy: str) -> None:
    state = cluster()
    state.upsert("Queue", builders.queue("kept", weight=1, guarantee={"resource": {"cpu": "2", "nvidia.com/gpu": 1}}))
    metrics = Metrics()
    tick(metrics, state, policy)
    samples = scrape(metrics)
    assert value(samples, "stromboli_queue_capability", queue="research", resource="cpu") == 10_000
    assert value(samples, "stromboli_queue_guarantee", queue="kept", resource="cpu") == 2_000
    assert value(samples, "stromboli_queue_guarantee", queue="kept", resource="nvidia.com/gpu") == 1_000
    assert len(series(samples, "stromboli_queue_capability")) == 1


def test_series_of_what_is_gone_are_gone() -> None:
    metrics, state = Metrics(), cluster()
    tick(metrics, state)
    metrics.evicted("research", "reclaim")
    before = scrape(metrics)
    assert {"queue_name": "research"} in series(before, "volcano_queue_share")
    for name in ("admitted_jobs_total", "job_wait_seconds_count", "evictions_total"):
        assert "research" in [labels["queue"] for labels in series(before, f"stromboli_{name}")], name
    assert {"job_id": "lacks"} in series(before, "volcano_job_retry_counts")
    for kind, key in (
        ("Queue", "research"),
        ("PodGroup", "default/lacks"),
        *(("Pod", f"default/lacks-{i}") for i in range(2)),
    ):
        state.delete(kind, key)
    tick(metrics, state)
    after = scrape(metrics)
    assert not [key for key in after if "research" in dict(key[1]).values()]
    assert not [key for key in after if ("job_id", "lacks") in key[1]]
    assert {"queue_name": "default"} in series(after, "volcano_queue_share")


def test_gangs_that_wait_are_counted() -> None:
    metrics, state = Metrics(), cluster()
    for _ in range(3):
        tick(metrics, state)
    samples = scrape(metrics)
    assert value(samples, "volcano_unschedule_job_count") == 2
    assert value(samples, "volcano_unschedule_task_count", job_id="lacks") == 3
    assert value(samples, "volcano_unschedule_task_count", job_id="fits") == 0
    assert value(samples, "volcano_job_retry_counts", job_id="lacks") == 3
    assert {"job_id": "fits"} not in series(samples, "volcano_job_retry_counts")
    assert value(samples, "volcano_job_share", job_ns="default", job_id="fits") == pytest.approx(0.25)
    assert value(samples, "volcano_job_share", job_ns="default", job_id="large") == 0


def test_jobs_of_one_name_in_two_namespaces_share_a_series() -> None:
    state = cluster()
    group = builders.pod_group("lacks", 5)
    metadata = group.metadata.model_copy(update={"namespace": "other"})
    state.upsert("PodGroup", group.model_copy(update={"metadata": metadata}))
    pod = builders.pod("lacks-0", "lacks")
    state.upsert("Pod", builders.decode("Pod", _in_namespace(pod, "other"), "pod"))
    metrics = Metrics()
    tick(metrics, state)
    samples = scrape(metrics)
    assert value(samples, "volcano_unschedule_task_count", job_id="lacks") == 3 + 5
    assert value(samples, "volcano_job_retry_counts", job_id="lacks") == 2


def _in_namespace(pod: builders.objects.Pod, namespace: str) -> dict[str, object]:
    return {
        "metadata": {"name": pod.metadata.name, "namespace": namespace, "annotations": pod.metadata.annotations},
        "spec": {"schedulerName": "stromboli", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }


def test_pending_pods_are_counted_by_reason() -> None:
    metrics = Metrics()
    tick(metrics, cluster())
    samples = scrape(metrics)
    found = {
        (labels["queue"], labels["stage"], labels["reason"]): value(samples, "stromboli_pending_pods", **labels)
        for labels in series(samples, "stromboli_pending_pods")
    }
    assert found["default", "Gang", "NotEnoughPods"] == 2
    assert sum(found.values()) == value(samples, "stromboli_pods", state="Pending") == 3
    assert value(samples, "stromboli_assumed_pods") == 2
    assert value(samples, "stromboli_nodes") == 2
    assert value(samples, "stromboli_queues") == 2
    assert value(samples, "stromboli_jobs", phase="Inqueue") == 2
    assert value(samples, "stromboli_jobs", phase="Pending") == 1
    assert value(samples, "volcano_queue_pod_group_inqueue_count", queue_name="default") == 1
    assert value(samples, "volcano_queue_pod_group_running_count", queue_name="default") == 0


def test_fragmentation_of_cards_is_what_a_typical_pod_cannot_use() -> None:
    metrics, cards = Metrics(), {"nvidia.com/gpu": "4"}
    running = builders.pod("runs-0", "runs", node="a", resources={"nvidia.com/gpu": "1"})
    waiting = builders.pod("waits-0", "waits", resources={"nvidia.com/gpu": "4"}, nodeSelector={"no": "node"})
    groups = [builders.pod_group("runs"), builders.pod_group("waits")]
    tick(
        metrics,
        builders.state(builders.queue("default"), builders.node("a", resources=cards), groups, running, waiting),
    )
    samples = scrape(metrics)
    assert value(samples, "stromboli_free_cards", resource="nvidia.com/gpu") == 3
    assert value(samples, "stromboli_fragmented_cards", resource="nvidia.com/gpu") == 1.5


def test_latencies_have_volcanos_names_labels_and_buckets() -> None:
    metrics, state = Metrics(), cluster()
    created = state.snapshot().pod_groups[0]
    assert created is not None
    assert created.metadata.creation_timestamp is not None
    tick(metrics, state, now=created.metadata.creation_timestamp.timestamp() + 7)
    samples = scrape(metrics)
    assert value(samples, "volcano_e2e_scheduling_latency_milliseconds_sum") == 250
    assert value(samples, "volcano_open_session_duration_milliseconds_count") == 1
    opened = {"plugin": "gang", "OnSession": "OnSessionOpen"}
    assert value(samples, "volcano_plugin_scheduling_latency_milliseconds_count", **opened) == 1
    assert value(samples, "volcano_action_scheduling_latency_milliseconds_count", action="allocate") == 1
    assert value(samples, "volcano_task_scheduling_latency_milliseconds_count", stage="Assumed") == 2
    assert value(samples, "volcano_e2e_job_scheduling_latency_milliseconds_sum") == 2 * 7_000
    bounds = [float(s["le"]) for s in series(samples, "volcano_e2e_scheduling_latency_milliseconds_bucket")]
    assert bounds == pytest.approx([*geometric(1, 5000, 20), float("inf")])


def test_a_job_waits_until_as_many_pods_as_it_starts_with_have_places() -> None:
    """A gang that starts with three gets three CPUs; that a fourth comes to run later is no second wait."""
    group = builders.pod_group("train", 3, queue="research", phase="Pending")
    state = builders.state(
        builders.node("n", cpu="3", memory="32Gi"),
        builders.queue("research", weight=1),
        group,
        builders.gang("train", 4),
    )
    metrics = Metrics()
    tick(metrics, state, now=group.metadata.created + 40)
    samples = scrape(metrics)
    assert value(samples, "stromboli_admitted_jobs_total", queue="research") == 1
    assert value(samples, "stromboli_job_wait_seconds_sum", queue="research") == 40
    assert value(samples, "stromboli_job_wait_seconds_bucket", queue="research", le="60.0") == 1
    state.assume("default/train-0", "n")
    state.upsert("PodGroup", builders.pod_group("train", 3, queue="research", phase="Running"))
    tick(metrics, state, now=group.metadata.created + 50)
    later = scrape(metrics)
    assert value(later, "stromboli_admitted_jobs_total", queue="research") == 1
    assert value(later, "stromboli_job_wait_seconds_count", queue="research") == 1


def test_evictions_are_counted_by_queue_and_reason() -> None:
    metrics = Metrics()
    for queue, reason in (("a", "preempt"), ("a", "preempt"), ("b", "reclaim")):
        metrics.evicted(queue, reason)
    samples = scrape(metrics)
    assert value(samples, "stromboli_evictions_total", queue="a", reason="preempt") == 2
    assert value(samples, "stromboli_evictions_total", queue="b", reason="reclaim") == 1


def test_it_tells_when_the_last_session_and_the_last_event_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1234.5)
    metrics = Metrics()
    assert series(scrape(metrics), "stromboli_last_session_timestamp_seconds") == []
    tick(metrics, cluster())
    metrics.watch_event("Node", "MODIFIED")
    samples = scrape(metrics)
    assert value(samples, "stromboli_last_session_timestamp_seconds") == builders.NOON
    assert value(samples, "stromboli_last_watch_event_timestamp_seconds", kind="Node") == 1234.5
    [build] = series(samples, "stromboli_build_info")
    assert build == {"version": version(), "python": platform.python_version()}


def test_no_series_tells_when_another_began() -> None:
    metrics = Metrics()
    tick(metrics, cluster())
    metrics.bind_result("bound", 0.1)
    assert "_created" not in generate_latest(metrics.registry).decode()


def test_every_series_has_a_definition_with_its_labels() -> None:
    """What is scraped is what docs/metrics.md explains."""
    metrics = Metrics()
    tick(metrics, cluster())
    tick(metrics, cluster(), CAPACITY)
    metrics.evicted("research", "reclaim")
    known = {each.name: each for subject in SUBJECTS.values() for each in definitions(subject)}
    for name, labels in scrape(metrics):
        if not name.startswith("process_"):
            whole = name if name in known else name.rpartition("_")[0]
            found = dict(labels).keys() - {"le"} if known[whole].kind == "histogram" else dict(labels).keys()
            assert found == set(known[whole].labels), name


def test_buckets_are_geometric() -> None:
    assert geometric(1, 8, 4) == pytest.approx([1, 2, 4, 8])


def test_only_new_places_have_a_latency() -> None:
    metrics, state = Metrics(), cluster()
    state.assume("default/large-0", "n0")
    tick(metrics, state)
    samples = scrape(metrics)
    assert value(samples, "stromboli_assumed_pods") == 3
    assert value(samples, "volcano_task_scheduling_latency_milliseconds_count", stage="Assumed") == 2


def test_results_are_counted_by_what_they_were() -> None:
    metrics = Metrics()
    for result in ("bound", "bound", "refused", "failed", "stale", "unconfirmed"):
        metrics.bind_result(result, 0.004)
    metrics.evict_result("evicted", 0.1)
    metrics.status_result("PodGroup", "written")
    metrics.event_result("posted")
    metrics.watch_event("Pod", "MODIFIED")
    metrics.event_applied("Pod", 0.00002)
    metrics.relist("Pod", "expired")
    metrics.malformed("Pod", "default/a")
    metrics.snapshot(0.002)
    metrics.session_failed(RuntimeError())
    metrics.leading(True)
    metrics.policy("unknown plugin")
    samples = scrape(metrics)
    assert value(samples, "stromboli_bindings_total", result="bound") == 2
    assert value(samples, "stromboli_bindings_total", result="stale") == 1
    assert value(samples, "volcano_schedule_attempts_total", result="scheduled") == 2
    assert value(samples, "volcano_schedule_attempts_total", result="error") == 2
    assert value(samples, "volcano_scheduling_stage_duration_milliseconds_sum", stage="Bind") == 8
    assert value(samples, "stromboli_binding_seconds_count") == 4
    assert value(samples, "stromboli_api_writes_total", kind="Binding", result="refused") == 1
    assert value(samples, "stromboli_api_writes_total", kind="Eviction", result="evicted") == 1
    assert value(samples, "stromboli_api_writes_total", kind="PodGroup/status", result="written") == 1
    assert value(samples, "stromboli_api_writes_total", kind="Event", result="posted") == 1
    assert value(samples, "stromboli_watch_events_total", kind="Pod", type="MODIFIED") == 1
    assert value(samples, "stromboli_watch_event_seconds_bucket", kind="Pod", le="2.5e-05") == 1
    assert value(samples, "stromboli_relists_total", kind="Pod", why="expired") == 1
    assert value(samples, "stromboli_malformed_objects_total", kind="Pod") == 1
    assert value(samples, "stromboli_snapshot_seconds_sum") == 0.002
    assert value(samples, "stromboli_sessions_total", result="failed") == 1
    assert value(samples, "stromboli_leading") == 1
    assert value(samples, "stromboli_policy_reload_errors_total") == 1
    assert value(samples, "stromboli_policy_last_reload_successful") == 0
    metrics.policy(None)
    assert value(scrape(metrics), "stromboli_policy_last_reload_successful") == 1


def test_actions_that_evicted_are_counted_by_session() -> None:
    metrics, state = Metrics(), cluster()
    snapshot = state.snapshot()
    result = builders.Engine(PROPORTION).decide(snapshot, now=builders.NOON)
    victims = [
        Evict("default", f"v-{i}", "", "n0", action) for i, action in enumerate(("preempt", "preempt", "reclaim"))
    ]
    metrics.session(snapshot, replace(result, decisions=[*result.decisions, *victims]), builders.NOON, 0.1)
    samples = scrape(metrics)
    assert value(samples, "volcano_eviction_transactions_total", action="preempt") == 1
    assert value(samples, "volcano_eviction_transactions_total", action="reclaim") == 1
    assert value(samples, "volcano_pod_preemption_victims") == 2


def test_jobs_tell_when_they_came_and_when_their_pods_got_places() -> None:
    metrics, state = Metrics(), cluster()
    tick(metrics, state, PROPORTION)
    samples = scrape(metrics)
    session = metrics.last_session
    assert session is not None
    placed = {key.rpartition("-")[0].partition("/")[2] for key in session.bound}
    times = {labels["job_name"]: labels for labels in series(samples, "volcano_e2e_job_scheduling_last_time")}
    assert placed == set(times) != set()
    for job in session.view.jobs.values():
        labels = {"job_name": job.name, "queue": job.queue.name, "job_namespace": job.namespace}
        assert value(samples, "volcano_e2e_job_scheduling_start_time", **labels) == job.created
        if job.name in placed:
            took = value(samples, "volcano_e2e_job_scheduling_duration", **labels)
            last = value(samples, "volcano_e2e_job_scheduling_last_time", **labels)
            assert took == 1e3 * (last - job.created)


def test_every_queue_says_whether_it_is_overused_and_attempts_to_preempt_are_counted() -> None:
    metrics, state = Metrics(), cluster()
    tick(metrics, state, PROPORTION)
    samples = scrape(metrics)
    assert {labels["queue_name"] for labels in series(samples, "volcano_queue_overused")} == set(state.queues)
    assert value(samples, "volcano_total_preemption_attempts") == 0


def test_the_hash_of_a_policy_tells_policies_apart_and_ignores_layout() -> None:
    def hash_of(policy: str) -> str:
        metrics = Metrics()
        tick(metrics, cluster(), policy)
        (labels,) = series(scrape(metrics), "stromboli_policy_info")
        return labels["hash"]

    assert hash_of(PROPORTION) == hash_of(f"# a comment\n{PROPORTION}\n")
    assert hash_of(PROPORTION) != hash_of(CAPACITY)


def test_registries_are_apart() -> None:
    first, second = Metrics(), Metrics()
    first.bind_result("bound", 0.1)
    assert value(scrape(first), "stromboli_bindings_total", result="bound") == 1
    assert series(scrape(second), "stromboli_bindings_total") == []
