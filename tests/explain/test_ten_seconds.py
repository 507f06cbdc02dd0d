"""Answers that were found wanting by submitters who had ten seconds: cause, number, who, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stromboli.api.objects import Metadata, PriorityClass
from stromboli.dashboard.filters import JobFilter
from stromboli.dashboard.report import SessionReport
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said, why

TRAIN = "job default/train"
HIGH = PriorityClass(metadata=Metadata(name="high"), value=10)
CAPACITY = policy("priority gang conformance", "predicates capacity", actions="enqueue, allocate, reclaim")
PREEMPTING = policy("priority gang conformance", "drf predicates proportion", actions="enqueue, allocate, preempt")


@dataclass(frozen=True)
class Case:
    """A situation, and what is said of it."""

    made: Callable[[], ClusterState]
    says: tuple[str, ...]
    not_said: tuple[str, ...] = ()
    question: str = TRAIN
    policy: str = DEFAULT_POLICY


def claims(**pods: Any) -> list[Any]:
    """A job that is yet to be admitted."""
    return [
        pod_group("train", phase="Pending", minResources={"cpu": pods.get("cpu", "1")}),
        pod("train-0", "train", **pods),
    ]


def promised() -> ClusterState:
    """Two jobs of one priority, to one of which is promised what a terminating pod leaves."""
    return state(
        *(HIGH, node("n"), queue("default"), pod_group("old", phase="Running")),
        pod("old-0", "old", cpu="8", node="n", deleted=True),
        *(
            pod_group("first", priorityClassName="high"),
            pod("first-0", "first", cpu="8", status={"nominatedNodeName": "n"}),
        ),
        *(pod_group("train", priorityClassName="high"), pod("train-0", "train", cpu="8")),
    )


def misspelt() -> ClusterState:
    return state(node("n"), queue("default"), pod_group("train", 2), [pod(f"train-{i}", "trian") for i in range(2)])


CASES = {
    "pods of no PodGroup hold the cluster": Case(
        lambda: state(
            *(node("n", cpu="4"), queue("default"), claims()),
            *(pod(f"web-{i}", namespace="default", node="n", scheduler="default-scheduler") for i in range(4)),
        ),
        ("default/pods in no PodGroup: 4 pods, 4 cpu", "Who can change it: an administrator"),
    ),
    "a pod terminates on a node that is gone": Case(
        lambda: state(
            *(node("n", ready="Unknown"), queue("default"), claims(cpu="8")),
            *(pod_group("old", phase="Running"), pod("old-0", "old", cpu="8", node="n", deleted=True)),
        ),
        ("default/old in queue default: 1 pod, 8 cpu", "admin: bring back node n (Ready is Unknown) -> 1 pod bound"),
    ),
    "a queue has what it deserves of one resource": Case(
        lambda: state(
            *(node("n", cpu="8", resources={"example.com/gpu": "8"}),),
            queue("a", deserved={"cpu": "4", "memory": "8Gi", "example.com/gpu": "2"}),
            queue("b", deserved={"cpu": "4", "memory": "8Gi", "example.com/gpu": "6"}),
            pod_group("mine", queue="a", phase="Running"),
            *(pod(f"mine-{i}", "mine", cpu="1", node="n", resources={"example.com/gpu": "1"}) for i in range(2)),
            pod_group("theirs", queue="b", phase="Running"),
            *(pod(f"theirs-{i}", "theirs", cpu="500m", node="n", resources={"example.com/gpu": "1"}) for i in range(6)),
            *(pod_group("train", queue="a"), pod("train-0", "train", resources={"example.com/gpu": "1"})),
        ),
        ("no capacity left in example.com/gpu; example.com/gpu: holds 2, deserves 2, 1 more requested",),
        ("deserves 4, 1 more",),
        policy=CAPACITY,
    ),
    "a place is promised": Case(
        promised,
        ("WaitingForRelease", "gets its place on n", "nothing: it will get its place without a change"),
        ("Ahead of it", "the cluster is full"),
        "job default/first",
        PREEMPTING,
    ),
    "a job beside one to which a place is promised": Case(
        promised, ("wait: wait until default/first ends",), ("nothing: it will get",), policy=PREEMPTING
    ),
    "a PodGroup whose pods name another": Case(
        misspelt, ("2 pods name PodGroup trian, which does not exist (annotation scheduling.k8s.io/group-name)",)
    ),
    "a pod of a gang that names a PodGroup wrongly": Case(
        misspelt,
        ("user: set the annotation scheduling.k8s.io/group-name: train on the pods -> 1 pod bound, 1 more",),
        ("create PodGroup",),
        "pod default/train-0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_to_do_is_clear(name: str) -> None:
    case = CASES[name]
    text = said(case.made(), case.question, case.policy)
    assert [each for each in case.says if each not in text] == [], text
    assert [each for each in case.not_said if each in text] == [], text


def test_what_is_promised_a_place_is_the_first_in_the_list_of_its_queue() -> None:
    session = Engine(PREEMPTING).decide(promised().snapshot(), now=NOON).session
    rows = SessionReport(session, NOON, 0.0).jobs(0, 9, JobFilter()).items
    assert {row.name: row.position for row in rows if row.reason in ("WaitingForRelease", "ClusterFull")} == {
        "first": 1,
        "train": 2,
    }


def test_nobody_is_told_to_create_what_is_only_misspelt() -> None:
    assert why(misspelt(), "pod default/train-1").who == "user"
