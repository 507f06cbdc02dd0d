"""The model of Lublin and Feitelson."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stromboli.lab.generator import Model, generate
from stromboli.lab.workload import Workload

MODEL = Model(jobs=20_000, processors=128, load=0.6)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return generate(MODEL, 1)


def processors(workload: Workload) -> np.ndarray:
    return workload.requests("cpu") / 1000


def test_a_seed_is_a_workload(workload: Workload) -> None:
    same, other = generate(MODEL, 1), generate(MODEL, 2)
    for column in ("arrival", "run_time", "declared", "gang", "user"):
        assert np.array_equal(getattr(same, column), getattr(workload, column), equal_nan=True)
    assert not np.array_equal(other.arrival, workload.arrival)


def test_sizes_are_those_of_the_model(workload: Workload) -> None:
    sizes = processors(workload)
    assert np.mean(sizes == 1) == pytest.approx(0.244, abs=0.02)
    assert np.mean((sizes > 1) & (np.log2(sizes) % 1 == 0)) >= 0.576
    # Of parallel jobs 0.86 are below the step, which is 2.5 powers of two below the machine.
    assert np.mean(sizes[sizes > 1] <= 2**4.5) == pytest.approx(0.86, abs=0.03)
    assert sizes.max() == 128


def test_run_times_are_those_of_the_model(workload: Workload) -> None:
    serial = workload.run_time[processors(workload) == 1]
    # Both parts of the distribution: the short one has its mean at e^3.9, the long one at e^9.4, about 3 hours.
    assert np.mean(serial > np.exp(8)) == pytest.approx(1 - (0.78 - 0.0054) + 0.03, abs=0.03)
    wide = workload.run_time[processors(workload) >= 64]
    assert np.median(wide) > 10 * np.median(serial)
    assert workload.run_time.max() <= np.exp(12) + 1


def test_jobs_ask_for_the_load(workload: Workload) -> None:
    assert workload.load("cpu", 128_000) == pytest.approx(0.6, rel=0.02)
    busier = generate(replace(MODEL, load=0.9), 1)
    assert busier.load("cpu", 128_000) == pytest.approx(0.9, rel=0.02)


def test_fewer_jobs_arrive_at_night_and_on_weekends(workload: Workload) -> None:
    hour, day = workload.arrival // 3600 % 24, workload.arrival // 86_400 % 7
    assert np.mean((hour >= 9) & (hour < 17)) > 3 * np.mean((hour >= 0) & (hour < 8))
    assert np.mean(day >= 5) / 2 == pytest.approx(0.5 * np.mean(day < 5) / 5, rel=0.15)


def test_users_have_habits(workload: Workload) -> None:
    sizes = [np.median(processors(workload)[workload.user == user]) for user in range(8)]
    assert len(set(sizes)) > 2
    assert set(workload.user.tolist()) == set(range(8))


def test_people_say_more_than_it_takes(workload: Workload) -> None:
    accuracy = workload.run_time / workload.declared
    assert np.all(accuracy <= 1)
    assert np.mean(accuracy == 1) == pytest.approx(MODEL.exact, abs=0.02)
    assert 0.2 < np.median(accuracy) < 0.6
    assert np.isnan(generate(replace(MODEL, declared=0.0), 1).declared).all()
