"""A gang of unlike pods starts wherever evictions make room for it, though it has to be packed tightly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given

from stromboli.api.decisions import Bind, Nominate
from tests.expectations.test_no_needless_victim import CPUS, decided, gangs, running, ways


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
