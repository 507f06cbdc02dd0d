"""pdb: no more victims than PodDisruptionBudgets allow, in a call under Volcano's rules, in a session under strict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import objects
from stromboli.api.decisions import Evict
from stromboli.kube.budgets import Budgets
from stromboli.state.plain import PlainObjects
from tests import builders
from tests.builders import gang, node, pod, pod_group
from tests.fuzz import tried
from tests.plugins import sessions

POLICY = builders.policy("priority gang pdb", actions="preempt")


def budget(allowed: int, name: str = "db", selector: Any = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def evicted(budgets: list[dict[str, Any]], *objs: Any, compatibility: Any = "strict") -> list[str]:
    high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
    result = sessions.decide(
        high, *objs, by=POLICY, compatibility=compatibility, objects={"PodDisruptionBudget": budgets}
    )
    return sorted(d.name for d in result.decisions if isinstance(d, Evict))


def scene(nodes: int = 1, wanted: int = 1, **victim: Any) -> list[Any]:
    """A pod on each node, and a gang that wants some of the nodes."""
    return [
        [node(f"n{i}", cpu="1") for i in range(nodes)],
        pod_group("db", 0, phase="Running"),
        [pod(f"db-{i}", "db", node=f"n{i}", **{"labels": {"app": "db"}, **victim}) for i in range(nodes)],
        pod_group("wants", wanted, priorityClassName="high"),
        gang("wants", wanted),
    ]


@pytest.mark.parametrize("compatibility", ["volcano", "strict"])
def test_a_budget_protects_what_it_selects(compatibility: Any) -> None:
    def result(budgets: list[dict[str, Any]]) -> list[str]:
        return evicted(budgets, *scene(), compatibility=compatibility)

    assert result([budget(0)]) == []
    assert result([budget(1)]) == ["db-0"]
    assert result([budget(1), budget(0, name="second")]) == []
    assert result([budget(1), budget(1, name="second")]) == ([] if compatibility == "strict" else ["db-0"])
    assert result([budget(0, selector={"matchLabels": {"app": "web"}})]) == ["db-0"]
    assert result([budget(0, disruptedPods={"db-0": "2024-01-01T00:00:00Z"})]) == ["db-0"]
    assert result([budget(0) | {"metadata": {"name": "db", "namespace": "elsewhere"}}]) == ["db-0"]


def test_budgets_count_per_session_or_anew_for_every_node() -> None:
    assert evicted([budget(1)], *scene(2, 2), compatibility="volcano") == ["db-0", "db-1"]
    assert evicted([budget(1)], *scene(2, 2), compatibility="strict") == []
    assert evicted([budget(2)], *scene(2, 2), compatibility="strict") == ["db-0", "db-1"]


def test_a_try_that_is_taken_back_gives_the_budget_back() -> None:
    """The gang of two finds one place only; the single pod that comes after it may use the budget."""
    later = [pod_group("later", 1, priorityClassName="high", created=9), pod("later-0", "later")]
    assert evicted([budget(1)], *scene(2, 2), *later, compatibility="strict") == ["db-0"]


def test_pods_without_labels_are_free_or_spared() -> None:
    assert evicted([], *scene(labels={}), compatibility="volcano") == []
    assert evicted([], *scene(labels={}), compatibility="strict") == ["db-0"]


def test_an_empty_selector_selects_all_or_nothing() -> None:
    assert evicted([budget(0, selector={})], *scene(), compatibility="volcano") == ["db-0"]
    assert evicted([budget(0, selector={})], *scene(), compatibility="strict") == []


def test_a_budget_is_no_reason_to_evict() -> None:
    by = builders.policy("gang pdb", actions="shuffle")
    for compatibility, names in (("volcano", {"default/db-0"}), ("strict", set())):
        result = sessions.decide(
            *scene(), by=by, compatibility=compatibility, objects={"PodDisruptionBudget": [budget(1)]}
        )
        assert result.session.evicted.keys() == names


LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
EXPRESSIONS = st.tuples(
    st.sampled_from("ab"), st.sampled_from(("In", "NotIn", "Exists")), st.sets(st.sampled_from("xy"))
)


@st.composite
def selectors(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(st.lists(EXPRESSIONS, max_size=2))
    listed = [{"key": key, "operator": how, "values": sorted(values)} for key, how, values in drawn]
    return {"matchLabels": draw(LABELS), "matchExpressions": listed}


@tried(20)
@given(st.lists(selectors(), max_size=4), st.lists(LABELS, min_size=1, max_size=4))
def test_the_budgets_of_a_pod_are_those_that_cover_it(chosen: list[Any], labels: list[Any]) -> None:
    made = {str(at): budget(1, str(at), selector) for at, selector in enumerate(chosen)}
    plain, without = PlainObjects(made, []), PlainObjects(dict(list(made.items())[1:]), [])
    few = Budgets(without, None, empty_selects_all=True)
    cluster = builders.state([pod(f"p-{at}", "g", labels=of) for at, of in enumerate(labels)])
    for found in (Budgets(plain, None, empty_selects_all=True), Budgets(plain, few, empty_selects_all=True)):
        for each in filter(None, cluster.snapshot().pods.records):
            covering = [number for number, one in enumerate(found.listed) if one.covers(each)]
            assert sorted(found.covering(each)) == covering
            assert len(covering) < 2 or {*covering} <= {*found.overlapping}


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("by", ["priority gang", "priority gang pdb"])
@pytest.mark.parametrize(("nodes", "allowed"), [(1, 0), (2, 1), (3, 2)])
def test_one_budget_among_the_victims_keeps_all_of_them(action: str, by: str, nodes: int, allowed: int) -> None:
    """The gang needs all nodes, and one of the pods there must stay."""

    def gone(budgets: list[dict[str, Any]], compatibility: Any = "strict", more: str = "") -> list[str]:
        high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
        result = sessions.decide(
            high,
            *scene(nodes, nodes),
            by=builders.policy(by, actions=action) + more,
            compatibility=compatibility,
            objects={"PodDisruptionBudget": budgets},
        )
        return sorted(d.name for d in result.decisions if isinstance(d, Evict))

    every_pod = [f"db-{i}" for i in range(nodes)]
    assert gone([budget(allowed)]) == []
    assert gone([budget(nodes)]) == every_pod
    if "pdb" not in by:
        assert gone([budget(allowed)], "volcano") == every_pod
        switched_off = "\n  - {name: pdb, enablePreemptable: false}"
        assert gone([budget(allowed)], more=switched_off) == every_pod


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize("by", ["priority gang", "priority gang pdb"])
@pytest.mark.parametrize("twice", range(4))
def test_no_pod_goes_for_a_job_that_needs_one_that_several_budgets_select(action: str, by: str, twice: int) -> None:
    """Kubernetes refuses to evict it, whatever they allow; without it three nodes of four are left."""
    labels = [{"app": "db", "two": "yes"} if at == twice else {"app": "db"} for at in range(4)]
    budgets = [budget(4), budget(4, "second", {"matchLabels": {"two": "yes"}})]
    for wanted, expected in ((4, set[str]()), (3, {f"db-{at}" for at in range(4) if at != twice})):
        cluster = scene(4, wanted)
        cluster[2] = [pod(f"db-{at}", "db", node=f"n{at}", labels=labels[at]) for at in range(4)]
        high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
        asked = {"PodDisruptionBudget": budgets}
        result = sessions.decide(high, *cluster, by=builders.policy(by, actions=action), objects=asked)
        assert {each.name for each in result.decisions if isinstance(each, Evict)} == expected
