"""Room is made for the roles and sub groups that a gang lacks, before that for others of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.api import objects
from stromboli.policy.document import DEFAULT_POLICY
from tests.actions.evictions import evicted
from tests.builders import decide, gang, node, pod, pod_group, queue, state

BOTH = pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
CLASS = objects.PriorityClass(metadata=objects.Metadata(name="high"), value=100)
ROLES = {"minTaskMember": {"ps": 1, "worker": 2}}
GROUPS = {
    "subGroupPolicy": [
        {
            "name": "part",
            "subGroupSize": 2,
            "minSubGroups": 2,
            "labelSelector": {"matchLabels": {"in": "part"}},
            "matchLabelKeys": ["number"],
        }
    ]
}


def victims(action: str, cpu: int, low: int, least: int, pods: list[Any], phase: str = "Inqueue", **spec: Any) -> int:
    """How many of `low` pods that run on one node are evicted for pods of a job."""
    runs = [pod_group("low", 0, phase="Running"), *gang("low", low, node="n")]
    job = pod_group("job", least, phase=phase, priorityClassName="high", **spec)
    live = state(CLASS, queue("default"), node("n", cpu=str(cpu)), *runs, job, *pods)
    return len(evicted(decide(live, DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill"))))


def of_role(role: str, name: str, on: str = "") -> Any:
    return pod(f"{role}-{name}", "job", node=on, priority=100, annotations={"volcano.sh/task-spec": role})


@BOTH
def test_no_more_pods_of_a_role_are_served_than_the_gang_starts_with(action: str) -> None:
    """The parameter server is the last in order."""
    pods = [*(of_role("worker", str(number)) for number in range(4)), of_role("ps", "0")]
    assert victims(action, 4, 4, 3, pods, **ROLES) == 3
    assert victims(action, 2, 2, 3, pods, **ROLES) == 0


@BOTH
@pytest.mark.parametrize("workers", [2, 3])
def test_a_gang_starves_for_a_role_though_it_has_as_many_pods_as_it_starts_with(action: str, workers: int) -> None:
    run = [of_role("worker", str(number), "n") for number in range(workers)]
    waits = [of_role("worker", "w"), of_role("ps", "0")]
    assert victims(action, workers + 1, 1, 3, [*run, *waits], "Running", **ROLES) == 1


@BOTH
def test_of_sub_groups_as_many_are_served_as_the_gang_starts_with(action: str) -> None:
    """Pods of three groups come in turn."""
    pods = [pod(f"p{n}", "job", priority=100, labels={"in": "part", "number": str(n % 3)}) for n in range(6)]
    assert victims(action, 4, 4, 4, pods, **GROUPS) == 4
    assert victims(action, 3, 3, 4, pods, **GROUPS) == 0
