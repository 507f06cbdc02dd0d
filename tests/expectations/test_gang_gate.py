"""The gate of a gang keeps pods from kube-scheduler, and from no session."""

from __future__ import annotations

import pytest

from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state
from tests.plugins.queues import bound

GATE = {"name": "stromboli.io/gang"}
POLICY = policy("gang predicates", actions="allocate, backfill")


@pytest.mark.parametrize(("count", "placed"), [(8, {"train": 8}), (9, {})])
def test_a_gang_behind_its_gate_is_decided_whole_or_not_at_all(count: int, placed: dict[str, int]) -> None:
    cluster = state(
        node("n"), queue("default"), pod_group("train", count), gang("train", count, schedulingGates=[GATE])
    )
    assert bound(decide(cluster, POLICY)) == placed


def test_pods_that_request_nothing_are_decided_too() -> None:
    pods = gang("train", 2, cpu="", memory="", schedulingGates=[GATE])
    assert bound(decide(state(node("n"), queue("default"), pod_group("train", 2), pods), POLICY)) == {"train": 2}


def test_any_other_gate_holds_the_pod_and_its_gang() -> None:
    first = pod("train-0", "train", schedulingGates=[GATE])
    second = pod("train-1", "train", schedulingGates=[GATE, {"name": "example.com/data"}])
    result = decide(state(node("n"), queue("default"), pod_group("train", 2), first, second), POLICY)
    assert bound(result) == {}
    assert result.session.view.trace.pods[1].reason == "SchedulingGated"
