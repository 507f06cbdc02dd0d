"""Sub groups: which pods are placed together, in which order, and how many groups a job starts with."""

from __future__ import annotations

from typing import Any

from stromboli.engine import SessionResult
from stromboli.framework.cluster.job import SubJob
from tests import builders

POLICY = builders.policy("priority gang", "predicates")


def decide(*pods: Any, nodes: int = 1, cpu: str = "16", min_member: int = 1, **spec: Any) -> SessionResult:
    """A session with one job of these pods and sub group policies."""
    cluster = builders.state(
        builders.queue("default"),
        [builders.node(f"n{i}", cpu=cpu) for i in range(nodes)],
        builders.pod_group("j", min_member, **spec),
        *pods,
    )
    return builders.decide(cluster, POLICY)


def groups(*pods: Any, **spec: Any) -> dict[str, SubJob]:
    """The groups of a job, by the end of their uid."""
    sub_jobs = decide(*pods, **spec).session.view.jobs["default/j"].sub_jobs
    return {uid.removeprefix("default/j").removeprefix("/"): sub_job for uid, sub_job in sub_jobs.items()}


def bound(result: SessionResult) -> list[str]:
    """The names of the pods that were bound, in the order of decision."""
    return [key.removeprefix("default/") for key in result.session.bound]


def pods_of(*values: str, each: int = 1, **spec: Any) -> list[Any]:
    """Pods with the label g, `each` of each value; a sign is no part of their names."""
    return [
        builders.pod(f"{value.strip('+-')}x{i}", "j", labels={"g": value}, **spec)
        for value in values
        for i in range(each)
    ]


def test_pods_with_the_same_values_are_one_group() -> None:
    found = groups(
        builders.pod("a", "j", labels={"g": "1", "h": "x"}),
        builders.pod("b", "j", labels={"g": "1", "h": "x"}),
        builders.pod("c", "j", labels={"g": "1", "h": "y"}),
        builders.pod("d", "j", labels={"g": "1"}),
        builders.pod("e", "j", labels={"g": "1", "h": ""}),
        subGroupPolicy=[{"name": "p", "matchLabelKeys": ["g", "h"], "subGroupSize": 2}],
    )
    assert {uid: (s.size, s.min_available, s.policy) for uid, s in found.items()} == {
        "p-1-x": (2, 2, "p"),
        "p-1-y": (1, 2, "p"),
        "": (2, 1, ""),
    }


def test_the_first_policy_that_selects_a_pod_counts_and_one_without_keys_selects_none() -> None:
    found = groups(
        builders.pod("a", "j", labels={"g": "1", "role": "worker"}),
        builders.pod("b", "j", labels={"g": "1", "role": "driver"}),
        subGroupPolicy=[
            {"name": "none", "labelSelector": {"matchLabels": {"role": "worker"}}},
            {"name": "worker", "labelSelector": {"matchLabels": {"role": "worker"}}, "matchLabelKeys": ["g"]},
            {"name": "all", "matchLabelKeys": ["g"]},
        ],
    )
    assert sorted(found) == ["all-1", "worker-1"]


def test_a_selector_that_kubernetes_refuses_selects_none() -> None:
    broken = {"matchExpressions": [{"key": "g", "operator": "NotIn", "values": []}]}
    found = groups(*pods_of("1"), subGroupPolicy=[{"name": "p", "labelSelector": broken, "matchLabelKeys": ["g"]}])
    assert sorted(found) == [""]


def test_a_job_without_policies_is_one_group() -> None:
    found = groups(*pods_of("1", "2"), min_member=2)
    assert {uid: (s.size, s.min_available) for uid, s in found.items()} == {"": (2, 2)}


def test_groups_go_by_their_number_then_by_name() -> None:
    assert [
        (s.uid, s.ordinal)
        for s in groups(
            *pods_of("10", "9", "+8", "b7", "1_1"), subGroupPolicy=[{"name": "p", "matchLabelKeys": ["g"]}]
        ).values()
    ] == [
        ("default/j/p-10", 10),
        ("default/j/p-9", 9),
        ("default/j/p-+8", 8),
        ("default/j/p-b7", 0),
        ("default/j/p-1_1", 0),
    ]
    result = decide(*pods_of("10", "9", "b", "a"), cpu="3", subGroupPolicy=[{"name": "p", "matchLabelKeys": ["g"]}])
    assert bound(result) == ["ax0", "bx0", "9x0"]


def test_the_group_with_the_highest_priority_goes_first() -> None:
    pods = [*pods_of("1"), *pods_of("2", priority=10)]
    result = decide(*pods, cpu="1", subGroupPolicy=[{"name": "p", "matchLabelKeys": ["g"]}])
    assert bound(result) == ["2x0"]


def test_a_group_is_placed_whole_or_not_at_all() -> None:
    policy = [{"name": "p", "matchLabelKeys": ["g"], "subGroupSize": 3}]
    result = decide(*pods_of("1", "2", each=3), cpu="5", subGroupPolicy=policy)
    assert sorted(bound(result)) == ["1x0", "1x1", "1x2"]
    assert result.session.view.nodes.idle[0, 0] == 2000


def test_a_job_waits_for_as_many_groups_as_it_asks_for() -> None:
    policy = [{"name": "p", "matchLabelKeys": ["g"], "subGroupSize": 2, "minSubGroups": 2}]
    pods = pods_of("1", "2", "3", each=2)
    assert bound(decide(*pods, cpu="3", min_member=2, subGroupPolicy=policy)) == []
    assert sorted(bound(decide(*pods, cpu="5", min_member=2, subGroupPolicy=policy))) == ["1x0", "1x1", "2x0", "2x1"]


def test_groups_that_the_job_needs_go_before_those_of_a_higher_priority() -> None:
    needed = {"name": "needed", "labelSelector": {"matchLabels": {"kind": "n"}}, "matchLabelKeys": ["g"]}
    other = {"name": "other", "matchLabelKeys": ["g"]}
    pods = [
        builders.pod("needed", "j", labels={"g": "1", "kind": "n"}),
        builders.pod("other", "j", labels={"g": "1"}, priority=10),
    ]
    result = decide(*pods, cpu="1", subGroupPolicy=[needed | {"minSubGroups": 1}, other])
    assert bound(result) == ["needed"]


def test_pods_above_the_size_of_a_group_come_one_by_one() -> None:
    policy = [{"name": "p", "matchLabelKeys": ["g"], "subGroupSize": 2, "minSubGroups": 1}]
    result = decide(*pods_of("1", each=4), cpu="3", min_member=2, subGroupPolicy=policy)
    assert bound(result) == ["1x0", "1x1", "1x2"]
