"""How victims go: by the Eviction API, as far as disruption budgets allow, and told to all whom it concerns."""

from __future__ import annotations

import logging
import time

import pytest

from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.live.service import Service
from tests.live.cluster import SCHEDULING, Cluster, Object
from tests.live.conftest import Recorder, StartService, until
from tests.live.first_fit import FirstFit

PODS = "/api/v1/namespaces/default/pods"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PREEMPTING = """
actions: "enqueue, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: nodeorder}]
"""
#: victims are chosen whatever disruption budgets say, so that only the API server refuses them
UNASKED = PREEMPTING.replace("{name: conformance}", "{name: conformance}, {name: pdb, enablePreemptable: false}")


def evictions(service: Service) -> list[str]:
    assert isinstance(service.observer, Recorder)
    return service.observer.evictions


def notes(cluster: Cluster, reason: str) -> dict[str, str]:
    """What Events of a reason say, by the name of what they are about."""
    events = cluster.items("/apis/events.k8s.io/v1/events")
    return {event["regarding"]["name"]: event["note"] for event in events if event["reason"] == reason}


async def running(cluster: Cluster, name: str) -> None:
    """Return when a pod runs."""
    await until(lambda: cluster.get(f"{PODS}/{name}")["status"].get("phase") == "Running")


def target(pod: Object) -> Object:
    conditions = pod["status"].get("conditions") or ()
    return next((c for c in conditions if c["type"] == "DisruptionTarget"), {})


def protect(cluster: Cluster) -> str:
    """Have a budget keep all pods; returns its path."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    cluster.create(path, {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {}}})
    return f"{path}/all"


def group(cluster: Cluster, name: str, priority: str, pods: int = 1) -> None:
    """A gang of a priority class."""
    cluster.group(name, pods, priorityClassName=priority)
    for number in range(pods):
        cluster.pod(f"{name}-{number}", name, priorityClassName=priority, metadata={"labels": {name: ""}})


async def filled(cluster: Cluster, start: StartService, low: int, policy: str = PREEMPTING) -> None:
    """Sessions that preempt, on nodes that are full, and so many pods on them that go before nobody."""
    cluster.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 100})
    await start(lambda _: Successive(Engine(policy), Environment()), status_patience=0.05)
    cluster.gang("low", low, min_member=1)
    await until(lambda: cluster.all_bound(16))
    for number in range(low):
        await running(cluster, f"low-{number}")


async def test_a_victim_is_evicted_once_and_says_who_did_it(cluster: Cluster, start: StartService) -> None:
    decider = FirstFit()
    service = await start(lambda _: decider)
    cluster.gang("old", 1)
    await running(cluster, "old-0")
    with cluster.held("PATCH", "/pods/old-0/status"):
        decider.victims = {"default/old-0"}
        cluster.group("wakes", 1)
        await until(lambda: bool(cluster.count("POST", "/pods/old-0/eviction", 201)))
        cluster.group("wakes-again", 1)
    await until(lambda: not cluster.pods())
    await until(lambda: evictions(service) == ["evicted"])
    assert cluster.count("POST", "/pods/old-0/eviction") == 1
    assert cluster.count("DELETE", "/pods/old-0") == 0


async def test_what_was_decided_is_logged_with_its_session_job_and_queue(
    cluster: Cluster, start: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "stromboli.live")
    decider = FirstFit()
    service = await start(lambda _: decider)
    cluster.gang("old", 1)
    await running(cluster, "old-0")
    decider.victims = {"default/old-0"}
    cluster.group("wakes", 1)
    assert isinstance(service.observer, Recorder)
    counted = service.observer.evicted_of
    await until(lambda: counted == [("default", "preempt")])
    lines = {getattr(record, "event", ""): vars(record).get("fields", {}) for record in caplog.records}
    for event in ("bound", "evicted"):
        assert (lines[event]["job"], lines[event]["queue"]) == ("default/old", "default"), event
    assert 0 < lines["bound"]["session"] < lines["evicted"]["session"] <= lines["session ended"]["session"]


async def test_volcanos_way_deletes_without_asking(cluster: Cluster, start: StartService) -> None:
    decider = FirstFit()
    service = await start(lambda _: decider, delete_victims=True)
    cluster.gang("old", 1)
    await running(cluster, "old-0")
    protect(cluster)
    with cluster.held("DELETE", "/pods/old-0"):
        decider.victims = {"default/old-0"}
        cluster.group("wakes", 1)
        await until(lambda: bool(target(cluster.get(f"{PODS}/old-0"))))
        assert target(cluster.get(f"{PODS}/old-0"))["reason"] == "PreemptionByScheduler"
    await until(lambda: not cluster.pods())
    await until(lambda: evictions(service) == ["evicted"])
    assert cluster.count("POST", "/eviction") == 0


async def test_a_budget_is_respected_and_asked_again_later(cluster: Cluster, start: StartService) -> None:
    decider = FirstFit()
    service = await start(lambda _: decider, schedule_period=0.05)
    cluster.gang("old", 1)
    await running(cluster, "old-0")
    budget = protect(cluster)
    decider.victims = {"default/old-0"}
    began = time.monotonic()
    cluster.group("wakes", 1)
    await until(lambda: evictions(service)[:2] == ["refused", "refused"])
    assert time.monotonic() - began > 0.5
    assert cluster.count("POST", "/pods/old-0/eviction", 429) >= 2
    assert target(cluster.get(f"{PODS}/old-0")) == {}
    await until(lambda: "EvictionRefused" in cluster.reasons())
    assert "budget" in notes(cluster, "EvictionRefused")["old-0"]
    cluster.delete(budget)
    await until(lambda: not cluster.pods())
    await until(lambda: evictions(service)[-1] == "evicted")


async def test_who_is_refused_is_left_alone_and_another_goes(cluster: Cluster, start: StartService) -> None:
    """The pods of least priority are covered by a budget."""
    cluster.create(PRIORITIES, {"metadata": {"name": "middle"}, "value": 50})
    group(cluster, "spare", "middle")
    await filled(cluster, start, 15, UNASKED)
    await running(cluster, "spare-0")
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"maxUnavailable": 0, "selector": {"matchExpressions": [{"key": "spare", "operator": "DoesNotExist"}]}}
    cluster.create(path, {"metadata": {"name": "most"}, "spec": spec})
    group(cluster, "urgent", "high")
    await until(lambda: cluster.pods().get("urgent-0", "") != "")
    assert "spare-0" not in cluster.pods()
    assert sum(name.startswith("low-") for name in cluster.pods()) == 15
    assert {name for name in notes(cluster, "EvictionRefused") if name.startswith("low-")}


async def test_whoever_waits_says_that_others_could_not_be_evicted(cluster: Cluster, start: StartService) -> None:
    await filled(cluster, start, 16, UNASKED)
    protect(cluster)
    group(cluster, "urgent", "high")

    def said() -> str:
        conditions = cluster.get(f"{PODS}/urgent-0")["status"].get("conditions") or ()
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    await until(lambda: "pods of PodGroup default/low were not evicted for it: Cannot evict pod" in said())
    assert said().startswith("Unschedulable: ")


async def test_all_whom_it_concerns_are_told_the_action_the_rule_and_the_numbers(
    cluster: Cluster, start: StartService
) -> None:
    await filled(cluster, start, 16)
    group(cluster, "urgent", "high", 2)
    await until(lambda: cluster.pods().get("urgent-0", "") != "" and cluster.pods().get("urgent-1", "") != "")
    await until(lambda: {"low", "urgent"} <= {*notes(cluster, "Evict"), *notes(cluster, "Preempting")})
    why = "preempt for PodGroup default/urgent: priority 100 goes before 0 in queue default"
    told = notes(cluster, "Evict")
    assert sum(name.startswith("low-") for name in told) == 2
    assert all(why in note for note in told.values())
    assert why in notes(cluster, "Preempting")["urgent"]
    assert notes(cluster, "Preempting")["urgent"].startswith("2 pods of PodGroup default/low evicted")


async def test_neither_side_of_an_eviction_is_named_in_another_namespace(cluster: Cluster, start: StartService) -> None:
    """First a budget keeps the victims, then it is gone."""
    await filled(cluster, start, 16, UNASKED)
    budget = protect(cluster)
    cluster.create("/api/v1/namespaces", {"metadata": {"name": "research"}})
    version = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    spec = {"minMember": 1, "queue": "default", "priorityClassName": "high"}
    groups = f"{SCHEDULING}/namespaces/research/podgroups"
    cluster.create(groups, version | {"metadata": {"name": "urgent"}, "spec": spec})
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": "urgent-0", "annotations": {"scheduling.k8s.io/group-name": "urgent"}}
    pod = {"schedulerName": "stromboli", "containers": [container], "priorityClassName": "high"}
    cluster.create("/api/v1/namespaces/research/pods", {"metadata": metadata, "spec": pod})
    await until(lambda: {"low-0", "urgent"} <= {*notes(cluster, "EvictionRefused")})
    cluster.delete(budget)
    await until(lambda: {"low", "urgent"} <= {*notes(cluster, "Evict"), *notes(cluster, "Preempting")})
    rule = "because of preempt for a PodGroup in another namespace: a higher priority goes first in queue default"
    assert notes(cluster, "Preempting")["urgent"].startswith("1 pod of a PodGroup in another namespace evicted")
    assert all(rule in note for note in notes(cluster, "Evict").values())
    for event in cluster.items("/apis/events.k8s.io/v1/events"):
        other = "low" if event["regarding"]["namespace"] == "research" else "urgent"
        assert other not in event["note"], event
        assert "disruption budget" not in event["note"] or other == "urgent"
    said = str(cluster.get("/api/v1/namespaces/research/pods/urgent-0")["status"])
    assert "default/low" not in said
