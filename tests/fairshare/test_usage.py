"""Usage over time: integrals that fade, end and are forgotten; and what they do to shares."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.errors import PolicyError
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.plugins.fairshare.usage import Memory, UsageHistory
from tests import builders

HOUR = 3_600.0


def held(memory: Memory, *stretches: tuple[float, float]) -> UsageHistory:
    """One queue that held amounts of the 4 there are, each for some seconds."""
    now = 0.0
    history = UsageHistory.begin(memory, ["a"], ["cpu"], now)
    for amount, seconds in stretches:
        now += seconds
        history = history.holds(np.array([[amount]]), np.array([4.0])).advanced(memory, now)
    return history


def usage(memory: Memory, *stretches: tuple[float, float]) -> float:
    return float(held(memory, *stretches).usage(memory)[0, 0])


def test_usage_is_the_part_of_what_there_was() -> None:
    assert usage(Memory(window=24 * HOUR), (4.0, HOUR), (0.0, 3 * HOUR)) == 0.25


def test_what_lies_before_the_window_does_not_count() -> None:
    assert usage(Memory(window=24 * HOUR), (4.0, 10 * HOUR), (0.0, 26 * HOUR)) == 0.0


def test_usage_counts_half_after_a_half_life() -> None:
    memory = Memory(half_life=24 * HOUR)
    now, later = (held(memory, (4.0, HOUR), (0.0, hours * HOUR)).buckets[0].number for hours in (10, 34))
    assert memory.weight(later, 34 * HOUR) == pytest.approx(memory.weight(now, 10 * HOUR) / 2)
    assert usage(memory, (4.0, 24 * HOUR), (0.0, 24 * HOUR)) == pytest.approx(1 / 3, abs=0.05)


def test_usage_is_forgotten_at_each_reset() -> None:
    memory = Memory(reset=24 * HOUR)
    assert usage(memory, (4.0, 23 * HOUR)) == 1.0
    assert usage(memory, (4.0, 24 * HOUR), (0.0, HOUR)) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 10_000)), min_size=1, max_size=6),
    st.sampled_from([Memory(window=HOUR), Memory(half_life=HOUR), Memory(half_life=HOUR, window=2 * HOUR, reset=HOUR)]),
)
def test_how_often_is_looked_does_not_matter(stretches: list[tuple[int, int]], memory: Memory) -> None:
    halves = [(float(amount), seconds / 2) for amount, seconds in stretches for _ in range(2)]
    once = usage(memory, *((float(amount), float(seconds)) for amount, seconds in stretches))
    assert usage(memory, *halves) == pytest.approx(once, abs=1e-9)
    assert 0 <= once <= 1


def test_a_history_survives_being_written() -> None:
    memory = Memory(window=24 * HOUR)
    history = held(memory, (1.0, 5 * HOUR), (3.0, 7 * HOUR))
    read = UsageHistory.from_data(json.loads(json.dumps(history.as_data())))
    assert read.usage(memory) == pytest.approx(history.usage(memory), rel=1e-5)
    assert (read.until, read.queues, read.length) == (history.until, history.queues, history.length)


def test_a_clock_that_was_ahead_stops_nothing() -> None:
    """What was counted while it was ahead is left out, and time goes on."""
    memory = Memory(window=24 * HOUR)
    ahead = held(memory, (4.0, HOUR)).advanced(memory, 10_000 * HOUR)
    back = ahead.advanced(memory, 2 * HOUR)
    assert back.usage(memory).tolist() == [[0.0]]
    assert back.advanced(memory, 3 * HOUR).usage(memory).tolist() == [[1.0]]
    slightly = held(memory, (4.0, 2 * HOUR))
    assert slightly.advanced(memory, 1.9 * HOUR) is slightly


def test_new_queues_have_no_past_and_gone_ones_are_left_out() -> None:
    memory = Memory(window=24 * HOUR)
    history = held(memory, (2.0, HOUR)).about(["b", "a"], ["memory", "cpu"])
    assert history.usage(memory).tolist() == [[0.0, 0.0], [0.0, 0.5]]
    assert history.about(["b"], ["cpu"]).usage(memory).tolist() == [[0.0]]


POLICY = """
actions: allocate
tiers:
- plugins:
  - name: gang
  - {{name: fairshare, arguments: {{kValue: 1.0{more}}}}}
"""


def shares_after_a_day(more: str) -> dict[str, float]:
    """CPUs that two queues are entitled to, of which the first had the cluster for a day."""
    sessions = Successive(Engine(POLICY.format(more=more)), Environment())
    queues = [builders.queue("a"), builders.queue("b")]
    running = [builders.pod_group("x", 8, "a", phase="Running"), builders.gang("x", 8, node="n0")]
    sessions.decide(builders.state(builders.node("n0"), *queues, *running).snapshot(), now=builders.NOON)
    waiting = [[builders.pod_group(q, 8, q), builders.gang(q, 8)] for q in "ab"]
    state = builders.state(builders.node("n0"), *queues, *(each for pair in waiting for each in pair))
    session = sessions.decide(state.snapshot(), now=builders.NOON + 24 * HOUR).session
    return {name: session.report.queue(name).amounts["fair_share"][0] / 1000 for name in "ab"}


def test_who_had_the_cluster_before_gets_less_now() -> None:
    assert shares_after_a_day("") == {"a": 4.0, "b": 4.0}
    assert shares_after_a_day(", usage.window: 48h") == {"a": 0.0, "b": 8.0}


def test_usage_may_be_measured_elsewhere() -> None:
    environment = Environment(queue_usage={"a": {"cpu": 0.5}, "gone": {"cpu": 1.0}})
    more = ", usage.source: prometheus, usage.window: 24h"
    queues = [builders.queue(q) for q in "ab"]
    waiting = [each for q in "ab" for each in (builders.pod_group(q, 8, q), builders.gang(q, 8))]
    state = builders.state(builders.node("n0"), *queues, *waiting)
    session = Engine(POLICY.format(more=more)).decide(state.snapshot(), now=0.0, environment=environment).session
    # a: 1/2 + (1/2 - 1/2), b: 1/2 + (1/2 - 0), of 8 cpus
    assert session.report.queue("a").amounts["fair_share"][0] == math.ceil(8_000 / 3)
    assert session.report.queue("b").amounts["usage"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("more", ["usage.halfLife: 1h", "usage.window: 1h, usage.reset: 1h", "kValue: 1.0"])
def test_prometheus_knows_windows_only(more: str) -> None:
    policy = "actions: allocate\ntiers: [{plugins: [{name: fairshare, arguments: {usage.source: prometheus, %s}}]}]"
    with pytest.raises(PolicyError, match=r"needs usage\.window"):
        Engine(policy % more)
