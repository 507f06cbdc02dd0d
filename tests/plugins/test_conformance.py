"""conformance: what the cluster itself needs is never a victim, whatever the preemptor."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from tests import builders
from tests.builders import node, pod, pod_group, queue
from tests.plugins.queues import BOTH
from tests.plugins.sessions import decide


def victims(action: str, by: str, compatibility: Any, **uses: Any) -> list[str]:
    """Who is evicted for a pod that needs the only node, of the same queue or, to reclaim, of another."""
    theirs, ours = ("rich", "poor") if "reclaim" in action else ("default", "default")
    high = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=10)
    queues = [queue("rich", deserved={"cpu": "0"}), queue("poor", deserved={"cpu": "1"})]
    scene = [
        pod_group("uses", 0, queue=theirs, phase="Running", namespace=uses.get("namespace", "default")),
        pod("uses-0", "uses", node="n", **uses),
        pod_group("wants", queue=ours, priorityClassName="high"),
        pod("wants-0", "wants"),
    ]
    by = builders.policy(by, actions=action)
    result = decide(node("n", cpu="1"), high, *queues, *scene, by=by, compatibility=compatibility)
    return sorted(result.session.evicted)


ACTIONS = pytest.mark.parametrize(
    ("action", "others"),
    [
        ("preempt", "priority gang"),
        ("gangpreempt", "priority gang"),
        ("reclaim", "gang capacity"),
        ("gangreclaim", "gang capacity"),
    ],
)


@BOTH
@ACTIONS
@pytest.mark.parametrize(
    "critical",
    [
        pytest.param({"priority": 2_000_000_000}, id="to the cluster"),
        pytest.param({"priority": 2_000_001_000}, id="to the node"),
        pytest.param({"namespace": "kube-system"}, id="of the system"),
    ],
)
def test_critical_pods_stay(action: str, others: str, critical: dict[str, Any], compatibility: Any) -> None:
    assert len(victims(action, others, compatibility, **critical)) == 1, "without the plugin it goes"
    assert victims(action, f"{others} conformance", compatibility, **critical) == []


@BOTH
@ACTIONS
def test_the_highest_priority_of_users_is_not_critical(action: str, others: str, compatibility: Any) -> None:
    assert victims(action, f"{others} conformance", compatibility, priority=1_000_000_000) == ["default/uses-0"]
