"""Workloads over time: what arrives runs and ends, and what is evicted or lost comes back."""

from __future__ import annotations

import gc
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli import framework
from stromboli.engine import Engine
from stromboli.framework.cluster.view import View
from stromboli.framework.node_selection.kernel import Kernel
from stromboli.framework.plugin.base import Plugin
from stromboli.framework.runtime.points import Points
from stromboli.framework.session.session import Session
from stromboli.lab import timeline
from stromboli.lab.cluster import Cluster, equal_nodes
from stromboli.lab.generator import Model, generate
from stromboli.lab.processors import Processors
from stromboli.lab.results import Results
from stromboli.lab.simulation import Settings, simulate
from stromboli.lab.timeline import NodeChange
from stromboli.lab.workload import Gang, Job, Task, Workload, in_order
from stromboli.policy.document import DEFAULT_POLICY
from tests.fuzz import tried

FIFO = """
actions: "allocate"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
"""
PREEMPTING = FIFO.replace('"allocate"', '"allocate, preempt"')
EACH_SECOND = Settings(period=1.0)


def pods(count: int, cpu: int = 1) -> Gang:
    return Gang.of(Task.requesting(count, {"cpu": cpu}))


def nodes(count: int, cpu: int = 4) -> Cluster:
    return equal_nodes(count, {"cpu": str(cpu)})


def run(jobs: list[Job], cluster: Cluster, policy: str = FIFO, settings: Settings = EACH_SECOND) -> Results:
    return simulate(in_order(jobs), cluster, Engine(policy), settings)


def test_a_job_starts_when_there_is_room_and_ends_its_run_time_later() -> None:
    done = run([Job(0, 100, pods(4)), Job(10, 50, pods(2)), Job(20, 30, pods(2))], nodes(1))
    assert done.jobs["started"].tolist() == [0, 100, 100]
    assert done.jobs["ended"].tolist() == [100, 150, 130]
    assert done.jobs["waiting"].tolist() == [0, 90, 80]
    assert done.jobs["turnaround"].tolist() == [100, 140, 110]
    assert done.jobs["slowdown"].tolist() == [1, 140 / 50, 110 / 30]


def test_short_jobs_count_as_ten_seconds_in_slowdowns() -> None:
    done = run([Job(0, 99, pods(4)), Job(0, 1, pods(4))], nodes(1))
    assert done.jobs["slowdown"].tolist() == [1, 10]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    done = run([Job(0, 100, pods(2)), Job(1, 10, pods(3))], nodes(1))
    assert done.jobs["started"].tolist() == [0, 100]


def test_what_no_node_can_take_never_ends_and_the_simulation_does() -> None:
    done = run([Job(0, 10, pods(1, cpu=8)), Job(5, 10, pods(1))], nodes(1))
    assert math.isnan(done.jobs["started"][0])
    assert done.total["ended"] == 1


def test_what_waited_through_many_sessions_starts_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past usage changes with time alone, so sessions are repeated while nothing happens."""
    monkeypatch.setattr(timeline, "_PATIENCE", 30)
    policy = f"{FIFO}  - name: fairshare\n    arguments: {{usage.halfLife: 24h}}\n"
    done = run([Job(0, 50, pods(1)), Job(1, 10, pods(4))], nodes(1), policy)
    assert done.jobs["started"].tolist() == [0, 50]


def test_usage_and_shares_are_over_time() -> None:
    jobs = [Job(0, 100, pods(4), queue="a"), Job(0, 100, pods(2), queue="b")]
    done = run(jobs, nodes(1))
    # The second runs after the first, on half of the node.
    assert done.total["utilization"] == pytest.approx(0.75)
    assert dict(zip(done.queues["queue"], done.queues["share"].tolist(), strict=True)) == {"a": 0.5, "b": 0.25}
    sampled = run(jobs, nodes(1), settings=Settings(period=1.0, every=50.0)).samples
    assert sampled["time"].tolist() == [0, 50, 100, 150]
    assert sampled["held by a"].tolist() == [4000, 4000, 0, 0]
    assert sampled["held by b"].tolist() == [0, 0, 2000, 2000]
    assert sampled["waiting_jobs"].tolist() == [1, 1, 0, 0]


def test_fragmentation_is_what_lies_idle_where_pods_do_not_fit() -> None:
    jobs = [Job(0, 100, pods(2, cpu=3)), Job(10, 10, pods(1, cpu=4))]
    done = run(jobs, nodes(2), settings=Settings(period=1.0, every=50.0))
    # One cpu is idle on each node, and no pod of the workload fits there; at last a whole node is.
    assert done.samples["fragmentation"].tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_sessions_are_a_period_apart() -> None:
    done = run([Job(0, 5, pods(4)), Job(1, 5, pods(4)), Job(2, 5, pods(4))], nodes(1), settings=Settings(period=60.0))
    assert done.jobs["started"].tolist() == [0, 60, 120]


def test_an_evicted_gang_loses_its_work_and_comes_back() -> None:
    low = Job(0, 100, pods(4), priority=1, name="low")
    high = Job(40, 10, pods(4), priority=9, name="high")
    done = run([low, high], nodes(1), PREEMPTING)
    (low_row, high_row) = done.jobs["name"].index("low"), done.jobs["name"].index("high")
    assert done.jobs["evictions"][low_row] == 4
    assert done.jobs["lost"][low_row] == 40
    assert done.jobs["ended"][high_row] < 60
    # It starts again from nothing, after the other.
    assert done.jobs["ended"][low_row] - done.jobs["started"][low_row] == 100
    assert done.jobs["started"][low_row] >= done.jobs["ended"][high_row]
    assert done.total["lost"] == 40 * 4000


def test_a_pod_that_its_gang_can_spare_comes_back_alone() -> None:
    elastic = Job(0, 100, Gang((Task.requesting(4, {"cpu": 1}),), 2), priority=1, name="elastic")
    done = run([elastic, Job(40, 10, pods(2), priority=9, name="high")], nodes(1), PREEMPTING)
    row = done.jobs["name"].index("elastic")
    assert done.jobs["evictions"][row] == 2
    assert done.jobs["lost"][row] == 0
    assert done.jobs["ended"][row] == 100


def test_what_ran_on_a_node_that_goes_comes_back_when_there_is_room() -> None:
    first = nodes(1)
    node = first.objects[0][1]
    changes = [NodeChange(30, node, there=False), NodeChange(80, node, there=True)]
    done = run([Job(0, 50, pods(4))], replace(first, changes=changes))
    assert done.jobs["started"].tolist() == [80]
    assert done.jobs["ended"].tolist() == [130]
    assert done.jobs["lost"].tolist() == [30]
    # While the node is away there is nothing to use.
    assert done.total["utilization"] == pytest.approx((30 + 50) / (30 + 50))


SHAPE = Processors(per_pod=4, memory=1 << 20)
ROOMY = {"cpu": "4", "memory": "1Gi"}
SMALL = Model(jobs=60, processors=16, load=1.2, users=3, shape=SHAPE)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [FIFO, PREEMPTING, Engine().text], ids=["fifo", "preempting", "default"])
def test_the_same_seed_gives_the_same_results(policy: str) -> None:
    workload = generate(SMALL, 5)
    workload = replace(workload, priority=(workload.user % 2).astype(np.int32))
    one, other = (simulate(workload, equal_nodes(4, ROOMY), Engine(policy), Settings(period=30.0)) for _ in range(2))
    for column in ("started", "ended", "evictions", "lost"):
        assert np.array_equal(one.jobs[column], other.jobs[column], equal_nan=True)
    assert one.total["ended"] == len(workload)


@pytest.mark.exhaustive
@tried(6)
@given(st.integers(0, 10_000), st.sampled_from([FIFO, PREEMPTING, Engine().text]), st.integers(2, 4))
def test_every_job_ends_once_and_nothing_is_used_that_is_not_there(seed: int, policy: str, count: int) -> None:
    workload: Workload = generate(replace(SMALL, processors=4 * count, jobs=40), seed)
    workload = replace(workload, priority=(workload.user % 3).astype(np.int32))
    gone = equal_nodes(count, ROOMY)
    node, half = gone.objects[0][1], float(workload.arrival[-1] / 2)
    changes = [NodeChange(half, node, there=False), NodeChange(half + 5_000, node, there=True)]
    done = simulate(workload, replace(gone, changes=changes), Engine(policy), Settings(period=30.0, every=1800.0))
    jobs = done.jobs
    assert done.total["ended"] == len(workload)
    assert np.allclose(jobs["ended"] - jobs["started"], workload.run_time)
    assert (jobs["started"] >= workload.arrival).all()
    assert (done.samples["held"] <= done.samples["capacity"]).all()
    # What was used is what jobs ask for, and what was lost and done again.
    did = float((workload.requests("cpu") * workload.run_time).sum()) + done.total["lost"]
    capacity = 4000 * (count * done.total["makespan"] - min(5_000, done.total["makespan"] - half))
    assert done.total["utilization"] * capacity == pytest.approx(did)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", [DEFAULT_POLICY, PREEMPTING, "reservation".join(FIFO.rsplit("predicates", 1))])
def test_sessions_are_freed_without_a_collection_of_garbage(policy: str) -> None:
    jobs = [Job(10 * number, 50, pods(1 + number % 3)) for number in range(40)]
    # What was freed before the collection is not among the garbage that it finds.
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        run(jobs, nodes(1), policy)
        gc.collect()
        found = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not {each for each in found if issubclass(each, (Session, View, framework.Job, Plugin, Kernel, Points))}


def test_cards_that_no_node_has_are_not_what_counts() -> None:
    cards = Gang.of(Task.requesting(1, {"cpu": 1, "nvidia.com/gpu": 1}))
    done = run([Job(0, 100, pods(4)), Job(0, 10, cards)], nodes(1))
    assert done.resource == "cpu"
    assert done.total["utilization"] == 1.0
