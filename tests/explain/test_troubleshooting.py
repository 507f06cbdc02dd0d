"""The troubleshooting table: what people see, and the cause that the answer names. Each row is made and asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said

RECLAIMING = policy(
    "priority gang conformance", "predicates proportion nodeorder", actions="enqueue, allocate, reclaim"
)
TREE = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: capacity, enableHierarchy: true}]
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    #: what people see
    problem: str
    situation: Callable[[], ClusterState]
    question: str
    #: what the answer has to say
    cause: tuple[str, ...]
    policy: str = DEFAULT_POLICY


def guaranteed_away() -> ClusterState:
    return state(
        node("n", cpu="10"),
        queue("kept", guarantee={"resource": {"cpu": "10"}}),
        queue("poor"),
        pod_group("job", queue="poor"),
        pod("job-0", "job"),
    )


def without_weight() -> ClusterState:
    return state(
        node("n"),
        queue("none", weight=0),
        queue("other", weight=3),
        *(pod_group("job", queue="none"), pod("job-0", "job")),
        *(pod_group("more", queue="other"), *gang("more", 8)),
    )


def full_in_one_dimension() -> ClusterState:
    # The other queue wants all that is left of the cpus; of memory there is enough for all.
    return state(
        node("n", cpu="8", memory="800Gi"),
        *(
            queue("ours"),
            pod_group("job", queue="ours", phase="Running"),
            gang("job", 4, node="n"),
            pod("job-9", "job"),
        ),
        *(queue("theirs"), pod_group("more", queue="theirs", phase="Running"), gang("more", 8)),
    )


def claimed_by_the_admitted() -> ClusterState:
    amounts = {"cpu": "6"}
    return state(
        node("n", cpu="32"),
        queue("small", capability={"cpu": "10"}),
        pod_group("first", queue="small", minResources=amounts),
        *(
            pod_group("second", queue="small", phase="Pending", minResources=amounts),
            pod("second-0", "second", cpu="6"),
        ),
    )


def nobody_above_his_share() -> ClusterState:
    # Each node has room for 2 cpus, the pod asks for 3, and both queues deserve 4.
    return state(
        [node(f"n{i}", cpu="4", memory="800Gi") for i in range(2)],
        *(queue("ours"), pod_group("job", queue="ours"), pod("job-0", "job", cpu="3")),
        *(queue("theirs"), pod_group("runs", queue="theirs", phase="Running")),
        [pod(f"runs-{i}", "runs", node=f"n{i % 2}") for i in range(4)],
    )


def narrow_parent() -> ClusterState:
    return state(
        node("n", cpu="32"),
        queue("root"),
        queue("team", capability={"cpu": "4"}),
        *(queue("dev", parent="team", capability={"cpu": "8"}), queue("prod", parent="team")),
        *(pod_group("runs", queue="prod", phase="Running"), pod("runs-0", "runs", cpu="3", node="n")),
        *(pod_group("job", queue="dev"), pod("job-0", "job", cpu="2")),
    )


TABLE = (
    Row(
        "a queue never gets anything: others' guarantees leave nothing",
        guaranteed_away,
        "queue poor",
        ("deserves 0 cpu: what guarantees of others leave: 10 are kept",),
    ),
    Row(
        "a queue never gets anything: it has no weight",
        without_weight,
        "queue none",
        ("weight 0 of 3 (none 0, other 3)", "deserves nothing"),
    ),
    Row(
        "a queue is overused though its share is below 1",
        without_weight,
        "queue none",
        ("it counts as overused though its share is 0",),
    ),
    Row(
        "a pod may not be allocated though its queue is not overused",
        full_in_one_dimension,
        "job default/job",
        (
            "waits at QueueShare: QueueShareExceeded",
            "cpu: holds 4, deserves 4, 1 more requested",
            "4 of 4 cpu",
            "4Gi of 5Gi",
        ),
    ),
    Row(
        "a job is not admitted",
        claimed_by_the_admitted,
        "job default/second",
        (
            "waits at Admission: QueueCapabilityExceeded",
            "cpu: holds 0, 6 more claimed by admitted jobs, may have 10, 6 more requested",
            "pods of the queue hold nothing, jobs that were admitted and do not run yet claim 6 cpu",
            "admin: raise capability of queue small to 12 cpu",
        ),
    ),
    Row(
        "reclaim finds no victims",
        nobody_above_his_share,
        "job default/job",
        ("reclaim: NoVictims: ", "queue theirs holds 4 cpu and deserves 4"),
        RECLAIMING,
    ),
    Row(
        "a level of the tree refuses",
        narrow_parent,
        "job default/job",
        (
            "queue team has no capacity left in cpu (cpu: holds 3, may have 4, 2 more requested)",
            "default/runs in queue prod: 1 pod, 3 cpu",
            "admin: raise capability of queue team to 5 cpu",
        ),
        TREE,
    ),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.problem)
def test_the_answer_names_the_cause(row: Row) -> None:
    text = said(row.situation(), row.question, row.policy)
    assert [cause for cause in row.cause if cause not in text] == [], text


def test_the_page_has_the_same_rows(repository: Path) -> None:
    lines = (repository / "docs" / "troubleshooting.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")]
    asked = {row[0].removeprefix("| "): row[1].strip("`").split()[2] for row in rows if "stromboli why" in row[1]}
    assert asked == {row.problem: row.question.split()[0] for row in TABLE}


def test_the_levels_of_the_tree_are_told_upwards() -> None:
    told = [line.split() for line in said(narrow_parent(), "queue dev", TREE).splitlines()]
    assert [line[0] for line in told if line[1:2] == ["cpu:"]] == ["dev", "team", "root"]


def test_the_worked_example_round_by_round() -> None:
    """100 CPUs, weights 2, 3 and 5: a, with a limit of 50 and 10 guaranteed, asks for 80, b for 60, and c, with 20
    guaranteed, for 30.
    """
    nodes = [node(f"n{i}", cpu="10", memory="900Gi") for i in range(10)]
    queues = [
        queue("a", 2, capability={"cpu": "50"}, guarantee={"resource": {"cpu": "10"}}),
        queue("b", 3),
        queue("c", 5, guarantee={"resource": {"cpu": "20"}}),
    ]
    cluster = state(
        nodes, queues, *([pod_group(q, queue=q), *gang(q, n)] for q, n in (("a", 80), ("b", 60), ("c", 30)))
    )
    text = said(cluster, "queue a")
    assert "round 1: 20 cpu" in text
    assert "round 2: 28 cpu" in text
    assert "deserves 28 cpu: its part by weight of 100" in text
    assert "round 1: 30 cpu" in (of_b := said(cluster, "queue b"))
    assert "round 2: 42 cpu" in of_b
    assert "deserves 30 cpu: all that it requests" in said(cluster, "queue c")


def test_a_queue_that_is_overused_has_a_share_of_1_unless_it_deserves_nothing() -> None:
    for made in (without_weight, full_in_one_dimension, nobody_above_his_share):
        report = Engine().decide(made().snapshot(), now=NOON).session.report
        for gauges in report.gauges.values():
            if gauges.overused and gauges.amounts["deserved"][0]:
                assert gauges.share is not None
                assert gauges.share >= 1
