"""A gang whose pods must be near one of them evicts around whichever first place costs least, or where alone it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Evict, Nominate
from stromboli.engine import DEFAULT_POLICY, Engine
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES

CPUS = 4
ZONE = "topology.kubernetes.io/zone"
ACTIONS = ("preempt", "gangpreempt", "reclaim", "gangreclaim")
ENGINES = {
    action: Engine(
        DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}").replace("proportion", "capacity")
    )
    for action in ACTIONS
}
#: by node: the CPUs of pods that stay, and of pods that may be evicted
filled = st.tuples(st.integers(0, CPUS), st.integers(0, CPUS)).map(lambda both: (both[0], min(both[1], CPUS - both[0])))


def near(role: str) -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"role": role}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def fewest(zones: Sequence[Sequence[tuple[int, int]]], count: int) -> int | None:
    """How many pods must be evicted for so many pods in one zone; None where no zone is large enough."""
    costs = [
        max(0, count - sum(CPUS - stay - go for stay, go in zone))
        for zone in zones
        if sum(CPUS - stay for stay, _ in zone) >= count
    ]
    return min(costs, default=None)


def evicted(action: str, zones: Sequence[Sequence[tuple[int, int]]], count: int, leader: bool) -> int | None:
    """How many pods are evicted for a gang that gets its places; None if it does not."""
    objs: list[Any] = [queue("mine", deserved={"cpu": "24"}), queue("theirs", deserved={"cpu": "0"}), queue("default")]
    objs += [pod_group("stays", 0, "mine", "Running", priorityClassName="high")]
    objs += [pod_group("goes", 0, "theirs" if "reclaim" in action else "mine", "Running")]
    objs += [*CLASSES, pod_group("g", count, "mine", created=9, priorityClassName="high")]
    for zone, nodes in enumerate(zones):
        for number, (stay, go) in enumerate(nodes):
            name = f"n{zone}-{number}"
            objs.append(node(name, cpu=str(CPUS), labels={ZONE: f"z{zone}"}))
            objs += [pod(f"stays-{name}-{each}", "stays", node=name, priority=9) for each in range(stay)]
            objs += [pod(f"goes-{name}-{each}", "goes", node=name, priority=1) for each in range(go)]
    for each in range(count):
        first = leader and not each
        role = {"role": "leader" if first else "worker"}
        spec = {} if first else near("leader" if leader else "worker")
        objs.append(pod(f"g-{each}", "g", priority=9, labels=role, **spec))
    result = ENGINES[action].decide(state(objs).snapshot(), now=NOON)
    placed = len(result.session.bound) + sum(isinstance(each, Nominate) for each in result.decisions)
    gone = sum(isinstance(each, Evict) for each in result.decisions)
    assert placed == count or not (placed or gone)
    return gone if placed else None


@pytest.mark.parametrize("leader", [False, True])
@pytest.mark.parametrize("action", ACTIONS)
@given(zones=st.lists(st.lists(filled, min_size=1, max_size=2), min_size=1, max_size=3), count=st.integers(2, 5))
@pytest.mark.one_in(3)
def test_it_costs_the_fewest_pods(action: str, leader: bool, zones: list[list[tuple[int, int]]], count: int) -> None:
    assert evicted(action, zones, count, leader) == fewest(zones, count)
