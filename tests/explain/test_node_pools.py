"""What is told of node pools: shares of queues by pool, and what would let a job into one."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.explain.answers import QueueAnswer
from tests.builders import node, queue, state
from tests.explain.asking import answer, said, why
from tests.plugins.pools import CLASSES, in_pool, job, policy, running, shares

NODES = [in_pool("a"), in_pool("b")]


def helps(*objects: Any, actions: str = "enqueue, allocate, reclaim") -> list[str]:
    """What would let the job start, each with who can do it."""
    found = why(state(CLASSES, *objects), "job default/job", policy(actions=actions))
    return [f"{remedy.who}: {remedy.change}" for remedy in found.remedies]


def test_a_queue_tells_how_it_stands_in_each_pool() -> None:
    team = shares("team", a={"deserved": "2", "capability": "3"})
    objects = [*NODES, team, shares("owner", b={"guarantee": "1"}), running("old", "a", "b", "b")]
    found = answer(state(CLASSES, *objects), "queue team", policy())
    assert isinstance(found, QueueAnswer)
    levels = {level.pool: level for level in found.levels if level.pool and level.resource == "cpu"}
    assert {name: (level.held, level.deserved, level.limit) for name, level in levels.items()} == {
        "a": ("1", "2", "3"),
        "b": ("2", "", "3"),
    }
    text = said(state(CLASSES, *objects), "queue team", policy())
    assert "team cpu in node pool a: holds 1, deserves 2, may have 3" in text
    assert "owner cpu in node pool b: holds 0, guarantee 1" in said(state(CLASSES, *objects), "queue owner", policy())


def test_the_limit_of_a_queue_that_holds_more_is_told_as_it_is() -> None:
    """Its pods ran on the nodes before these came into the pool."""
    objects = [*NODES, shares("team", a={"capability": "1"}), running("old", "a", "a")]
    assert "team cpu in node pool a: holds 2, may have 1" in said(state(CLASSES, *objects), "queue team", policy())


def test_limits_of_queues_above_are_told_of_pools_where_they_count() -> None:
    """Without the tree of queues they limit nothing, and raising them would help nothing."""
    tree = [queue("root"), shares("top", parent="root", a={"capability": "2"})]
    team = shares("team", parent="top", a={"capability": "2"})
    cluster = state(CLASSES, *NODES, *tree, team, running("old", "a"), job("job", 2, "a"))
    change = "raise capability of queue team in node pool a to 3 cpu"
    for follows in (True, False):
        by = policy(actions="enqueue, allocate", enableHierarchy=follows)
        assert ("top cpu in node pool a" in said(cluster, "queue team", by)) == follows
        raised = [each.change for each in why(cluster, "job default/job", by).remedies if "raise" in each.change]
        assert raised == [f"{change}; {change.replace('team', 'top')}" if follows else change]


def test_the_number_of_pods_that_a_queue_may_have_in_a_pool_is_told_and_raised() -> None:
    few = queue("team", pools=[{"name": "a", "capability": {"pods": "1"}}])
    objects = [*NODES, few, job("job", 2, "a")]
    assert "team pods in node pool a: holds 0, may have 1" in said(state(CLASSES, *objects), "queue team", policy())
    assert "admin: raise capability of queue team in node pool a to 2 pods" in helps(*objects)


def test_a_gang_that_a_queue_above_keeps_out_of_a_pool_names_that() -> None:
    tree = [queue("root"), shares("top", parent="root", a={"capability": "2"})]
    team = shares("team", parent="top", a={"capability": "4"})
    found = why(
        state(CLASSES, *NODES, *tree, team, job("job", 3, "a")), "job default/job", policy(enableHierarchy=True)
    )
    assert found.message.endswith("more than queue top above queue team may ever hold in node pool a, in cpu")


def test_nothing_is_told_of_pools_that_no_queue_names() -> None:
    assert "in node pool" not in said(state(*NODES, queue("team"), running("old", "a")), "queue team", policy())


def test_what_admitted_jobs_claim_of_a_pool_is_told() -> None:
    claims = job("one", 2, "a", minResources={"cpu": "2"}, phase="Inqueue")[0]
    text = said(state(CLASSES, *NODES, shares("team", a={"capability": "3"}), claims), "queue team", policy())
    assert "team cpu in node pool a: holds 0, claimed 2, may have 3" in text


@pytest.mark.parametrize("asks", [{}, {"minResources": {"cpu": "2"}, "phase": "Pending"}])
def test_a_limit_of_a_pool_is_raised_by_what_is_asked_for(asks: dict[str, Any]) -> None:
    team = shares("team", a={"capability": "2"})
    found = helps(*NODES, team, running("old", "a", "a"), job("job", 2, "a", **asks))
    assert "admin: raise capability of queue team in node pool a to 4 cpu" in found
    assert "user: set the annotation stromboli.io/pools: a,b on PodGroup default/job" in found


def test_a_limit_is_raised_by_what_other_pools_do_not_have() -> None:
    team = shares("team", a={"capability": "2"}, b={"capability": "1"})
    found = helps(*NODES, team, running("old", "a"), job("job", 3, "a,b"))
    assert "admin: raise capability of queue team in node pool a to 3 cpu" in found


def test_a_limit_of_a_queue_above_is_raised_with_it() -> None:
    parent, team = shares("parent", a={"capability": "1"}), shares("team", parent="parent", a={"capability": "1"})
    objects = [*NODES, queue("root"), parent, team, job("job", 2, "a")]
    by = policy(enableHierarchy=True)
    found = why(state(CLASSES, *objects), "job default/job", by)
    raised = [f"raise capability of queue {name} in node pool a to 2 cpu" for name in ("team", "parent")]
    assert [remedy.change for remedy in found.remedies if remedy.who == "admin"] == ["; ".join(raised)]


def test_a_guarantee_in_a_pool_is_lowered_as_far_as_needed() -> None:
    found = helps(*NODES, shares("owner", a={"guarantee": "3"}), queue("team"), job("job", 3, "a"))
    assert "admin: lower the guarantee of queue owner in node pool a to 1 cpu" in found


def test_what_a_queue_deserves_in_a_pool_is_raised_where_it_may_take_back() -> None:
    mine, team = shares("mine", a={"deserved": "1"}), shares("team", a={"deserved": "1"})
    full = running("full", "a", "a", "a"), running("has", "a", owner="mine")
    found = helps(in_pool("a"), mine, team, *full, job("job", 1, "a", owner="mine"))
    assert "admin: raise what queue mine deserves in node pool a to 2 cpu" in found


def test_a_pool_that_is_misspelt() -> None:
    objects = [node("n", cpu="4", labels={"pool": "gold"}), queue("team"), job("job", 1, "glod")]
    found = why(state(*objects), "job default/job", policy("gold", "silver"))
    assert [remedy.change for remedy in found.remedies] == [
        "set the annotation stromboli.io/pools: gold on PodGroup default/job"
    ]


def test_a_pool_without_nodes_is_no_advice() -> None:
    assert not any("pools" in each for each in helps(in_pool("a"), queue("team"), job("job", 5, "a")))


def test_the_jobs_that_hold_a_pool_are_named() -> None:
    team = shares("team", a={"capability": "2"})
    asks = job("job", 1, "a", minResources={"cpu": "1"}, phase="Pending")
    by = policy(actions="enqueue, allocate")
    text = said(state(CLASSES, *NODES, team, running("old", "a", "a"), asks), "job default/job", by)
    assert "default/old in queue team: 2 pods" in text
