"""backfill: pods that request nothing get a node, whatever is left of it."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.decisions import Bind
from stromboli.engine import SessionResult
from tests import builders
from tests.builders import gang, node, pod, pod_group, queue
from tests.plugins.queues import BOTH, asks, why


def backfill(*objs: Any, actions: str = "backfill", compatibility: Any = "strict") -> SessionResult:
    """A session on a queue `default` and these objects."""
    by = builders.policy("priority gang", "predicates proportion", actions=actions)
    return builders.decide(builders.state(queue("default"), *objs), by, compatibility=compatibility)


def best_effort(group: str, count: int = 1, **more: Any) -> list[Any]:
    """Pods of a group that request nothing."""
    return gang(group, count, cpu="", memory="", **more)


def places(result: SessionResult) -> dict[str, str]:
    """The node of each pod that was bound, in the order of decision."""
    return {d.name: d.node for d in result.decisions if isinstance(d, Bind)}


@BOTH
def test_a_full_node_has_room_for_pods_that_request_nothing(compatibility: Any) -> None:
    full = [pod_group("uses", phase="Running"), pod("uses-0", "uses", cpu="1", node="n")]
    result = backfill(node("n", cpu="1"), *full, pod_group("job"), *best_effort("job", 3), compatibility=compatibility)
    assert places(result) == {f"job-{i}": "n" for i in range(3)}


@BOTH
def test_the_number_of_pods_on_a_node_is_a_limit_all_the_same(compatibility: Any) -> None:
    result = backfill(node("n", pods="2"), pod_group("job"), *best_effort("job", 3), compatibility=compatibility)
    assert len(places(result)) == 2
    reason = why(result, "job-2")
    assert (reason.stage.name, reason.nodes) == ("Placement", {"Insufficient pods": 1})


@BOTH
def test_predicates_are_asked(compatibility: Any) -> None:
    nodes = [node("a"), node("b", labels={"disk": "ssd"})]
    picky = best_effort("job", nodeSelector={"disk": "ssd"})
    assert places(backfill(*nodes, pod_group("job"), *picky, compatibility=compatibility)) == {"job-0": "b"}
    result = backfill(nodes[0], pod_group("job"), *picky, compatibility=compatibility)
    assert why(result, "job-0").reason == "NoMatchingNode"


@BOTH
def test_pods_that_request_something_are_left_to_allocate(compatibility: Any) -> None:
    pods = [*best_effort("job"), pod("job-9", "job")]
    assert places(backfill(node("n"), pod_group("job"), *pods, compatibility=compatibility)) == {"job-0": "n"}


@BOTH
def test_pods_that_request_nothing_are_left_alone_by_allocate(compatibility: Any) -> None:
    scene = [node("n"), pod_group("job"), *best_effort("job")]
    assert places(backfill(*scene, actions="allocate", compatibility=compatibility)) == {}


@pytest.mark.parametrize(("compatibility", "placed"), [("strict", 0), ("volcano", 2)])
def test_strictly_a_gang_starts_whole_here_too(compatibility: Any, placed: int) -> None:
    """Volcano takes those that wait for ready."""
    scene = [node("n", pods="2"), pod_group("job", 3), *best_effort("job", 3)]
    assert len(places(backfill(*scene, compatibility=compatibility))) == placed


@BOTH
@pytest.mark.parametrize("last", ["1", "32"])
def test_a_gang_in_which_some_request_nothing_starts_whole(last: str, compatibility: Any) -> None:
    """With a pod too large for the node none of the others has a place."""
    scene = [node("n", cpu="4"), pod_group("job", 3), *best_effort("job"), *gang("job", 4, cpu=last)[2:]]
    result = backfill(*scene, actions="allocate, backfill", compatibility=compatibility)
    assert len(places(result)) == (3 if last == "1" else 0)


@BOTH
@pytest.mark.parametrize(
    ("objs", "word"),
    [
        pytest.param([asks("job", "1"), *best_effort("job")], "NotAdmitted", id="the job is not admitted"),
        pytest.param([pod_group("job", 2), *best_effort("job")], "NotEnoughPods", id="the gang lacks a pod"),
        pytest.param(
            [pod_group("job"), *best_effort("job", schedulingGates=[{"name": "quota"}])], None, id="the pod is gated"
        ),
    ],
)
def test_some_have_to_wait(objs: list[Any], word: str | None, compatibility: Any) -> None:
    result = backfill(node("n"), *objs, compatibility=compatibility)
    assert places(result) == {}
    assert word is None or why(result, "job-0").reason == word


@pytest.mark.parametrize(("compatibility", "placed"), [("strict", {}), ("volcano", {"job-0": "n"})])
def test_strictly_a_closed_queue_takes_nobody(compatibility: Any, placed: dict[str, str]) -> None:
    scene = [node("n"), queue("closed", state="Closed"), pod_group("job", queue="closed"), *best_effort("job")]
    result = backfill(*scene, compatibility=compatibility)
    assert places(result) == placed
    if not placed:
        assert why(result, "job-0").reason == "QueueNotOpen"


def test_jobs_are_served_in_order() -> None:
    """The node takes one pod more: the job of the higher priority has it, and of its pods the more important one."""
    high = builders.decode("PriorityClass", {"metadata": {"name": "high"}, "value": 10}, "high")
    late = [pod_group("late", created=9, priorityClassName="high")]
    pods = [pod(f"late-{i}", "late", cpu="", memory="", priority=i) for i in range(2)]
    result = backfill(node("n", pods="1"), high, pod_group("early"), *best_effort("early"), *late, *pods)
    assert places(result) == {"late-1": "n"}
