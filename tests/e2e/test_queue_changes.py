"""On a real API server: what queues, namespaces, nodes and users are changes while pods wait and run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.conftest import Start
from tests.e2e.test_queue_features import CAPACITY, POOLED, SOFT, TREE, USERS, elastic, why
from tests.e2e.test_shares_and_levels import PATCH, label, serve
from tests.e2e.test_timeouts import again, patch_status
from tests.e2e.world import CORE, SCHEDULING, World, pod, volcano

pytestmark = pytest.mark.e2e

RULES = """actions: "enqueue, allocate"
queueRules:
- {queue: "{label:team}", create: true, parent: teams}
- {queue: rest}
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]
"""
TIMED = """actions: "timeouts, enqueue, allocate"
configurations:
- name: timeouts
  arguments: {podsReadyTimeout: 4s, backoffBase: %s, backoffLimitCount: 1}
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: overcommit}]
"""
RUN_TIME = TIMED.replace("podsReadyTimeout: 4s, ", "maxRunTime: 8s, ") % "1s"
MINIMUM = """actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: minruntime}]
"""


def note(world: World, queue: str, **notes: str | None) -> None:
    """Change annotations of a queue; they begin with stromboli.io, and have - for _."""
    named = {f"stromboli.io/{name.replace('_', '-')}": value for name, value in notes.items()}
    path = f"{SCHEDULING}/queues/{queue}"
    world.api.patch(path, json={"metadata": {"annotations": named}}, headers=PATCH).raise_for_status()


def job(world: World, name: str, pods: int, queue: str, notes: Mapping[str, str], least: int = 0) -> None:
    """A PodGroup with annotations, and its pods."""
    made = volcano("PodGroup", name, {"minMember": least or pods, "queue": queue})
    made["metadata"]["annotations"] = dict(notes)
    world.create(world._groups, made)
    world.pods([pod(f"{name}-{number}", name) for number in range(pods)])


def unready(world: World, name: str) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    said = {"type": "Ready", "status": "False", "lastTransitionTime": now}
    patch_status(world, f"{world._pods}/{name}", {"conditions": [said]})


def running(world: World) -> int:
    return sum(each["status"]["phase"] == "Running" for each in world.items(world._pods))


def test_a_queue_is_closed_to_a_namespace_while_its_gang_runs_and_opened_again(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="8")
    world.queue("labs")
    serve(start, tmp_path, CAPACITY)
    elastic(world, "grows", 2, "labs")
    eventually(lambda: world.bound() == {"grows": 2})
    note(world, "labs", namespaces="others")
    world.pods([pod("grows-2", "grows")])
    eventually(lambda: world.refused() == {"grows-2": "NamespaceNotAllowed"})
    assert world.bound() == {"grows": 2}
    note(world, "labs", namespace_selector=f"kubernetes.io/metadata.name in ({world.namespace})")
    eventually(lambda: world.bound() == {"grows": 3})


def test_a_namespace_is_known_by_its_labels_from_the_start(world: World, start: Start, tmp_path: Path) -> None:
    """Its first pods come with it; what keeps it out counts for these."""
    world.nodes(1, cpu="64")
    world.queue("labs")
    note(world, "labs", namespace_selector="!stromboli.io/intern")
    serve(start, tmp_path, CAPACITY)
    names = [f"{world.namespace}-{number}" for number in range(8)]
    for name in names:
        metadata = {"name": name, "labels": {"stromboli.io/intern": "yes"}}
        world.create(f"{CORE}/namespaces", {"metadata": metadata})
        world.create(
            f"{SCHEDULING}/namespaces/{name}/podgroups", volcano("PodGroup", "g", {"minMember": 1, "queue": "labs"})
        )
        world.create(f"{CORE}/namespaces/{name}/pods", pod("g-0", "g"))
    elastic(world, "own", 1, "labs")
    eventually(lambda: world.bound() == {"own": 1})
    for name in names:
        (found,) = world.items(f"{CORE}/namespaces/{name}/pods")
        assert "nodeName" not in found["spec"]
        world.api.delete(f"{CORE}/namespaces/{name}/pods/g-0", params={"gracePeriodSeconds": "0"}).raise_for_status()
        world.api.delete(f"{CORE}/namespaces/{name}").raise_for_status()


def test_a_guest_in_the_job_of_another_user_keeps_to_the_own_limit(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="16")
    world.queue("labs")
    serve(start, tmp_path, USERS)
    job(world, "theirs", 1, "labs", {"stromboli.io/user": "ceo"})
    world.pods([pod(f"guest-{number}", "theirs", annotations={"stromboli.io/user": "guest-1"}) for number in range(4)])
    # The user of the job may have 3 CPUs, and a guest two pods.
    eventually(lambda: world.bound() == {"theirs": 3})
    world.api.delete(f"{world._pods}/theirs-0").raise_for_status()
    eventually(lambda: "theirs-0" not in {each["metadata"]["name"] for each in world.items(world._pods)})
    job(world, "own", 1, "labs", {"stromboli.io/user": "guest-1"})
    eventually(lambda: "user guest-1" in why(world, "own"))
    assert world.bound() == {"theirs": 2}


def test_a_pause_holds_over_a_restart_and_others_run_meanwhile(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="4")
    world.queue("labs")
    service = serve(start, tmp_path, TIMED % "25s")
    world.gang("stuck", 4, queue="labs")
    eventually(lambda: running(world) == 4)
    unready(world, "stuck-1")
    eventually(lambda: world.condition("stuck", "TimedOut").get("reason") == "PodsNotReady", 60)
    service.end()
    again(world, "stuck", 4)
    serve(start, tmp_path, TIMED % "25s")
    eventually(lambda: "did not get ready in time" in why(world, "stuck"))
    world.group("next", 4, queue="labs", minResources={"cpu": "4"})
    world.pods([pod(f"next-{number}", "next") for number in range(4)])
    eventually(lambda: world.bound() == {"next": 4}, 60)
    for number in range(4):
        world.api.delete(f"{world._pods}/next-{number}").raise_for_status()
    eventually(lambda: world.bound() == {"stuck": 4}, 60)


def test_a_gang_that_is_tried_no_more_runs_as_a_new_one(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="2")
    world.queue("labs")
    service = serve(start, tmp_path, TIMED % "1s")
    world.gang("stuck", 2, queue="labs")
    for _ in range(2):
        eventually(lambda: running(world) == 2, 60)
        unready(world, "stuck-0")
        again(world, "stuck", 2)
    eventually(lambda: "it timed out 2 times, and is tried no more" in why(world, "stuck"), 60)
    told = service.http.get(f"/api/v1/explain/job/{world.namespace}/stuck", timeout=60).raise_for_status().json()
    assert [each["change"] for each in told["remedies"]] == [
        f"delete PodGroup {world.namespace}/stuck and submit it again"
    ]
    world.delete_group("stuck")
    world.group("stuck", 2, queue="labs")
    eventually(lambda: world.bound() == {"stuck": 2}, 60)


def test_readiness_that_comes_and_goes_begins_the_time_anew(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(1, cpu="2")
    world.queue("labs")
    serve(start, tmp_path, TIMED % "1s")
    world.gang("flaps", 2, queue="labs")
    eventually(lambda: running(world) == 2)
    made = {each["metadata"]["uid"] for each in world.items(world._pods)}
    for _ in range(4):
        unready(world, "flaps-0")
        time.sleep(1.5)
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        patch_status(world, f"{world._pods}/flaps-0", {"conditions": [ready]})
        time.sleep(0.5)
    assert {each["metadata"]["uid"] for each in world.items(world._pods)} == made
    unready(world, "flaps-0")
    eventually(lambda: world.condition("flaps", "TimedOut").get("reason") == "PodsNotReady", 60)


def test_a_job_of_which_no_pod_is_left_has_its_maximum_run_time_again(
    world: World, start: Start, tmp_path: Path
) -> None:
    """As while its controller suspends it."""
    world.nodes(1, cpu="2")
    serve(start, tmp_path, RUN_TIME)
    world.gang("long", 1)
    eventually(lambda: running(world) == 1)
    time.sleep(3)
    world.api.delete(f"{world._pods}/long-0").raise_for_status()
    again(world, "long", 1)
    eventually(lambda: running(world) == 1, 60)
    time.sleep(4)
    assert world.bound() == {"long": 1}
    eventually(lambda: world.condition("long", "TimedOut").get("reason") == "MaximumRunTimeExceeded", 60)
    again(world, "long", 1)
    eventually(lambda: "ran for longer than 8 s" in why(world, "long"), 60)
    assert world.bound() == {}


def test_nodes_change_their_pool_under_a_job(world: World, start: Start, tmp_path: Path) -> None:
    world.nodes(2, cpu="4")
    label(world, "node-0", pool="fast")
    world.queue("team", pools=[{"name": "fast", "capability": {"cpu": "2"}}])
    service = serve(start, tmp_path, POOLED)
    job(world, "first", 2, "team", {"stromboli.io/pools": "fast"})
    job(world, "free", 4, "team", {}, least=1)
    eventually(lambda: world.bound() == {"first": 2, "free": 4})
    label(world, "node-1", pool="fast")
    job(world, "more", 1, "team", {"stromboli.io/pools": "fast"})
    eventually(lambda: "node pool fast" in why(world, "more"), 60)

    def pool() -> tuple[str, str]:
        """What the queue holds there, and may have."""
        levels = service.http.get("/api/v1/explain/queue/team", timeout=60).raise_for_status().json()["levels"]
        own = next(each for each in levels if (each.get("pool"), each["resource"]) == ("fast", "cpu"))
        return own["held"], own["limit"]

    eventually(lambda: pool() == ("6", "2"), 60, pool)
    label(world, "node-0", pool="slow")
    label(world, "node-1", pool="slow")
    eventually(lambda: pool() == ("0", "2"), 60, pool)
    label(world, "node-0", pool="fast")
    for number in range(2):
        world.api.delete(f"{world._pods}/first-{number}").raise_for_status()
    eventually(lambda: world.bound() == {"free": 4, "more": 1}, 60)


def test_nodes_are_labelled_and_relabelled_under_a_gang_that_needs_a_rack(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(4, cpu="1")
    label(world, "node-0", zone="east", rack="1")
    label(world, "node-1", rack="1")
    serve(start, tmp_path, SOFT)
    world.group("pair", 2, networkTopology={"mode": "hard", "highestTierName": "rack"})
    world.pods([pod(f"pair-{number}", "pair") for number in range(2)])
    eventually(lambda: "no HyperNode" in why(world, "pair"), 60)
    # A rack without its zone is none.
    label(world, "node-1", zone="east")
    eventually(lambda: set(world.placed().values()) == {"node-0", "node-1"}, 60)
    label(world, "node-1", rack="2")
    world.pods([pod("pair-2", "pair")])
    eventually(lambda: "pair-2" in world.refused(), 60)
    assert set(world.placed().values()) == {"node-0", "node-1"}
    label(world, "node-2", zone="east", rack="1")
    time.sleep(2)
    # No rack has both of the others.
    assert "pair-2" not in world.placed()
    label(world, "node-1", rack="1")
    eventually(lambda: world.placed().get("pair-2") == "node-2", 60)


def test_queues_that_labels_name_are_made_below_another_and_share_what_it_may_have(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="8")
    for name in ("teams", "rest", "ml.audio"):
        world.queue(name, **({"parent": "teams"} if name == "ml.audio" else {}))
    serve(start, tmp_path, RULES)
    made = []
    for name, team in (("a", "ml.audio"), ("b", "ML.Vision"), ("c", "ml_text"), ("d", "..")):
        made.append(pod(name, annotations={"team": team}))
    world.pods(made)
    eventually(lambda: len(world.placed()) == 4, 60)
    named = {
        each["metadata"]["ownerReferences"][0]["name"]: each["spec"]["queue"]
        for each in world.groups()
        if each["metadata"].get("ownerReferences")
    }
    assert named == {"a": "ml.audio", "b": "ml.vision", "c": "ml-text", "d": "rest"}
    parents = {each["metadata"]["name"]: each["spec"].get("parent") for each in world.items(f"{SCHEDULING}/queues")}
    assert (parents["ml.vision"], parents["ml-text"]) == ("teams", "teams")


def test_limits_on_borrowing_hold_for_what_is_below_and_change_while_jobs_wait(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="12")
    world.queue("group", deserved={"cpu": "4"}, borrowingLimit={"cpu": "2"})
    for name in ("one", "two"):
        world.queue(name, parent="group", deserved={"cpu": "2"})
    world.queue("other", deserved={"cpu": "8"})
    serve(start, tmp_path, TREE)
    elastic(world, "wide", 8, "one")
    eventually(lambda: world.bound() == {"wide": 6}, 60)
    patch = {"spec": {"borrowingLimit": {"cpu": "3"}}}
    world.api.patch(f"{SCHEDULING}/queues/group", json=patch, headers=PATCH).raise_for_status()
    eventually(lambda: world.bound() == {"wide": 7}, 60)
    patch = {"spec": {"borrowingLimit": {"cpu": "0"}}}
    world.api.patch(f"{SCHEDULING}/queues/group", json=patch, headers=PATCH).raise_for_status()
    world.gang("near", 2, queue="two")
    # What was borrowed stays until somebody below or beside needs what is theirs.
    eventually(lambda: world.bound().get("near") == 2, 90)
    assert world.bound()["wide"] <= 5


def test_a_minimum_run_time_goes_on_over_a_restart_and_spares_no_more_than_the_minimum(
    world: World, start: Start, tmp_path: Path
) -> None:
    world.nodes(1, cpu="4")
    world.queue("labs", preemptMinRuntime="20s")
    for name, value in (("low-change", 1), ("high-change", 10)):
        world.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json={"metadata": {"name": name}, "value": value})
    service = serve(start, tmp_path, MINIMUM)
    world.gang("low", 4, min_member=2, queue="labs", priorityClassName="low-change")
    eventually(lambda: running(world) == 4)
    began = time.monotonic()
    service.end()
    serve(start, tmp_path, MINIMUM)
    world.gang("spare", 2, queue="labs", priorityClassName="high-change")
    eventually(lambda: world.bound() == {"low": 2, "spare": 2}, 60)
    assert time.monotonic() - began < 18
    world.gang("whole", 2, queue="labs", priorityClassName="high-change")
    eventually(lambda: world.bound().get("whole") == 2, 60)
    assert time.monotonic() - began > 17
