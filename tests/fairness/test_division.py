"""Dividing a cluster between queues: the properties of a fair division, and Volcano's rounds queue by queue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.resources import Matrix, Vector
from stromboli.fairness.division import in_base_units, level, rounds

TOTAL = np.array([100_000.0, 400 * 2**30, 1_000.0])

queues = st.lists(
    st.tuples(
        st.integers(0, 10),  # weight
        st.integers(0, 120_000),  # request
        st.one_of(st.just(np.inf), st.integers(0, 120_000)),  # limit
        st.integers(0, 30_000),  # guarantee
    ),
    min_size=1,
    max_size=8,
)


def columns(values: list[float]) -> Matrix:
    """Amounts in three dimensions, each the same part of its total."""
    return np.array(values, dtype=np.float64)[:, None] * (TOTAL / TOTAL[0])


def one_by_one(total: Vector, weight: Vector, request: Matrix, limit: Matrix, guarantee: Matrix) -> Matrix:
    """Volcano's rounds written out for one queue after the other."""
    count = len(weight)
    out, left, met = np.zeros_like(request), total.copy(), [False] * count
    for _ in range(500):
        weights = sum(weight[q] for q in range(count) if not met[q])
        if not weights:
            break
        more, less = np.zeros_like(total), np.zeros_like(total)
        for q in range(count):
            if met[q]:
                continue
            old = out[q].copy()
            new = np.minimum(np.minimum(old + left * (weight[q] / weights), limit[q]), request[q])
            out[q] = np.maximum(new, guarantee[q])
            met[q] = bool((request[q] < out[q] + 0.1).all() or (out[q] == old).all())
            more += np.maximum(out[q] - old, 0)
            less += np.maximum(old - out[q], 0)
        before, left = left, np.maximum(left + less - more, 0)
        if (left[:2] < 0.1).all() or (left == before).all():
            break
    return out


@given(queues)
def test_rounds_are_volcanos(rows: list[tuple[int, int, float, int]]) -> None:
    weight, request, limit, guarantee = map(list, zip(*rows, strict=True))
    given_ = (np.array(weight, float), columns(request), columns(limit), columns(guarantee))
    np.testing.assert_allclose(rounds(TOTAL, *given_), one_by_one(TOTAL, *given_), rtol=1e-9, atol=1e-3)


@given(queues)
def test_the_level_never_gives_more_than_there_is(rows: list[tuple[int, int, float, int]]) -> None:
    weight, request, limit, guarantee = map(list, zip(*rows, strict=True))
    out = level(TOTAL, np.array(weight, float), columns(request), columns(limit), columns(guarantee))
    assert (out.sum(axis=0) <= TOTAL * (1 + 1e-9)).all()


@given(queues)
def test_nobody_below_its_level_envies_another(rows: list[tuple[int, int, float, int]]) -> None:
    weight, request, limit, guarantee = map(list, zip(*rows, strict=True))
    guarantee = [min(g, 100_000 // len(rows)) for g in guarantee]
    out = level(TOTAL, np.array(weight, float), columns(request), columns(limit), columns(guarantee))[:, 0]
    wants = [q for q in range(len(rows)) if weight[q] and out[q] < min(request[q], limit[q]) - 1e-6]
    for q in wants:
        for other in range(len(rows)):
            if weight[other] and out[other] > guarantee[other] + 1e-6:
                assert out[q] / weight[q] >= out[other] / weight[other] - 1e-6


@given(queues)
def test_without_guarantees_the_level_is_where_the_rounds_end(rows: list[tuple[int, int, float, int]]) -> None:
    weight, request, limit, _ = map(list, zip(*rows, strict=True))
    given_ = (np.array(weight, float), columns(request), columns(limit), columns([0] * len(rows)))
    np.testing.assert_allclose(level(TOTAL, *given_), rounds(TOTAL, *given_), rtol=1e-6, atol=1.0)


@pytest.mark.parametrize("divide", [level, rounds])
def test_a_hundred_cpus(divide: object) -> None:
    """Weights 2, 3, 5; the first may have 50 and is guaranteed 10, the last is guaranteed 20 and asks for 30."""
    cpu = np.array([100.0, 0, 0])
    out = divide(  # type: ignore[operator]
        cpu,
        np.array([2.0, 3, 5]),
        np.array([[80.0, 0, 0], [60, 0, 0], [30, 0, 0]]),
        np.array([[50.0, 0, 0], [70, 0, 0], [90, 0, 0]]),
        np.array([[10.0, 0, 0], [0, 0, 0], [20, 0, 0]]),
    )
    np.testing.assert_allclose(out[:, 0], [28, 42, 30])


def test_amounts_within_rounding_error_are_whole() -> None:
    assert in_base_units(np.array([[999.9999999999999, 33_333.333, 0.0]])).tolist() == [[1000, 33_333, 0]]
