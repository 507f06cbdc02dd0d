"""How a cluster is divided: KAI's recorded outcomes, the description queue by queue, and what always holds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.resources import Matrix, Vector
from stromboli.fairness.queue_tree import TOP
from stromboli.plugins.fairshare import division
from stromboli.plugins.fairshare.tree import DivisionTree
from tests.fairshare import oracle

#: one resource in whole units; None is unlimited
amount = st.integers(0, 30)
queue = st.tuples(
    st.one_of(st.none(), amount),  # quota
    st.one_of(st.none(), amount),  # limit
    amount,  # request
    st.integers(0, 5),  # weight
    st.sampled_from([0.0, 0.1, 0.5]),  # usage
    st.integers(0, 2),  # priority
    st.integers(-1, 3),  # parent, of those before it
)


def tree_of(rows: list[tuple[int | None, int | None, int, int, float, int, int]]) -> DivisionTree:
    def column(values: list[float]) -> Matrix:
        return np.array(values, np.float64)[:, None]

    quota, limit, request, weight, usage, priority, parent = map(list, zip(*rows, strict=True))
    return DivisionTree(
        names=[f"q{number:02}" for number in range(len(rows))],
        parent=np.array([above if above < number else TOP for number, above in enumerate(parent)], np.intp),
        priority=np.array(priority, np.float64),
        created=np.arange(len(rows), dtype=np.float64)[::-1],
        quota=column([np.inf if value is None else value for value in quota]),
        limit=column([np.inf if value is None else value for value in limit]),
        weight=column(weight),
        usage=column(usage),
        request=column(request),
        allocated=column([0] * len(rows)),
        non_preemptible=column([0] * len(rows)),
        unit=np.ones(1),
    )


def shares(
    tree: DivisionTree, total: float, k: float, divide: Callable[[DivisionTree, Vector, float], object]
) -> Matrix:
    divide(tree, np.array([total], np.float64), k)
    return tree.fair_share


@given(st.lists(queue, min_size=1, max_size=9), st.integers(0, 60), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_all_pools_at_once_are_as_queue_by_queue(rows: list[object], total: int, k: float) -> None:
    ours = shares(tree_of(rows), total, k, division.divide_tree)  # type: ignore[arg-type]
    np.testing.assert_allclose(ours, shares(tree_of(rows), total, k, oracle.divide_tree), rtol=1e-9)  # type: ignore[arg-type]


@given(st.lists(queue, min_size=1, max_size=9), st.integers(0, 60))
def test_whole_units_stay_within_limit_and_request(rows: list[object], total: int) -> None:
    tree = tree_of(rows)  # type: ignore[arg-type]
    ours = shares(tree, total, 1.0, division.divide_tree)
    assert (ours <= tree.requestable()).all()
    assert (ours == np.floor(ours)).all()


@given(st.lists(queue, min_size=1, max_size=9), st.integers(0, 60))
def test_more_than_there_is_comes_from_quotas_only(rows: list[object], total: int) -> None:
    tree = tree_of([(*row[:6], TOP) for row in rows])  # type: ignore[index]
    ours = shares(tree, total, 1.0, division.divide_tree)
    quotas = np.minimum(np.where(np.isinf(tree.quota), total, tree.quota), tree.requestable())
    assert ours.sum() <= max(total, quotas.sum())
    assert (ours >= quotas).all()


def test_a_card_is_divided_as_a_whole_and_a_fraction_of_a_quota_is_kept() -> None:
    tree = tree_of([(500, None, 3_000, 1, 0.0, 0, TOP), (0, None, 3_000, 1, 0.0, 0, TOP)])
    tree.unit[:] = 1_000
    assert shares(tree, 4_000, 1.0, division.divide_tree)[:, 0].tolist() == [1_500 + 500, 1_000 + 1_000]


def test_history_says_what_each_round_gave() -> None:
    tree = tree_of([(2, None, 9, 1, 0.0, 0, TOP), (0, None, 3, 1, 0.0, 0, TOP), (0, None, 9, 1, 0.0, 0, TOP)])
    history = division.divide_tree(tree, np.array([16.0]), 1.0)
    assert [(step, share.tolist()) for step, share in history.of(0)] == [
        ("quota", [2.0]),
        ("round 1", [6.0]),
        ("round 2", [7.0]),
    ]
    assert [(step, share.tolist()) for step, share in history.of(2)][-1] == ("remainder", [6.0])
    assert tree.fair_share[:, 0].tolist() == [7.0, 3.0, 6.0]


@pytest.mark.perf
@pytest.mark.parametrize("queues", [1_000, 10_000])
def test_the_cost_of_a_division(queues: int, capsys: pytest.CaptureFixture[str]) -> None:
    tree, total = oracle.random_tree(queues)
    numpy, reference = best(lambda: division.divide_tree(tree, total, 1.0), 9), tree.fair_share.copy()
    python = best(lambda: oracle.divide_tree(tree, total, 1.0), 2)
    np.testing.assert_allclose(reference, tree.fair_share, rtol=1e-9)
    with capsys.disabled():
        print(f"\n{queues} queues: {numpy * 1e3:.2f} ms CPU; one by one in Python {python * 1e3:.1f} ms")


def best(run: Callable[[], object], times: int) -> float:
    """The least CPU seconds."""

    def once() -> float:
        began = time.process_time()
        run()
        return time.process_time() - began

    return min(once() for _ in range(times))
