"""The one order of victims: each criterion decides where those below it say otherwise, in every action that evicts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests import builders
from tests.actions.evictions import evicted
from tests.builders import gang, node, pod_group, queue
from tests.expectations.test_preemption import CLASSES, flat, job

ACTIONS = pytest.mark.parametrize("action", ["preempt", "gangpreempt", "reclaim", "gangreclaim"])
BUDGET = {
    "metadata": {"name": "budget", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"app": "db"}}},
    "status": {"disruptionsAllowed": 0},
}


def victims(action: str, *objs: Any, cpu: str = "2", judges: str = "") -> set[str]:
    """The jobs of the pods that are evicted for a pod that asks for CPUs: of its queue, or of another one."""
    reclaiming = "reclaim" in action
    queues = [queue("default", deserved={}), queue("poor", deserved={"cpu": "99", "memory": "99Gi"})]
    of = "poor" if reclaiming else "default"
    wants = [pod_group("wants", 1, queue=of, priorityClassName="high"), *gang("wants", 1, cpu=cpu, memory="")]
    text = builders.policy(f"priority gang {judges}", "predicates capacity", actions=action)
    cluster = builders.state(CLASSES, *queues, *flat(objs), *wants)
    cluster.upsert("PodDisruptionBudget", BUDGET)
    return {name.rpartition("-")[0] for name in evicted(builders.decide(cluster, text))}


def started(objs: list[Any], minute: int) -> list[Any]:
    """A job whose pods run since a minute of an hour."""
    group, *pods = objs
    at = f"2024-01-01T00:{minute:02}:00Z"
    return [
        group,
        *(msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, start_time=at)) for each in pods),
    ]


@ACTIONS
def test_no_budget_is_broken_whatever_that_would_save(action: str) -> None:
    cluster = [node("a", cpu="2"), node("b", cpu="2"), job("kept", "a", cpu="2", least=0, labels={"app": "db"})]
    for judges in ("pdb", ""):
        assert victims(action, *cluster, job("dear", "b", of="middle", cpu="2"), judges=judges) == {"dear"}


@ACTIONS
def test_lower_priority_goes_before_fewer_gangs_and_pods(action: str) -> None:
    cluster = [node("a", cpu="2"), node("b", cpu="2"), job("low", "a", "a", least=2)]
    assert victims(action, *cluster, job("middle", "b", of="middle", cpu="2", least=0)) == {"low"}


@ACTIONS
def test_the_priority_of_a_job_counts_before_that_of_its_pods(action: str) -> None:
    cluster = [node("a", cpu="2"), node("b", cpu="2"), job("low", "a", cpu="2", least=0, priority=60)]
    assert victims(action, *cluster, job("middle", "b", of="middle", cpu="2", least=0, priority=1)) == {"low"}


@ACTIONS
def test_no_gang_is_broken_for_fewer_pods(action: str) -> None:
    cluster = [node("a", cpu="2"), node("b", cpu="2"), job("whole", "a", cpu="2", least=1)]
    assert victims(action, *cluster, job("elastic", "b", "b", least=0)) == {"elastic"}


@ACTIONS
def test_fewer_pods_go_though_they_have_run_longer(action: str) -> None:
    one, two = job("one", "a", cpu="2", least=0), job("two", "b", "b", least=0)
    assert victims(action, node("a", cpu="2"), node("b", cpu="2"), started(one, 1), started(two, 2)) == {"one"}


@ACTIONS
def test_of_equals_on_many_nodes_the_one_that_started_last_goes(action: str) -> None:
    nodes = [node(f"n{number}", cpu="2") for number in range(40)]
    jobs = [started(job(f"j{number}", f"n{number}", cpu="2", least=0), number) for number in range(40)]
    assert victims(action, *nodes, *jobs) == {"j39"}


@ACTIONS
def test_of_those_that_suffice_alone_on_a_node_the_one_that_started_last_goes(action: str) -> None:
    jobs = started(job("large", "a", cpu="3", least=0), 1), started(job("small", "a", cpu="2", least=0), 2)
    assert victims(action, node("a", cpu="5"), *jobs) == {"small"}
