"""usage: measured load, and what is expected on top of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.framework.cluster.environment import Environment, NodeUsage
from stromboli.plugins.usage import Usage
from tests.builders import NOON, gang, node, pod, pod_group
from tests.plugins.sessions import bound, decide, policy


def loads(age: float = 0.0, **percent: tuple[float, float]) -> Environment:
    """The load of nodes, cpu and memory in percent, measured `age` seconds ago."""
    usage = {name: NodeUsage(cpu, memory, NOON - age) for name, (cpu, memory) in percent.items()}
    return Environment(node_usage=usage)


def place(environment: Environment, *objs: Any, pods: int = 1, arguments: dict[str, Any] | None = None, **switches):
    """The nodes of the pods of a job, in order."""
    placed = bound(
        *objs, pod_group("job"), gang("job", pods), by=policy("usage", arguments, **switches), environment=environment
    )
    return [placed[f"job-{i}"] for i in range(len(placed))]


NODES = [node("n1"), node("n2")]


def test_the_idler_node_is_preferred() -> None:
    assert place(loads(n1=(50, 50), n2=(40, 50)), *NODES) == ["n2"]
    assert place(loads(n1=(50, 50), n2=(40, 70)), *NODES) == ["n1"]
    assert place(loads(n1=(50, 50), n2=(40, 70)), *NODES, arguments={"memory.weight": 0}) == ["n2"]


@pytest.mark.parametrize(("load", "expected"), [(80.0, ["n1"]), (80.5, [])])
def test_above_the_threshold_a_node_takes_nobody(load: float, expected: list[str]) -> None:
    assert place(loads(n1=(load, 0)), NODES[0]) == expected
    assert place(loads(n1=(0, load)), NODES[0]) == expected
    assert place(loads(n1=(load, 0)), NODES[0], enablePredicate=False) == ["n1"]


def test_an_old_measurement_is_none() -> None:
    assert place(loads(age=300, n1=(90, 0)), NODES[0]) == []
    assert place(loads(age=301, n1=(90, 0)), NODES[0]) == ["n1"]
    assert place(loads(n2=(70, 70)), *NODES) == ["n2"]


def test_what_was_just_placed_counts() -> None:
    """A pod of 1 of 8 cores is expected to add 0.7/8, more than the difference in load."""
    assert place(loads(n1=(10, 10), n2=(12, 10)), *NODES, pods=4) == ["n1", "n2", "n1", "n2"]


def test_a_gang_that_is_taken_back_leaves_no_estimate() -> None:
    session = decide(
        node("n1", cpu="2"),
        pod_group("first", min_member=3, created=1),
        gang("first", 3),
        pod_group("second", created=2),
        gang("second", 1),
        by=policy("usage"),
        environment=loads(n1=(10, 10)),
    ).session
    assert list(session.bound) == ["default/second-0"]
    usage = session.plugins[-1]
    assert usage._expected[0].tolist() == pytest.approx([700.0])


@pytest.mark.parametrize(("started", "expected"), [("2023-11-14T22:13:00Z", "n2"), ("2023-11-14T22:12:00Z", "n1")])
def test_young_pods_are_not_measured_yet(started: str, expected: str) -> None:
    running = pod("run-0", node="n1", cpu="4")
    running = type(running)(running.metadata, running.spec, type(running.status)(phase="Running", start_time=started))
    assert place(loads(n1=(10, 10), n2=(20, 20)), *NODES, running) == [expected]


def test_busy_nodes_get_higher_estimates() -> None:
    """From the threshold on, the first pod counts 1.2 times as much, so that the second goes elsewhere."""
    arguments = {"estimator": {"risk_threshold": 0.3, "risk_factor": 2.0}, "memory.weight": 0}
    environment = loads(n1=(40, 0), n2=(50, 0))
    assert place(environment, *NODES, pods=2, arguments=arguments) == ["n1", "n2"]
    assert place(environment, *NODES, pods=2, arguments={"memory.weight": 0}) == ["n1", "n1"]


def test_numbers_out_of_bounds_are_the_default() -> None:
    arguments = {
        "usage.weight": -1,
        "thresholds": {"cpu": 80, "mem": 200},
        "estimator": {"risk_factor": 0.5, "be_mem": 100, "be_cpu": "1"},
    }
    read = decide(by=policy("usage", arguments)).session.plugins[-1].arguments
    assert (read.weight, read.thresholds.mem, read.estimator.risk_factor) == (5, 80, 1.2)
    assert (read.estimator.be_cpu, read.estimator.be_mem) == (1000.0, 100.0 * 2**20)


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["", "1", "3"])), max_size=12),
    st.integers(0, 5),
)
def test_estimates_are_those_of_adding_one_pod_after_the_other(placed: list[tuple[str, str]], coming: int) -> None:
    running = [pod(f"run-{i}", node=where, cpu=cpu, memory="") for i, (where, cpu) in enumerate(placed)]
    names = ("n1", "n2", "n3")
    nodes = [node(name, cpu="8", memory="1Gi") for name in names]
    new = pod_group("job"), *gang("job", coming, cpu="1", memory="")
    environment = loads(n1=(10, 0), n2=(55, 0), n3=(70, 90))
    result = decide(*nodes, *running, *new, by=policy("usage"), environment=environment)
    usage = result.session.plugins[-1]
    assert isinstance(usage, Usage)
    expected, loaded = dict.fromkeys(names, np.zeros(2)), {"n1": (10, 0), "n2": (55, 0), "n3": (70, 90)}
    capacity = np.array([8000.0, 2.0**30])
    for where, cpu in placed + [(where, "1") for where in result.session.bound.values()]:
        parts = np.clip((np.array(loaded[where]) / 100 * capacity + expected[where]) / capacity, 0, 1)
        risk = 1.2 if (parts[0] + parts[1]) / 2 >= 0.6 else 1.0
        alone = np.array([250.0, 200.0 * 2**20]) if not cpu else None
        request = np.array([1000.0 * int(cpu or 0), 0.0])
        more = alone * risk if alone is not None else np.minimum(request * 0.7 * risk, request)
        expected[where] = expected[where] + more
    assert usage._expected.T.tolist() == [expected[name].tolist() for name in names]
