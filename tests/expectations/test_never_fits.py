"""What can never run holds nothing: it is not admitted, and no job waits for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stromboli.api.decisions import SetPodUnscheduled
from stromboli.engine import SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state
from tests.plugins.queues import admitted, bound, refused, why

GPU = "nvidia.com/gpu"
TREE = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: capacity
    enableHierarchy: true
"""


def run(*objs: Any, by: str = DEFAULT_POLICY, rules: Any = "strict") -> SessionResult:
    return decide(state(*objs), by, compatibility=rules)


def job(name: str, count: int = 1, phase: str = "Pending", queue: str = "default", **spec: Any) -> list[Any]:
    """A gang that asks for admission with all that its pods request."""
    cpu = int(spec.get("cpu", 1)) * count
    of = pod_group(name, count, queue=queue, phase=phase, minResources={"cpu": str(cpu)})
    return [of, *gang(name, count, memory="", **spec)]


#: each is too much for two nodes of 8 CPUs and 4 GPUs, in a queue that may have 12 CPUs
NEVER = {
    "a pod larger than any node": job("x", cpu="9"),
    "a pod that asks for what nobody has": job("x", resources={"example.com/card": "1"}),
    "a pod larger in something else": job("x", resources={GPU: "5"}),
    "a gang of more pods than all nodes hold": job("x", 4, cpu="3", resources={GPU: "3"}),
    "a gang of more pods than fit side by side": job("x", 3, cpu="3", resources={GPU: "3"}),
    "a gang with one pod that is too large": [*job("x", 2)[:2], pod("x-1", "x", cpu="9")],
    "a gang of unequal pods": [
        pod_group("x", 3, phase="Pending"),
        *(pod(f"x-{i}", "x", cpu=cpu, memory="") for i, cpu in enumerate(["6", "5", "7"])),
    ],
    "a gang above its queue's capability": job("x", 13),
    "pods that are still to come": [pod_group("x", 20, phase="Pending", minResources={"cpu": "20"})],
}


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@pytest.mark.parametrize("never", NEVER.values(), ids=NEVER)
def test_what_can_never_run_is_not_admitted_and_costs_nobody_anything(never: list[Any], phase: str) -> None:
    """The gang behind it needs all of the queue, and all that overcommit admits."""
    never[0].status.phase = phase
    nodes = [node(name, cpu="8", resources={GPU: "4"}) for name in "mn"]
    result = run(*nodes, queue("default", capability={"cpu": "12"}), never, job("z", 12))
    assert admitted(result) == ["z"]
    assert bound(result) == {"z": 12}
    assert (refused(result, "x").reason, refused(result, "x").actionable) == ("NeverFits", "user")


def test_volcano_admits_it() -> None:
    result = run(node("n", cpu="8"), queue("default"), job("x", 8, resources={GPU: "1"}), job("z", 8), rules="volcano")
    assert admitted(result) == ["x"]


def test_where_nobody_makes_gangs_of_jobs_each_pod_counts_alone() -> None:
    result = run(node("n", cpu="8"), queue("default"), job("x", 9), by=policy("predicates"))
    assert bound(result) == {"x": 8}


def test_its_queue_deserves_nothing_for_it() -> None:
    """Otherwise half of the node would be kept for a pod that has no room on it."""
    oversized = job("x", cpu="9", queue="a")
    result = run(node("n", cpu="8"), queue("a"), queue("b"), oversized, job("z", 8, queue="b"))
    assert bound(result) == {"z": 8}


def test_a_pod_that_a_job_can_do_without_keeps_it_from_nothing() -> None:
    of = [pod_group("x", 2, phase="Pending"), *gang("x", 2, memory=""), pod("x-9", "x", cpu="9")]
    result = run(node("n", cpu="8"), queue("default"), of)
    assert bound(result) == {"x": 2}
    assert why(result, "x-9").reason == "NeverFits"


@pytest.mark.parametrize("limited", ["a", "a.b"])
def test_an_ancestors_capability_counts(limited: str) -> None:
    queues = [
        queue(name, parent=parent, **({"capability": {"cpu": "2"}} if name == limited else {}))
        for name, parent in (("root", ""), ("a", "root"), ("a.b", "a"))
    ]
    result = run(node("n", cpu="8"), *queues, job("x", 3, queue="a.b"), job("z", 2, queue="a.b"), by=TREE)
    assert bound(result) == {"z": 2}
    assert refused(result, "x").detail == "cpu: asks for 3, the queue may have 2"


@pytest.mark.parametrize(("cpu", "count", "word"), [("9", 1, "Unschedulable"), ("3", 3, "Unschedulable")])
def test_cluster_autoscalers_see_its_pods(cpu: str, count: int, word: str) -> None:
    result = run(node("n", cpu="8"), queue("default"), job("x", count, cpu=cpu))
    told = [decision for decision in result.decisions if isinstance(decision, SetPodUnscheduled)]
    assert [(told.reason, told.message.partition(":")[0]) for told in told] == [(word, "NeverFits")] * count


def test_more_nodes_do_not_help_against_a_capability() -> None:
    result = run(node("n", cpu="8"), queue("default", capability={"cpu": "2"}), job("x", 3))
    assert {d.reason for d in result.decisions if isinstance(d, SetPodUnscheduled)} == {"NeverFits"}


def test_it_is_judged_anew_when_nodes_and_queues_change() -> None:
    cluster = state(node("n", cpu="8"), queue("default", capability={"cpu": "8"}), job("x", cpu="9"))
    assert bound(decide(cluster, DEFAULT_POLICY)) == {}
    cluster.upsert("Node", node("m", cpu="16"))
    assert refused(decide(cluster, DEFAULT_POLICY), "x").message.startswith("PodGroup default/x starts with more than")
    cluster.upsert("Queue", queue("default"))
    assert bound(decide(cluster, DEFAULT_POLICY)) == {"x": 1}


def test_without_nodes_nothing_is_judged() -> None:
    result = run(queue("default"), job("x"))
    assert refused(result, "x").reason != "NeverFits"


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_fits_is_ever_set_aside(seed: int) -> None:
    """Whatever can be bound on an empty cluster without any judgement is bound with it."""
    chance = random.Random(seed)
    for _ in range(10):
        nodes = [node(f"n{i}", cpu=str(chance.randint(1, 8))) for i in range(chance.randint(1, 4))]
        cpus = [str(chance.randint(1, 6)) for _ in range(chance.randint(1, 5))]
        of = [pod_group("x", chance.randint(0, len(cpus)), phase="Pending")]
        of += [pod(f"x-{i}", "x", cpu=cpu, memory="") for i, cpu in enumerate(cpus)]
        free = DEFAULT_POLICY + "rules: {never_fits: volcano}\n"
        assert bound(run(*nodes, queue("default"), of)) == bound(run(*nodes, queue("default"), of, by=free))
