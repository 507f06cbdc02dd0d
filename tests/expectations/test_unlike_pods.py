"""A gang of unlike pods starts wherever evictions make room for it, though it has to be packed tightly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given

from stromboli.api.decisions import Bind, Nominate
from tests.builders import NOON, node, pod, pod_group, queue, state
from tests.expectations.test_no_needless_victim import CPUS, ENGINES, decided, gangs, running, ways
from tests.expectations.world import CLASSES


def packs(gang: Sequence[int]) -> bool:
    """Whether a gang fits on empty nodes."""
    sums = (
        [sum(cpu for at, cpu in zip(nodes, gang, strict=True) if at == node) for node in nodes] for nodes in ways(gang)
    )
    return any(max(each) <= CPUS for each in sums)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@given(jobs=running, gang=gangs)
@example(jobs=[(2, [1]), (0, [0, 1]), (1, [1, 0, 1, 0])], gang=[4, 3, 3, 4])
@example(jobs=[(0, [0, 1, 0, 2]), (4, [2, 2, 0, 2])], gang=[3, 3, 4, 4])
def test_what_fits_once_all_are_evicted_starts(action: str, jobs: list[tuple[int, list[int]]], gang: list[int]) -> None:
    decisions, _ = decided(action, jobs, gang)
    placed = [each for each in decisions if isinstance(each, Bind | Nominate) and each.name.startswith("g-")]
    assert len(placed) == (len(gang) if packs(gang) else 0)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
@pytest.mark.parametrize(
    "gang",
    [
        [(5, 2), (4, 3), (1, 3), (5, 4), (2, 2)],
        [(1, 4), (5, 2), (3, 3), (2, 4), (3, 2)],
        [(3, 5), (4, 2), (3, 2), (2, 4), (3, 4)],
    ],
)
def test_what_fits_by_cpu_and_memory_starts(action: str, gang: list[tuple[int, int]]) -> None:
    objs = [*CLASSES, queue("mine"), queue("default"), pod_group("low", 1, "mine", "Running")]
    for number in range(3):
        objs.append(node(f"n{number}", cpu="6", memory="6Gi"))
        objs += [pod(f"low-{number}-{at}", "low", memory="1Gi", node=f"n{number}", priority=1) for at in range(6)]
    objs.append(pod_group("g", len(gang), "mine", created=99, priorityClassName="high"))
    objs += [pod(f"g-{at}", "g", cpu=f"{cpu}", memory=f"{gi}Gi", priority=9) for at, (cpu, gi) in enumerate(gang)]
    decisions = ENGINES[action].decide(state(objs).snapshot(), now=NOON).decisions
    assert len([each for each in decisions if isinstance(each, Bind | Nominate)]) == len(gang)
