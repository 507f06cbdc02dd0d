"""proportion: a cluster is divided between the queues that have jobs, by weight."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from tests.builders import node, queue
from tests.plugins.queues import BOTH, admitted, asks, bound, cpus, evicted, holds, refused, wants, why
from tests.plugins.sessions import decide, policy


def divide(
    *objs: Any, cpu: str = "8", pods: str = "110", actions: str = "allocate", compatibility: Any = "strict"
) -> SessionResult:
    """One session on a node n."""
    by = policy("proportion", actions=actions)
    return decide(node("n", cpu=cpu, pods=pods), *objs, by=by, compatibility=compatibility)


# -- what a queue deserves -------------------------------------------------------------------------------------------


@BOTH
def test_queues_share_by_weight(compatibility: Any) -> None:
    """8 CPUs in parts of 1 and 3: 2 and 6."""
    result = divide(queue("a"), queue("b", 3), *wants("a"), *wants("b"), compatibility=compatibility)
    assert bound(result) == {"a": 2, "b": 6}
    assert cpus(result, "deserved") == {"a": 2, "b": 6}


@BOTH
def test_what_a_queue_does_not_request_goes_to_the_others(compatibility: Any) -> None:
    """b would get 6 and requests 2; queues without jobs take no part."""
    queues = [queue("a"), queue("b", 3), queue("idle", 100)]
    assert bound(divide(*queues, *wants("a"), *wants("b", 2), compatibility=compatibility)) == {"a": 6, "b": 2}


@BOTH
def test_a_capability_is_the_most_a_queue_deserves(compatibility: Any) -> None:
    queues = [queue("a"), queue("b", 3, capability={"cpu": "5"})]
    assert bound(divide(*queues, *wants("a"), *wants("b"), compatibility=compatibility)) == {"a": 3, "b": 5}


@BOTH
def test_a_capability_of_nothing_is_no_limit_in_cpu(compatibility: Any) -> None:
    assert bound(divide(queue("a", capability={"cpu": "0"}), *wants("a"), compatibility=compatibility)) == {"a": 8}


@BOTH
def test_a_guarantee_is_kept_for_a_queue_without_jobs(compatibility: Any) -> None:
    idle = queue("idle", guarantee={"resource": {"cpu": "3"}})
    assert bound(divide(queue("a"), idle, *wants("a"), compatibility=compatibility)) == {"a": 5}


@pytest.mark.parametrize(
    ("compatibility", "deserved"), [("strict", {"a": 6, "b": 3, "c": 3}), ("volcano", {"a": 6, "b": 4, "c": 4})]
)
def test_a_guarantee_is_the_least_a_queue_deserves(compatibility: Any, deserved: dict[str, float]) -> None:
    """Each would get 4 of 12. Strictly b and c bear it together; Volcano gives out 14."""
    queues = [queue("a", guarantee={"resource": {"cpu": "6"}}), queue("b"), queue("c")]
    result = divide(*queues, *wants("a"), *wants("b"), *wants("c"), cpu="12", compatibility=compatibility)
    assert cpus(result, "deserved") == deserved


@pytest.mark.parametrize(("compatibility", "placed"), [("strict", {"a": 4, "b": 4}), ("volcano", {})])
def test_without_any_weight_queues_are_equal_strictly(compatibility: Any, placed: dict[str, int]) -> None:
    assert bound(divide(queue("a", 0), queue("b", 0), *wants("a"), *wants("b"), compatibility=compatibility)) == placed


@BOTH
def test_a_queue_without_weight_gets_nothing_beside_one_with(compatibility: Any) -> None:
    result = divide(queue("a", 0), queue("b"), *wants("a"), *wants("b", 3), compatibility=compatibility)
    assert bound(result) == {"b": 3}


@pytest.mark.parametrize(("compatibility", "each"), [("strict", 3.333), ("volcano", 10 / 3)])
def test_strictly_shares_are_whole_units(compatibility: Any, each: float) -> None:
    queues = [queue(name) for name in "abc"]
    result = divide(*queues, *wants("a"), *wants("b"), *wants("c"), cpu="10", compatibility=compatibility)
    assert cpus(result, "deserved") == pytest.approx(dict.fromkeys("abc", each), rel=1e-9)


# -- who is served, and when it ends ---------------------------------------------------------------------------------


#: each of three queues deserves 4 of 12 CPUs; one is free
ONE_FREE = [*holds("a", 1), *holds("b", 2), *holds("rich", 8), *wants("rich"), *wants("a"), *wants("b")]


@pytest.mark.parametrize(("priority", "served"), [(0, "a"), (1, "b")])
def test_the_queue_with_the_smallest_share_is_served_first_unless_another_has_priority(
    priority: int, served: str
) -> None:
    """a holds 1 of 4, b 2 of 4."""
    queues = [queue("rich"), queue("b", priority=priority), queue("a", created=1)]
    assert bound(divide(*queues, *ONE_FREE, cpu="12")) == {served: 1}


@BOTH
def test_a_pod_that_does_not_fit_into_the_share_waits(compatibility: Any) -> None:
    """4 CPUs each; a second pod of 3 would make it 6."""
    result = divide(queue("a"), queue("b"), *wants("a", 4, cpu="3"), *wants("b"), compatibility=compatibility)
    assert bound(result) == {"a": 1, "b": 4}
    reason = why(result, "a-1")
    assert (reason.reason, reason.message, reason.actionable) == (
        "QueueShareExceeded",
        "queue a has no capacity left in cpu",
        "wait",
    )
    assert reason.detail == "cpu: holds 3, deserves 4, 3 more requested"


@BOTH
def test_a_queue_that_holds_all_that_it_deserves_is_overused(compatibility: Any) -> None:
    """The number of pods counts, too: 4 of 8 for each queue."""
    scene = [queue("a"), queue("b"), *holds("a", 5), *wants("a", 1), *wants("b", 4)]
    result = divide(*scene, pods="8", compatibility=compatibility)
    assert bound(result) == {"b": 3}
    reason = refused(result, "a")
    assert (reason.reason, reason.message) == ("QueueOverused", "queue a holds all that it deserves")
    gauges = result.session.report.gauges
    assert (gauges["a"].overused, gauges["a"].share) == (True, 1.25)
    assert (gauges["b"].overused, gauges["b"].share) == (False, 0.75)


@BOTH
@pytest.mark.parametrize("state", ["Closed", "Closing", "Unknown", ""])
def test_a_queue_that_is_not_open_takes_nothing(compatibility: Any, state: str) -> None:
    result = divide(queue("a", state=state), *wants("a"), compatibility=compatibility)
    assert bound(result) == {}
    told = f"takes no new work: its state is {state}" if state else "is not open yet"
    assert why(result, "a-0").message == f"queue a {told}"


# -- admission -------------------------------------------------------------------------------------------------------


def enqueue(*objs: Any, compatibility: Any = "strict") -> SessionResult:
    """A session that only admits, on 8 CPUs of which queue a may have 4."""
    capped = queue("a", capability={"cpu": "4"})
    return divide(capped, *objs, actions="enqueue", compatibility=compatibility)


@BOTH
def test_jobs_are_admitted_up_to_the_capability(compatibility: Any) -> None:
    """What a job is to start with counts from its admission on."""
    jobs = [asks("one", "3", "a", created=1), asks("two", "2", "a", created=2), asks("three", "1", "a", created=3)]
    result = enqueue(*jobs, compatibility=compatibility)
    assert admitted(result) == ["one", "three"]
    reason = refused(result, "two")
    assert (reason.stage.name, reason.reason) == ("Admission", "QueueCapabilityExceeded")
    assert reason.detail == "cpu: holds 0, 3 more claimed by admitted jobs, may have 4, 2 more requested"


@BOTH
def test_without_min_resources_nothing_is_checked(compatibility: Any) -> None:
    full = holds("a", 4)
    assert admitted(enqueue(*full, asks("any", None, "a"), compatibility=compatibility)) == ["any"]


@BOTH
@pytest.mark.parametrize(("least", "room"), [("4", []), ("1", ["next"])])
def test_what_a_job_holds_beyond_its_min_resources_stands_in_nobodys_way(
    compatibility: Any, least: str, room: list[str]
) -> None:
    used = holds("a", 4, minResources={"cpu": least})
    assert admitted(enqueue(*used, asks("next", "3", "a"), compatibility=compatibility)) == room


# -- taking back -----------------------------------------------------------------------------------------------------


def reclaim(*objs: Any, compatibility: Any = "strict") -> SessionResult:
    return divide(*objs, actions="reclaim", compatibility=compatibility)


@BOTH
def test_a_queue_gives_back_what_it_holds_above_its_share(compatibility: Any) -> None:
    """poor requests 3 of 8, so rich deserves 5 and gives 3; a fourth pod would get 4 and leave rich 4."""
    scene = [queue("rich"), queue("poor"), *holds("rich", 8)]
    assert evicted(reclaim(*scene, *wants("poor", 3, min_member=3), compatibility=compatibility)) == {"rich-uses": 3}
    assert evicted(reclaim(*scene, *wants("poor", 4, min_member=4), compatibility=compatibility)) == {"rich-uses": 4}


@BOTH
def test_no_queue_takes_more_than_it_deserves(compatibility: Any) -> None:
    """Each deserves 4; a gang of 5 would have to take what rich deserves."""
    scene = [queue("rich"), queue("poor"), *holds("rich", 8), *wants("poor", 5, min_member=5)]
    assert evicted(reclaim(*scene, compatibility=compatibility)) == {}


@BOTH
def test_nobody_gives_what_it_deserves(compatibility: Any) -> None:
    """Of three that deserve 3 each of 9, fair holds 3 and rich 6."""
    scene = [queue("rich"), queue("fair"), queue("poor"), *holds("rich", 6), *holds("fair", 3)]
    wanted = wants("poor", 3, min_member=3)
    result = divide(
        *scene, *wanted, *wants("rich"), *wants("fair"), cpu="9", actions="reclaim", compatibility=compatibility
    )
    assert evicted(result) == {"rich-uses": 3}


# -- what is exported ------------------------------------------------------------------------------------------------


@BOTH
def test_gauges_of_queues(compatibility: Any) -> None:
    """Requests are those of pods that run or wait; a queue without jobs has no share."""
    idle = queue("idle", 2)
    result = divide(queue("a", 3), idle, *holds("a", 2), *wants("a", 1), cpu="4", compatibility=compatibility)
    assert cpus(result, "allocated") == {"default": 0, "a": 3, "idle": 0}
    assert cpus(result, "request") == {"default": 0, "a": 3, "idle": 0}
    assert cpus(result, "deserved") == {"a": 3}
    gauges = result.session.report.gauges
    assert (gauges["a"].weight, gauges["a"].share) == (3, 1.0)
    assert (gauges["idle"].weight, gauges["idle"].share) == (None, None)


@BOTH
def test_what_was_admitted_before_is_exported_as_claimed(compatibility: Any) -> None:
    job = asks("job", "3", "a")
    job.status.phase = "Inqueue"
    assert cpus(divide(queue("a"), job, compatibility=compatibility), "inqueue") == {"default": 0, "a": 3}


@pytest.mark.parametrize(("capability", "helps"), [("3", True), ("0", True), ("2", False)])
def test_more_nodes_help_where_no_capability_ends_a_share(capability: str, helps: bool) -> None:
    """Two queues deserve 2 of 4 CPUs each; a capability of 0 is none."""
    result = divide(queue("a", capability={"cpu": capability}), queue("b"), *wants("a"), *wants("b"), cpu="4")
    assert bound(result) == {"a": 2, "b": 2}
    assert why(result, "a-9").scalable == helps
