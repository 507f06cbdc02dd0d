"""What happened to a pod in a session: the same decisions, in order, with the scores by which a node was chosen."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.explain.answers import Answer, Happening
from stromboli.explain.history import with_history
from stromboli.explain.rehearsal import Rehearsal
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.framework.diagnosis.pod_trace import PodTrace
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, state
from tests.cli.conftest import stromboli
from tests.ui.cluster import Ran, served

SCORING = policy("gang priority", "predicates nodeorder binpack", actions="allocate, preempt")
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


def history(cluster: ClusterState, name: str, by: str = SCORING, *nodes: str) -> Answer:
    """The answer about default/NAME with its history alone."""
    rehearsal = Rehearsal(Engine(by), cluster.fork(), OFFLINE, NOON)
    return with_history(Answer(kind="Pod", namespace="default", name=name), rehearsal, nodes)


def steps(answer: Answer) -> list[tuple[str, str, str]]:
    return [(each.action, each.what, each.node) for each in answer.history]


def chosen(answer: Answer) -> Happening:
    return next(each for each in answer.history if each.what == "assumed")


def some_cluster(seed: int) -> ClusterState:
    """Nodes that are full to different parts, and gangs of which some find no room."""
    chance = Random(seed)
    objs: list[Any] = [queue("default")]
    for at in range(5):
        objs += [node(f"n{at}", cpu="8", taints=[TAINT] if at == 4 else [])]
        objs += [pod(f"held-{at}", "held", cpu=str(chance.randint(1, 5)), node=f"n{at}")]
    objs += [pod_group("held", 5, phase="Running")]
    for job in range(3):
        count = chance.randint(2, 5)
        objs += [pod_group(f"job{job}", count, created=job), gang(f"job{job}", count, cpu=str(chance.randint(1, 4)))]
    return state(*objs)


@pytest.mark.parametrize("seed", range(3))
def test_a_session_that_is_traced_decides_the_same_and_the_chosen_node_scores_best(seed: int) -> None:
    cluster = some_cluster(seed)
    plain = Engine(SCORING).decide(cluster.snapshot(), now=NOON)
    told = 0
    for job in range(3):
        for at in (0, 1):
            trace = PodTrace(f"default/job{job}-{at}")
            traced = Engine(SCORING).decide(cluster.snapshot(), now=NOON, follow=trace)
            assert traced.decisions == plain.decisions
            found = history(cluster, f"job{job}-{at}")
            for each in found.history:
                if each.what != "assumed":
                    continue
                told += 1
                best = max(node.total for node in each.nodes if not node.cause)
                assert each.nodes[0].node == each.node
                assert each.nodes[0].total == pytest.approx(best)
                assert all(node.total == pytest.approx(sum(node.scores.values())) for node in each.nodes)
                assert [n.plugin for n in each.nodes if n.node == "n4"] == ["predicates"]
            if f"default/job{job}-{at}" in plain.session.bound:
                assert found.history[-1].what == "bound"
                assert found.history[-1].node == plain.session.bound[f"default/job{job}-{at}"]
    assert told


def test_why_one_node_and_not_another() -> None:
    cluster = state(
        *(node("n1"), node("n2"), node("n3", cpu="1"), node("n4", taints=[TAINT]), queue("default")),
        *(pod_group("held", phase="Running"), pod("held-0", "held", cpu="4", node="n2")),
        *(pod_group("job"), pod("job-0", "job", cpu="2")),
    )
    answer = history(cluster, "job-0", policy("gang", "predicates binpack"))
    assert steps(answer) == [("allocate", "assumed", "n2"), ("allocate", "bound", "n2")]
    nodes = {each.node: each for each in chosen(answer).nodes}
    assert nodes["n2"].scores["binpack"] > nodes["n1"].scores["binpack"]
    assert (nodes["n3"].plugin, nodes["n3"].cause) == ("", "Insufficient cpu")
    assert nodes["n4"].plugin == "predicates"
    assert "taint" in nodes["n4"].cause


def test_a_place_that_is_given_back_is_told_in_order() -> None:
    cluster = state(node("n", cpu="2"), queue("default"), pod_group("job", 3), *gang("job", 3, cpu="1"))
    by = policy("gang", "predicates").replace("tiers:", "rules: {never_fits: volcano}\ntiers:")
    first, last = steps(history(cluster, "job-0", by)), history(cluster, "job-2", by).history
    assert first == [("allocate", "assumed", "n"), ("allocate", "given back", "n")]
    assert [each.what for each in last] == ["refused"]
    assert last[0].reason.startswith("Unschedulable: ")
    assert last[0].nodes[0].cause == "Insufficient cpu"


def test_a_pod_that_has_a_place_is_placed_anew_on_a_copy() -> None:
    cluster = state(
        node("n1"), node("n2"), queue("default"), pod_group("job", phase="Running"), pod("job-0", "job", node="n1")
    )
    answer = history(cluster, "job-0")
    assert answer.hypothetical
    assert chosen(answer).node == "n1"
    record = cluster.record("default/job-0")
    assert record is not None
    assert record.node_name == "n1"


def test_of_many_nodes_those_that_are_named_are_told() -> None:
    cluster = state(*(node(f"n{at}") for at in range(40)), queue("default"), pod_group("job"), pod("job-0", "job"))
    found = chosen(history(cluster, "job-0", SCORING, "n39"))
    assert found.node_count == 40
    assert len(found.nodes) == 21
    assert found.nodes[-1].node == "n39"


def test_the_command_asks_files_and_the_service(tmp_path: Path) -> None:
    cluster = state(node("n1"), node("n2"), queue("default"), pod_group("job"), pod("job-0", "job"))
    with served(Ran(cluster).app()) as url:
        told = stromboli("why", "pod", "job-0", "--nodes", "--no-try", "--url", url).output
    assert "What happened in the session" in told
    assert "1. allocate: assumed n1" in told
    assert "   > n1: " in told
    assert "     n2: " in told
    assert stromboli("why", "job", "job", "--nodes", "--url", "http://127.0.0.1:1").exit_code == 2
