"""Scores by fullness against integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.framework.cluster.nodes import part_requested
from stromboli.kube import allocation
from tests.fuzz import tried
from tests.kube import oracle

#: milli-cpu, bytes of memory and milli-gpu of a node, and what of it is used; sizes up to 64 TiB, 0 for none
_AMOUNTS = st.tuples(st.integers(0, 2**46), st.integers(0, 2**46)).map(sorted)
_FEW = st.tuples(st.integers(0, 20), st.integers(0, 20))
_COLUMNS = st.lists(st.one_of(_AMOUNTS.map(tuple), _FEW), min_size=2, max_size=3)
PLAIN = tried(60)


def column(values: list[int]) -> np.ndarray:
    return np.array(values, np.float64)[:, None]


def cases(request: list[int]) -> np.ndarray:
    return allocation.without_and_with(np.array(request, np.float64))


@PLAIN
@given(_COLUMNS)
def test_least_and_most_allocated(pairs: list[tuple[int, int]]) -> None:
    requested, allocatable = [p[0] for p in pairs], [p[1] for p in pairs]
    complete = all(allocatable)
    least = allocation.least_allocated(column(requested), column(allocatable), complete=complete)
    most = allocation.most_allocated(column(requested), column(allocatable), complete=complete)
    assert least.tolist() == [oracle.least_allocated(requested, allocatable)]
    assert most.tolist() == [oracle.most_allocated(requested, allocatable)]


@PLAIN
@given(_COLUMNS, st.data())
def test_balanced(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    allocated, allocatable = [p[0] for p in pairs], [p[1] for p in pairs]
    request = [data.draw(st.integers(0, max(1, a))) for a in allocatable]
    expected = oracle.balanced(request, allocated, allocatable)
    assert allocation.balanced(cases(request), column(allocated), column(allocatable)).tolist() == [expected]
    if len(pairs) == 2 and all(allocatable):
        before, after = (
            part_requested(column(allocated), column(allocatable), *more) for more in ((0.0, 0.0), map(float, request))
        )
        assert allocation.evened_out(allocation.evenness(before), allocation.evenness(after)).tolist() == [expected]
        assert allocation.evenness_of_one(*before[:, 0].tolist()) == allocation.evenness(before).item()


def test_many_nodes_at_once_score_as_each_alone() -> None:
    allocatable = np.array([[4000, 0, 8000.0], [16e9, 8e9, 0.0]])
    allocated = np.array([[1000, 0, 9000.0], [4e9, 1e9, 0.0]])
    request = cases([500, 10**9])
    alone = [allocation.balanced(request, allocated[:, [i]], allocatable[:, [i]]).item() for i in range(3)]
    assert allocation.balanced(request, allocated, allocatable).tolist() == alone


@pytest.mark.parametrize(
    ("request_", "score"),
    [
        # cpu 50 % used, memory 0 %: std 0.25 before; memory evens it out, cpu makes it worse
        ([0, 50], 87),
        ([50, 0], 62),
    ],
)
def test_balance_is_a_comparison_of_before_and_after(request_: list[int], score: int) -> None:
    found = allocation.balanced(cases(request_), column([50, 0]), column([100, 100]))
    assert found.tolist() == [score]
