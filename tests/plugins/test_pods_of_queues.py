"""`pods` in what a queue may have: it counts like any resource, where any queue names it."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import SessionResult
from stromboli.explain.queues import explain_queue
from tests.builders import gang, node, pod_group, queue
from tests.plugins.queues import bound, evicted, holds, wants, why
from tests.plugins.sessions import decide, policy

PLUGINS = pytest.mark.parametrize("plugin", ["proportion", "capacity"])


def divide(plugin: str, *objs: Any, pods: str = "12", actions: str = "allocate", **options: Any) -> SessionResult:
    """One session on a node n with room for so many pods, and CPUs for all that is asked for here."""
    return decide(node("n", cpu="100", pods=pods), *objs, by=policy(plugin, actions=actions), **options)


@PLUGINS
def test_a_capability_limits_the_pods_of_a_queue(plugin: str) -> None:
    objs = (queue("a", capability={"pods": "3"}), queue("b"), *wants("a", 6), *wants("b", 6))
    result = divide(plugin, *objs)
    assert bound(result) == {"a": 3, "b": 6}
    told = why(result, "a-5")
    assert "pods" in told.message, told
    assert bound(divide(plugin, *objs, compatibility="volcano")) == {"a": 6, "b": 6}
    answer = explain_queue(result.session, "a")
    assert answer is not None
    assert [(each.requested, each.held, each.limit) for each in answer.levels if each.resource == "pods"] == [
        ("6", "3", "3")
    ]


@PLUGINS
@pytest.mark.parametrize("cpu", ["1", ""])
def test_pods_that_request_nothing_else_count_too(plugin: str, cpu: str) -> None:
    objs = (queue("a", capability={"pods": "2"}), *wants("a", 5, cpu=cpu))
    assert bound(divide(plugin, *objs, actions="allocate, backfill")) == {"a": 2}


@PLUGINS
def test_a_gang_beyond_the_capability_starts_not_in_part(plugin: str) -> None:
    small = queue("a", capability={"pods": "3"})
    objs = (small, pod_group("g", 4, "a"), *gang("g", 4, cpu="1", memory=""))
    result = divide(plugin, *objs)
    assert bound(result) == {}
    assert why(result, "g-0").reason == "NeverFits"
    held = (*holds("a", 2), small, pod_group("g", 2, "a"), *gang("g", 2, cpu="1", memory=""))
    assert bound(divide(plugin, *held)) == {}


@PLUGINS
def test_a_guarantee_of_pods_is_kept_from_others(plugin: str) -> None:
    idle = queue("idle", guarantee={"resource": {"pods": "9"}})
    assert bound(divide(plugin, queue("a"), idle, *wants("a", 8))) == {"a": 3}


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("cpu", ["1", ""])
def test_deserved_pods_are_taken_back(action: str, cpu: str) -> None:
    """The node is full of pods while its CPUs are idle."""
    queues = queue("a", deserved={"pods": "8", "cpu": "8"}), queue("b", deserved={"pods": "4", "cpu": "4"})
    objs = (*queues, *holds("a", 12), *wants("b", 6, cpu=cpu))
    actions = f"allocate, backfill, {action}"
    assert evicted(divide("capacity", *objs, actions=actions)) == {"a-uses": 4}


@pytest.mark.parametrize("deserved", [{"cpu": "8"}, {"cpu": "8", "pods": "0"}])
def test_nothing_is_taken_back_for_pods_that_are_due_none(deserved: dict[str, str]) -> None:
    queues = queue("a", deserved=dict.fromkeys(deserved, "12")), queue("b", deserved=deserved)
    objs = (*queues, *holds("a", 12), *wants("b", 6, cpu=""))
    assert evicted(divide("capacity", *objs, actions="allocate, backfill, reclaim")) == {}


def test_pods_are_divided_by_weight() -> None:
    queues = queue("a", capability={"pods": "100"}), queue("b", 2)
    assert evicted(divide("proportion", *queues, *holds("a", 12), *wants("b", 12), actions="allocate, reclaim")) == {
        "a-uses": 8
    }


def test_a_tree_limits_pods_at_each_level() -> None:
    by = policy("capacity", actions="allocate").replace("name: capacity", "name: capacity\n    enableHierarchy: true")
    queues = queue("root"), queue("dept", parent="root", capability={"pods": "4"}), queue("team", parent="dept")
    result = decide(node("n", cpu="100"), *queues, *wants("team", 6), by=by)
    assert bound(result) == {"team": 4}


@PLUGINS
def test_where_no_queue_names_pods_they_do_not_count(plugin: str) -> None:
    result = divide(plugin, queue("a"), queue("b"), *wants("a", 6), *wants("b", 6))
    assert bound(result) == {"a": 6, "b": 6}
    assert not result.session.view.counts_pods
