"""What is said of evictions that did not come: who could go, and why that does not help."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.crds import Queue
from stromboli.api.objects import Metadata, PriorityClass
from stromboli.explain.evictions import why_no_evictions
from tests.builders import decide, gang, node, pod_group, policy, queue, state

POLICY = policy("priority gang conformance", "predicates proportion", actions="enqueue, allocate, preempt, reclaim")


def said(*objects: Any) -> dict[str, tuple[str, str]]:
    """Word and detail for each action that evicts, about the job `waits`."""
    high = PriorityClass(metadata=Metadata(name="high"), value=10)
    session = decide(state(high, *objects), POLICY).session
    found = dict(why_no_evictions(session, session.view.jobs["default/waits"]))
    assert all(reason.stage.name == "Preemption" for reason in found.values())
    return {action: (reason.reason, reason.detail) for action, reason in found.items()}


def waits(count: int = 1, in_queue: str = "default", **spec: Any) -> list[Any]:
    """A gang that finds no room."""
    group = pod_group("waits", count, queue=in_queue, **spec)
    return [group, *gang("waits", count, cpu="4")]


def runs(count: int, in_queue: str = "default", name: str = "runs", **spec: Any) -> list[Any]:
    """A gang on the only node."""
    return [pod_group(name, count, queue=in_queue, phase="Running", **spec), *gang(name, count, cpu="4", node="n1")]


@pytest.fixture
def one_node() -> list[Any]:
    """8 CPUs."""
    return [node("n1", cpu="8")]


def test_pods_of_the_same_priority_stay(one_node: list[Any]) -> None:
    found = said(*one_node, queue("default"), runs(2), waits())
    word, detail = found["preempt"]
    assert (word, detail.partition(":")[0]) == ("NoVictims", "of 2 that run")
    assert "allows 0" in detail


def test_an_empty_queue_has_no_victims(one_node: list[Any]) -> None:
    other, default = queue("other", weight=1), queue("default", weight=1)
    found = said(*one_node, other, default, runs(2, "other", name="others"), waits(2))
    assert found["preempt"] == ("NoVictims", "none runs")
    assert found["reclaim"][0] in ("VictimsKept", "VictimsDoNotSuffice", "MayNotReclaim")


def test_all_that_may_go_may_be_too_little(one_node: list[Any]) -> None:
    elastic = [pod_group("runs", 1, phase="Running"), *gang("runs", 2, cpu="4", node="n1")]
    found = said(*one_node, queue("default"), elastic, waits(3, priorityClassName="high"))
    word, detail = found["preempt"]
    assert word == "VictimsDoNotSuffice"
    assert detail == "2 of default/runs could be evicted, after which 2 of 3 pods fit"


def test_an_elastic_job_is_judged_by_its_queues_share(one_node: list[Any]) -> None:
    """It has what it starts with, and its queue deserves half of the node."""
    own = [pod_group("waits", 1, "poor", phase="Running"), gang("waits", 1, cpu="1", node="n1")]
    rich = [pod_group("runs", 2, "rich", phase="Running"), gang("runs", 2, cpu="3", node="n1")]
    found = said(*one_node, queue("rich"), queue("poor"), *own, gang("waits", 2, cpu="3")[1:], *rich)
    assert found["preempt"][0] == "NotStarving"
    assert found["reclaim"][0] != "NotStarving"


def test_who_has_what_it_starts_with_evicts_nobody(one_node: list[Any]) -> None:
    group = pod_group("waits", 1, phase="Running")
    queues: list[Queue] = [queue("default")]
    found = said(*one_node, *queues, group, gang("waits", 1, cpu="8", node="n1"), gang("waits", 2, cpu="8")[1:])
    assert {action: word for action, (word, _) in found.items()} == {
        "preempt": "NotStarving",
        "reclaim": "MayNotReclaim",
    }
