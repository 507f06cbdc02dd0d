"""Whom preemption takes under the default rules: priority decides within a queue, and the cheapest set goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stromboli.api import objects
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from tests.actions.evictions import evicted, nominated
from tests.builders import NOON, gang, node, pod, pod_group, queue, state

CLASSES = [
    objects.PriorityClass(metadata=objects.Metadata(name=name), value=value)
    for name, value in (("low", 10), ("middle", 50), ("high", 100))
]


def policy(actions: str, shares: str = "proportion", drf: str = "drf") -> str:
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {actions}, backfill")
    return text.replace("name: proportion", f"name: {shares}").replace("name: drf", f"name: {drf}")


BOTH_ACTIONS = pytest.mark.parametrize("action", ["preempt", "gangpreempt"])


def decide(text: str, *objs: Any) -> Any:
    return Engine(text).decide(state(CLASSES, queue("default"), *flat(objs)).snapshot(), now=NOON)


def flat(objs: Any) -> Iterator[Any]:
    for each in objs:
        yield from flat(each) if isinstance(each, list) else (each,)


def job(name: str, *on: str, of: str = "low", least: int = 1, cpu: str = "1", **more: Any) -> list[Any]:
    """A job with a running pod on each of some nodes."""
    group = pod_group(name, least, phase="Running", priorityClassName=of)
    return [group, *(pod(f"{name}-{i}", name, cpu=cpu, memory="", node=n, **more) for i, n in enumerate(on))]


def wants(count: int, cpu: str = "1", of: str = "high") -> list[Any]:
    return [pod_group("wants", count, priorityClassName=of), *gang("wants", count, cpu=cpu, memory="")]


def gone(result: Any) -> dict[str, int]:
    """How many pods of each job were evicted."""
    names = [name.rpartition("-")[0] for name in evicted(result)]
    return {name: names.count(name) for name in sorted(set(names))}


@BOTH_ACTIONS
@pytest.mark.parametrize("shares", ["proportion", "capacity"])
def test_a_gang_takes_as_much_as_it_needs_of_a_job_of_lower_priority(action: str, shares: str) -> None:
    cluster = [node("n", cpu="20"), job("elastic", *["n"] * 20), wants(12)]
    result = decide(policy(action, shares), *cluster)
    assert gone(result) == {"elastic": 12}
    assert len(nominated(result)) == 12


@BOTH_ACTIONS
def test_shares_have_a_say_where_the_policy_asks_for_it(action: str) -> None:
    cluster = [node("n", cpu="20"), job("elastic", *["n"] * 20), wants(12)]
    asked = policy(action, drf="drf, enablePreemptable: true").replace("- name: drf, ", "- name: drf\n    ")
    # Beside the priority in its tier, or above it: a lower tier does not decide.
    assert gone(decide(asked, *cluster)) == {"elastic": 12}
    first = asked.replace("- plugins:\n  - name: overcommit\n", "  - name: overcommit\n")
    assert gone(decide(first, *cluster)) == {}


@BOTH_ACTIONS
def test_nobody_goes_for_an_equal(action: str) -> None:
    assert gone(decide(policy(action), node("n", cpu="4"), job("elastic", *["n"] * 4, of="high"), wants(2))) == {}


@BOTH_ACTIONS
def test_an_elastic_job_gets_what_it_starts_with_and_nobody_goes_for_more(action: str) -> None:
    wanted = [pod_group("wants", 2, priorityClassName="high"), *gang("wants", 4, memory="")]
    assert gone(decide(policy(action), node("n", cpu="8"), job("elastic", *["n"] * 8), wanted)) == {"elastic": 2}
    cluster = [node("n", cpu="8"), job("fixed", *["n"] * 6, of="high"), job("elastic", "n", "n", least=0)]
    assert gone(decide(policy(action), cluster, wanted)) == {"elastic": 2}


@BOTH_ACTIONS
def test_what_a_job_can_spare_goes_before_a_whole_gang(action: str) -> None:
    cluster = [node("n", cpu="4"), job("gang", "n", "n", least=2), job("elastic", "n", "n"), wants(1)]
    assert gone(decide(policy(action), *cluster)) == {"elastic": 1}


@BOTH_ACTIONS
def test_a_whole_gang_goes_where_nothing_cheaper_helps(action: str) -> None:
    cluster = [[node("a", cpu="2"), node("b", cpu="2")], job("gang", "a", "a", "b", "b", least=4), wants(1)]
    assert gone(decide(policy(action), *cluster)) == {"gang": 4}


@BOTH_ACTIONS
@pytest.mark.parametrize("count", [1, 4])
def test_a_small_gang_goes_before_a_large_one(action: str, count: int) -> None:
    nodes = [node(f"n{i}", cpu="4") for i in range(5)]
    large = job("large", *[f"n{i}" for i in range(4) for _ in range(4)], least=16)
    cluster = [nodes, large, job("small", *["n4"] * 4, least=4), wants(count)]
    assert gone(decide(policy(action), *cluster)) == {"small": 4}


@BOTH_ACTIONS
def test_lower_priority_goes_before_fewer_pods(action: str) -> None:
    cluster = [node("n", cpu="4"), job("large", "n", of="middle", cpu="2"), job("small", "n", "n"), wants(1, cpu="2")]
    assert gone(decide(policy(action), *cluster)) == {"small": 2}


@BOTH_ACTIONS
def test_room_on_one_node_before_pieces_on_three(action: str) -> None:
    nodes = [node(f"n{i}", cpu="3") for i in range(4)]
    fixed = [job(f"fixed{i}", f"n{i}", of="high", cpu="2") for i in range(3)]
    pieces = [job(f"piece{i}", f"n{i}") for i in range(3)]
    cluster = [nodes, fixed, pieces, job("one", "n3", cpu="3"), wants(3)]
    assert gone(decide(policy(action), *cluster)) == {"one": 1}


@BOTH_ACTIONS
def test_a_gang_gets_its_places_on_one_node_where_that_costs_the_same(action: str) -> None:
    elastic = job("elastic", *[f"n{i}" for i in range(3) for _ in range(3)])
    result = decide(policy(action), [node(f"n{i}", cpu="3") for i in range(3)], elastic, wants(3))
    assert gone(result) == {"elastic": 3}
    assert len(set(nominated(result).values())) == 1


@BOTH_ACTIONS
@pytest.mark.parametrize("middle", [0, 1, 2])
def test_a_gang_of_two_whole_nodes_takes_those_of_lowest_priority(action: str, middle: int) -> None:
    def of(i: int) -> str:
        return "middle" if i == middle else "low"

    nodes = [node(f"n{i}", cpu="4") for i in range(3)]
    jobs = [job(f"j{i}", *[f"n{i}"] * 4, of=of(i), least=4) for i in range(3)]
    assert gone(decide(policy(action), nodes, jobs, wants(2, cpu="4"))) == {f"j{i}": 4 for i in range(3) if i != middle}


@BOTH_ACTIONS
def test_of_equals_the_one_that_has_run_shortest_goes(action: str) -> None:
    jobs = [job(f"j{i}", f"n{i}", least=1) for i in range(3)]
    for minute, each in zip((20, 40, 30), jobs, strict=True):
        started = msgspec.structs.replace(each[1].status, start_time=f"2024-01-01T00:{minute}:00Z")
        each[1] = msgspec.structs.replace(each[1], status=started)
    result = decide(policy(action), [node(f"n{i}", cpu="1") for i in range(3)], jobs, wants(1))
    assert gone(result) == {"j1": 1}


@BOTH_ACTIONS
@pytest.mark.parametrize("shares", ["proportion", "capacity"])
@pytest.mark.parametrize("capability", [2, 3])
def test_who_goes_makes_room_in_the_queue_as_well_as_on_nodes(action: str, shares: str, capability: int) -> None:
    """A place on m is free, and one of the jobs on n would be enough, but then the queue would hold 3 CPUs."""
    limited = queue("limited", capability={"cpu": str(capability)})
    low = [pod_group(name, phase="Running", queue="limited", priorityClassName="low") for name in ("a", "b")]
    low += [pod(f"{name}-0", name, cpu="1", memory="", node="n") for name in ("a", "b")]
    high = [pod_group("wants", 2, queue="limited", priorityClassName="high"), *gang("wants", 2, cpu="1", memory="")]
    result = decide(policy(action, shares), node("n", cpu="2"), node("m", cpu="1"), limited, low, high)
    assert sum(gone(result).values()) == 4 - capability


#: where the pods of the job of low priority run, and how many of them go for a gang of two that asks for 4 CPUs in all
AT_THE_LIMIT = {
    "one node": (["a", "a", "a", "a"], 4),
    "other nodes than the room": (["a", "b", "a", "b"], 4),
    "a rest of the limit": (["a", "a", "a"], 3),
}


@BOTH_ACTIONS
@pytest.mark.parametrize("where", AT_THE_LIMIT)
def test_priority_preempts_in_a_queue_that_is_at_its_limit_though_nodes_are_free(action: str, where: str) -> None:
    on, count = AT_THE_LIMIT[where]
    limited = queue("q", capability={"cpu": "4"})
    low, high = job("elastic", *on), wants(2, cpu="2")
    low[0].spec.queue = high[0].spec.queue = "q"
    free = node("c", cpu="8")
    result = decide(policy(action, "capacity"), limited, node("a", cpu="4"), node("b", cpu="4"), free, low, high)
    assert gone(result) == {"elastic": count}
    assert len(nominated(result)) == 2


@BOTH_ACTIONS
def test_at_the_limit_the_least_important_go_and_no_more_of_them_than_are_needed(action: str) -> None:
    limited = queue("q", capability={"cpu": "6"})
    low, middle, high = job("low", "a", "a", "a"), job("middle", "b", "b", "b", of="middle"), wants(2)
    for objs in (low, middle, high):
        objs[0].spec.queue = "q"
    result = decide(policy(action, "capacity"), limited, node("a"), node("b"), node("c"), middle, low, high)
    assert gone(result) == {"low": 2}


@BOTH_ACTIONS
@pytest.mark.parametrize("of", ["high", "middle"])
def test_at_the_limit_nobody_goes_who_is_not_less_important(action: str, of: str) -> None:
    limited = queue("q", capability={"cpu": "4"})
    low, high = job("elastic", *["a"] * 4, of=of), wants(2, of="middle")
    low[0].spec.queue = high[0].spec.queue = "q"
    assert gone(decide(policy(action, "capacity"), limited, node("a"), node("b"), low, high)) == {}


@BOTH_ACTIONS
def test_nobody_goes_when_the_limit_leaves_no_room_even_so(action: str) -> None:
    limited = queue("q", capability={"cpu": "4"})
    low, same, high = job("low", "a"), job("same", *["b"] * 3, of="high"), wants(2)
    for objs in (low, same, high):
        objs[0].spec.queue = "q"
    assert gone(decide(policy(action, "capacity"), limited, node("a"), node("b"), low, same, high)) == {}
