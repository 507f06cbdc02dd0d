"""Where strict rules choose other victims than Volcano does: one order of victims, and minMember, in every action."""

from __future__ import annotations

from typing import Any

import pytest

from tests import builders
from tests.actions.evictions import evicted, running, starving
from tests.builders import node, pod, pod_group, queue
from tests.expectations.test_preemption import CLASSES

QUEUES = [queue("rich", deserved={}), queue("poor", deserved={"cpu": "99", "memory": "99Gi"})]


def victims(*objs: Any, judges: str, actions: str, compatibility: Any = "strict") -> list[str]:
    text = builders.policy(judges, actions=actions)
    return evicted(builders.decide(builders.state(CLASSES, *QUEUES, *objs), text, compatibility=compatibility))


@pytest.mark.parametrize(("compatibility", "gone"), [("strict", {"small"}), ("volcano", {"large"})])
def test_gangreclaim_takes_the_less_important_gang_and_not_the_one_that_gives_most(
    compatibility: Any, gone: set[str]
) -> None:
    """`large` gives all that is needed for all that it has; `small` gives half of it for what it has elsewhere."""
    small = running("small", "n", "n", "m", "m", least=4)
    large = running("large", "n", "n", least=2)
    large[0].spec.priority_class_name = "middle"
    cluster = [node("n", cpu="4"), node("m", cpu="2", labels={"other": "y"}), *small, *large]
    found = victims(*cluster, *starving(2), judges="gang capacity", actions="gangreclaim", compatibility=compatibility)
    assert {name.partition("-")[0] for name in found} == gone


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_gang_keeps_its_minimum_or_goes_whole_without_the_plugin_gang_too(action: str) -> None:
    cluster = [node("n", cpu="2"), *running("uses", "n", "n", least=2), *starving()]
    assert victims(*cluster, judges="capacity", actions=action) == ["uses-0", "uses-1"]


@pytest.mark.parametrize(("least", "gone"), [(0, ["runs"]), (1, [])])
def test_a_job_does_not_fall_below_its_minimum_for_a_pod_of_its_own(least: int, gone: list[str]) -> None:
    own = [pod_group("job", least, queue="rich", phase="Running")]
    own += [pod("runs", "job", node="n", priority=1), pod("waits", "job", priority=2)]
    assert victims(node("n", cpu="1"), *own, judges="priority", actions="preempt") == gone


def test_gangreclaim_takes_the_last_pods_of_a_job_as_reclaim_does() -> None:
    cluster = [node("n", cpu="4"), *running("uses", *["n"] * 4), *starving(2)]
    found = [victims(*cluster, judges="gang capacity", actions=action) for action in ("reclaim", "gangreclaim")]
    assert found == [["uses-2", "uses-3"]] * 2
