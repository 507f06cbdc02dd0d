"""What `doctor` finds in queues, limits of queues above, levels of topology and node pools."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.checkup import findings
from tests.builders import decide, gang, node, pod_group, policy, queue, state
from tests.explain.asking import said

TREE = policy("gang", "predicates capacity").replace("name: capacity", "name: capacity\n    enableHierarchy: true")
TOP, BELOW = queue("top", parent="root"), queue("below", parent="top")


def found(by: str, *objects: Any) -> dict[str, str]:
    """What to do about each problem."""
    session = decide(state(*objects), by).session
    return {each.problem: each.advice for each in findings(Engine(by), session) if each.area != "policy"}


def waits(name: str) -> list[Any]:
    return [pod_group("job", 1, queue=name), *gang("job", 1)]


def test_a_queue_that_is_closed_by_one_above_is_opened_there() -> None:
    closed = queue("top", parent="root", state="Closed")
    told = found(TREE, node("n"), queue("root"), closed, BELOW, waits("below"))
    problem = "queue below has jobs but accepts none: queue top, above it, is Closed"
    assert told == {problem: "stromboli queue open top, or move its jobs"}


def test_jobs_of_a_queue_with_queues_below_are_told() -> None:
    objects = [node("n"), queue("root"), TOP, BELOW, waits("top")]
    (told,) = found(TREE, *objects)
    assert told == "queue top has jobs, and queues below it: its jobs get nothing"
    assert "queue top has jobs" not in " ".join(found(policy("gang", "predicates capacity"), *objects))


@pytest.mark.parametrize(
    ("above", "why", "change"),
    [
        ({"capability": {"cpu": "1"}}, "as queue top above it may have no more", "capability of queue top to 2 cpu"),
        (
            {"deserved": {"cpu": "1"}, "borrowingLimit": {"cpu": "0"}},
            "as queue top above it borrows 0",
            "borrowingLimit of queue top to 1 cpu",
        ),
    ],
)
def test_what_a_queue_above_limits_is_told_and_can_be_raised_there(
    above: dict[str, Any], why: str, change: str
) -> None:
    """Though all that it holds was decided in the same session."""
    job = [pod_group("job", 1, queue="below"), *gang("job", 3)]
    cluster = state(node("n", cpu="8"), queue("root"), queue("top", parent="root", **above), BELOW, job)
    text = said(cluster, "job default/job", TREE)
    assert why in text
    assert f"admin: raise {change} -> 1 pod bound" in text


LEVELS = "topology: {levels: [{nodeLabel: zone}, {nodeLabel: rack}]}\n" + policy(
    "gang", "predicates proportion network-topology-aware"
)
HARD = {"networkTopology": {"mode": "hard", "highestTierName": "rack"}}


def test_levels_that_no_node_has_and_nodes_between_levels_are_told() -> None:
    near, far = node("near", labels={"zone": "a", "rack": "1"}), node("far", labels={"zone": "a"})
    assert found(LEVELS, near, node("apart"), queue("default")) == {}
    (told,) = found(LEVELS, near, far, queue("default"))
    assert told == "1 node (far) without the label rack, but with others of topology.levels"
    (told,) = found(LEVELS, far, queue("default"))
    assert told == "no node has the label rack of topology.levels"


@pytest.mark.parametrize(
    ("tier", "why"),
    [
        ("rack", "there is no HyperNode of tier rack; no node has the label rack together with those of wider levels"),
        ("racks", "there is no HyperNode of tier racks; did you mean 'rack'?"),
        (
            "pod",
            "there is no HyperNode of tier pod; the policy's topology.levels stand in for HyperNodes of the cluster",
        ),
    ],
)
def test_a_tier_that_is_not_there_is_told_with_what_is_meant(tier: str, why: str) -> None:
    job = pod_group("job", 2, networkTopology={"mode": "hard", "highestTierName": tier})
    cluster = state(node("n", labels={"zone": "a"}), queue("default"), job, *gang("job", 2))
    first = said(cluster, "job default/job", LEVELS).split("Who can change it")[0]
    assert "; ".join(line.strip() for line in first.splitlines()[1:] if line.strip()) == why


def test_node_pools_that_do_not_follow_the_tree_are_told() -> None:
    pools = "\n    arguments: {pools: [{name: a, nodeSelector: {pool: a}}]}"
    by = TREE.replace("- name: predicates", f"- name: nodepools{pools}\n  - name: predicates")
    follows = by.replace("- name: nodepools", "- name: nodepools\n    enableHierarchy: true")

    def problems(text: str) -> list[str]:
        session = decide(state(node("n", labels={"pool": "a"}), queue("root")), text).session
        return [each.problem for each in findings(Engine(text), session) if "nodepools" in each.problem]

    assert problems(by) == ["nodepools does not follow the tree of queues"]
    assert problems(follows) == []


def test_queues_below_one_that_are_guaranteed_more_than_it_are_told() -> None:
    pools = "\n    enableHierarchy: true\n    arguments: {pools: [{name: a, nodeSelector: {pool: a}}]}"
    by = TREE.replace("- name: predicates", f"- name: nodepools{pools}\n  - name: predicates")

    def problems(text: str, **of_top: Any) -> list[str]:
        each = {"guarantee": {"resource": {"cpu": "3"}}}
        pools = [{"name": "a", "guarantee": {"resource": {"cpu": "2"}}}]
        below = [queue(name, parent="top", pools=pools, **each) for name in ("one", "two")]
        nodes = node("n", cpu="16", labels={"pool": "a"})
        session = decide(state(nodes, queue("root"), queue("top", parent="root", **of_top), below), text).session
        return [each.problem for each in findings(Engine(text), session) if "below" in each.problem]

    less = {"guarantee": {"resource": {"cpu": "4"}}, "pools": [{"name": "a", "capability": {"cpu": "3"}}]}
    assert problems(by, **less) == [
        "queues below queue top are guaranteed 6 cpu, and its guarantee is 4",
        "queues below queue top are guaranteed 4 cpu in node pool a, and its capability is 3",
    ]
    assert problems(by, guarantee={"resource": {"cpu": "6"}}, capability={"memory": "1Gi"}) == []
    assert problems(policy("capacity"), **less) == []
