"""Of victims that cost the same: those of the job that is served last, in whatever way the places are found."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from tests.actions.evictions import evicted
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.eviction.test_ordering import ACTIONS, victims
from tests.expectations.test_preemption import CLASSES, flat, policy, wants


def equals(*on: str, least: int, created: dict[str, int]) -> list[Any]:
    """Jobs with equal pods on some nodes; what they were created at differs, or their names alone."""
    return [
        [
            pod_group(name, least, phase="Running", priorityClassName="low", created=at),
            *(pod(f"{name}-{i}", name, memory="", node=where) for i, where in enumerate(on)),
        ]
        for name, at in created.items()
    ]


CREATED = pytest.mark.parametrize(
    ("created", "last"),
    [({"b": 1, "a": 2, "c": 0}, "a"), ({"b": 1, "a": 1, "c": 1}, "c")],
    ids=["created last", "the last name"],
)


@ACTIONS
@CREATED
@pytest.mark.parametrize("least", [0, 2], ids=["spared pods", "whole gangs"])
def test_on_one_node_the_job_that_is_served_last_gives_way(
    action: str, created: dict[str, int], last: str, least: int
) -> None:
    assert victims(action, node("n", cpu="6"), equals("n", "n", least=least, created=created)) == {last}


@ACTIONS
@CREATED
def test_where_gangs_spread_over_the_same_nodes_the_one_that_is_served_last_gives_way(
    action: str, created: dict[str, int], last: str
) -> None:
    nodes = [node("n", cpu="3"), node("m", cpu="3")]
    assert victims(action, *nodes, equals("n", "m", least=2, created=created), cpu="1") == {last}


@ACTIONS
def test_on_equal_nodes_the_first_node_is_cleared(action: str) -> None:
    """The scheduler has no reason to prefer the later one, whatever jobs are there."""
    jobs = [equals(name, name, least=2, created={f"on-{name}": at}) for at, name in enumerate("ab")]
    for nodes in ("ab", "ba"):
        cluster = [node(name, cpu="2") for name in nodes]
        assert victims(action, *cluster, jobs) == {f"on-{nodes[0]}"}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@CREATED
@pytest.mark.parametrize("least", [0, 2], ids=["spared pods", "whole gangs"])
def test_where_the_queue_is_at_its_limit_the_job_that_is_served_last_gives_way_wherever_it_is(
    action: str, created: dict[str, int], last: str, least: int
) -> None:
    cluster = [queue("default", capability={"cpu": "6"}), *(node(name, cpu="8") for name in "xyz")]
    jobs = [
        equals(where, where, least=least, created={name: at})
        for where, (name, at) in zip("xyz", created.items(), strict=True)
    ]
    snapshot = state(CLASSES, *cluster, *flat(jobs), wants(1, cpu="2")).snapshot()
    gone = evicted(Engine(policy(action)).decide(snapshot, now=NOON))
    assert {name.rpartition("-")[0] for name in gone} == {last}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_of_one_job_the_last_pod_gives_way(action: str) -> None:
    cluster = [queue("default"), node("n", cpu="3"), *flat(equals("n", "n", "n", least=0, created={"j": 0}))]
    snapshot = state(CLASSES, *cluster, *wants(1)).snapshot()
    assert evicted(Engine(policy(action)).decide(snapshot, now=NOON)) == ["j-2"]
