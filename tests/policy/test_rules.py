"""Where Volcano's behaviour and the strict one part: for each rule a scenario that shows the difference."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api.crds import PodGroupCondition
from stromboli.api.decisions import SetPodGroupStatus
from stromboli.api.errors import PolicyError
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.policy.rules import rules
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state

GANG = policy("priority gang", "predicates nodeorder")
SHARES = policy("priority gang", "predicates proportion")


def bound(cluster: Any, text: str, compatibility: Any) -> int:
    """How many pods a session binds."""
    return len(decide(cluster, text, compatibility=compatibility).session.bound)


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 1), ("strict", 0)])
def test_readiness(compatibility: str, expected: int) -> None:
    """A best-effort pod that no node takes makes up the number for a gang of two."""
    cluster = state(
        node("n1"),
        queue("default"),
        pod_group("mixed", min_member=2),
        pod("mixed-a", "mixed"),
        pod("mixed-b", "mixed", cpu="", memory="", nodeSelector={"no": "where"}),
    )
    assert bound(cluster, GANG, compatibility) == expected


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", "new"), ("strict", "begun")])
def test_begun_first(compatibility: Any, expected: str) -> None:
    """A scheduler died while it bound a gang, and there is room for the rest of it or for another."""
    cluster = state(
        node("n1", cpu="3"),
        queue("default"),
        pod_group("begun", min_member=2),
        pod("begun-0", "begun", node="n1", phase="Running"),
        pod("begun-1", "begun"),
        pod_group("new", min_member=2),
        [pod(f"new-{i}", "new") for i in range(2)],
    )
    session = decide(cluster, policy("gang drf", "predicates"), compatibility=compatibility).session
    assert {key.removeprefix("default/").partition("-")[0] for key in session.bound} == {expected}


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", "True"), ("strict", "False")])
def test_conditions(compatibility: Any, expected: str) -> None:
    """A PodGroup that had no room gets some."""
    late = pod_group("late")
    late.status.conditions.append(PodGroupCondition(type="Unschedulable", status="True", reason="NotEnoughResources"))
    cluster = state(node("n1"), queue("default"), late, gang("late", 1))
    decided = decide(cluster, GANG, compatibility=compatibility).decisions
    status = next(d.status for d in decided if isinstance(d, SetPodGroupStatus))
    shown = {condition.type: condition.status for condition in status.conditions}
    assert shown == {"Unschedulable": expected, "Scheduled": "True"}


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 1), ("strict", 0)])
def test_closed_queue(compatibility: str, expected: int) -> None:
    """A best-effort pod in a queue that takes nothing new."""
    cluster = state(
        node("n1"), queue("default", state="Closed"), pod_group("late"), pod("late-0", "late", cpu="", memory="")
    )
    text = policy("gang", "predicates proportion", actions="allocate, backfill")
    assert bound(cluster, text, compatibility) == expected


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 109.666), ("strict", 100)])
def test_deserved(compatibility: str, expected: float) -> None:
    """A guarantee above the weighted share: the sum exceeds the cluster, or comes out of the others' shares."""
    cluster = state(
        [node(f"n{i}", cpu="10") for i in range(10)],
        queue("a", weight=1, guarantee={"resource": {"cpu": "43"}}),
        queue("b", weight=1),
        queue("c", weight=1),
        [pod_group(q, queue=q) for q in "abc"],
        [pod(f"{q}-{i}", q, memory="") for q in "abc" for i in range(60)],
    )
    session = decide(cluster, SHARES, compatibility=compatibility).session
    deserved = [session.report.queue(q).amounts["deserved"][0] / 1000 for q in "abc"]
    assert sum(deserved) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 0), ("strict", 4)])
def test_all_weights_zero(compatibility: str, expected: int) -> None:
    cluster = state(node("n1"), queue("default", weight=0), pod_group("job"), gang("job", 4))
    assert bound(cluster, SHARES, compatibility) == expected


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 0), ("strict", 1)])
def test_tolerance(compatibility: str, expected: int) -> None:
    """49 CPUs for weights 1 and 48: the first queue deserves one CPU, less a rounding error."""
    cluster = state(
        node("n1", cpu="49", memory="490Gi"),
        queue("a", weight=1),
        queue("b", weight=48),
        pod_group("one", queue="a"),
        pod_group("many", queue="b"),
        pod("one-0", "one", memory=""),
        pod("one-1", "one", memory=""),
        [pod(f"many-{i}", "many", memory="") for i in range(60)],
    )
    session = decide(cluster, SHARES, compatibility=compatibility).session
    assert sum(key.startswith("default/one-") for key in session.bound) == expected


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 0), ("strict", 2)])
def test_broken_queue(compatibility: str, expected: int) -> None:
    """A queue with an unknown parent beside a good one."""
    text = (
        "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: predicates\n"
        "  - name: capacity\n    enableHierarchy: true\n"
    )
    cluster = state(
        node("n1"),
        queue("root"),
        queue("good", parent="root"),
        queue("bad", parent="missing"),
        pod_group("g", queue="good"),
        pod_group("b", queue="bad"),
        gang("g", 2),
        gang("b", 2),
    )
    result = decide(cluster, text, compatibility=compatibility)
    assert len(result.session.bound) == expected
    reason = pending_reasons(result.session)["default/b-0"]
    assert reason.reason == "QueueMisconfigured"
    assert "missing" in reason.message


@pytest.mark.parametrize(("compatibility", "expected"), [("volcano", 2), ("strict", 0)])
def test_admission(compatibility: str, expected: int) -> None:
    """A PodGroup that once ran and has no running pods, in a queue that has no room to admit it."""
    text = policy("priority gang", "predicates proportion", actions="enqueue, allocate")
    cluster = state(
        node("n1"),
        queue("default", capability={"cpu": "1"}),
        pod_group("again", min_member=1, phase="Running", minResources={"cpu": "2"}),
        gang("again", 2, cpu="500m"),
    )
    assert bound(cluster, text, compatibility) == expected


def test_single_rules_can_be_overridden() -> None:
    assert not rules("strict", {"veto": "volcano"}).veto
    assert rules("volcano", {"veto": "strict"}).veto
    with pytest.raises(PolicyError, match=r"rules\.vetoes: no such rule"):
        rules("strict", {"vetoes": "volcano"})
