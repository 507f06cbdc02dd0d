"""Nothing stands idle because shares do not divide: the queue furthest below its share gets one job beyond it."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest

from stromboli.engine import Engine, SessionResult
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import decide, gang, node, pod, pod_group, policy, queue, state
from tests.expectations.test_histories import engine
from tests.expectations.world import Job, World
from tests.plugins.queues import bound, evicted

GPU = "nvidia.com/gpu"
HALF = {"cpu": "16", "memory": "64Gi", GPU: "4"}
EVENLY = {"deserved": {"cpu": "8", "memory": "4Gi"}}
SHARES = pytest.mark.parametrize("shares", ["proportion", "capacity"])


def run(*objs: Any, shares: str = "proportion", rules: Any = "strict") -> SessionResult:
    """One session of a policy that also takes back what others hold above their share."""
    tiers = ("priority gang", f"predicates {shares} nodeorder")
    text = policy(*tiers, actions="enqueue, allocate, reclaim, backfill")
    return decide(state(*objs), text, compatibility=rules)


def gpu_node(gpus: int = 8, name: str = "n") -> Any:
    return node(name, cpu="32", memory="128Gi", resources={GPU: str(gpus)})


def job(name: str, gpus: int, pods: int = 1, on: str = "", start: int = 0) -> list[Any]:
    """A job of the queue of this name that starts with so many pods, or with all; cpu and memory hardly matter."""
    of = [pod(f"{name}-{i}", name, memory="1Gi", node=on, resources={GPU: str(gpus)}) for i in range(pods)]
    return [pod_group(name, start or pods, queue=name, phase="Running" if on else "Pending"), *of]


@SHARES
def test_one_of_two_jobs_that_each_need_the_whole_node_runs(shares: str) -> None:
    """8 GPUs, two equal queues, 8 GPUs asked in each."""
    queues = [queue("a", deserved=HALF), queue("b", deserved=HALF)]
    assert bound(run(gpu_node(), *queues, *job("a", 8), *job("b", 8), shares=shares)) == {"a": 1}


def test_volcano_lets_both_wait() -> None:
    result = run(gpu_node(), queue("a"), queue("b"), *job("a", 8), *job("b", 8), rules="volcano")
    assert bound(result) == {}


@pytest.mark.parametrize("queues", [2, 3, 5])
@pytest.mark.parametrize(("pods", "gpus"), [(1, 8), (2, 4), (8, 1)])
def test_as_gangs_and_among_more_queues(queues: int, pods: int, gpus: int) -> None:
    names = "abcde"[:queues]
    result = run(gpu_node(), *map(queue, names), *(o for name in names for o in job(name, gpus, pods)))
    assert bound(result) == {"a": pods}


def test_the_queue_furthest_below_its_share_is_the_one() -> None:
    """16 GPUs: both could have 8. a holds 4 of them, b 6, and 6 are left, which is beyond either share."""
    running = [*job("a", 4, on="m"), *job("b", 6, on="m")]
    wanting = [pod_group("a2", queue="a"), pod("a2-0", "a2", resources={GPU: "6"})]
    wanting += [pod_group("b2", queue="b"), pod("b2-0", "b2", resources={GPU: "6"})]
    result = run(gpu_node(10, "m"), gpu_node(6, "n"), queue("a"), queue("b"), *running, *wanting)
    assert bound(result) == {"a2": 1}


def test_each_queue_goes_beyond_its_share_once() -> None:
    """20 GPUs for two queues: 6 each are within their shares of 10, and 8 are left for one more of 6."""
    queues, nodes = [queue("a"), queue("b")], [gpu_node(20)]
    assert bound(run(*nodes, *queues, *job("a", 6, 3, start=1), *job("b", 6, 3, start=1))) == {"a": 2, "b": 1}
    assert bound(run(gpu_node(9), *queues, *job("a", 1, 9, start=1), *job("b", 1, 9, start=1))) == {"a": 5, "b": 4}


def test_whose_share_divides_is_served_first() -> None:
    """b deserves 4 and asks for 4; a waits, as 4 GPUs are not 8."""
    assert bound(run(gpu_node(), queue("a"), queue("b"), *job("a", 8), *job("b", 4))) == {"b": 1}


@pytest.mark.parametrize(("c_waits_for", "lent"), [({}, {}), ({"kubernetes.io/hostname": "o"}, {"a": 2})])
def test_nodes_that_somebody_waits_for_within_his_share_are_not_lent(
    c_waits_for: dict[str, str], lent: dict[str, int]
) -> None:
    """Of 6 GPUs 4 are free on each of three nodes. a's two pods of 4 would be 8 of a's 6; c's of 5 is within c's 6."""
    busy = [pod_group("d", 0, queue="d", phase="Running")]
    busy += [pod(f"d-{name}", "d", memory="1Gi", node=name, resources={GPU: "2"}) for name in "mno"]
    waits = [pod_group("c", queue="c"), pod("c-0", "c", resources={GPU: "5"}, nodeSelector=c_waits_for)]
    nodes = [gpu_node(6, name) for name in "mno"]
    assert bound(run(*nodes, *map(queue, "acd"), *busy, *job("a", 4, 2), *waits)) == lent


@SHARES
def test_nobody_is_evicted_for_it_and_nothing_changes_afterwards(shares: str) -> None:
    """a's job runs on the whole node; b's is beyond b's share as well, so b has no claim."""
    only = {"deserved": {GPU: "4"}}
    result = run(gpu_node(), queue("a", **only), queue("b", **only), *job("a", 8, on="n"), *job("b", 8), shares=shares)
    assert (bound(result), evicted(result)) == ({}, {})


def test_who_stays_within_his_share_still_takes_it_back() -> None:
    result = run(gpu_node(), queue("a"), queue("b"), *job("a", 8, on="n"), *job("b", 4))
    assert evicted(result) == {"a": 1}


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize(
    ("sizes", "deserved", "goes"),
    [((3, 2, 2), 3, [2, 2]), ((2, 5), 5, [2]), ((1, 3, 3, 5), 11, [1]), ((6, 3, 6, 6), 18, [3])],
)
def test_what_a_queue_may_give_is_found_whatever_the_order_of_its_jobs(
    sizes: tuple[int, ...], deserved: int, goes: list[int], action: str
) -> None:
    """A larger pod would leave the queue less than it deserves, and after a middling one too little could go."""
    total = sum(sizes)
    dues = {"a": deserved, "b": total - deserved}
    queues = [queue(name, deserved={"cpu": str(due), "memory": "1Ti"}) for name, due in dues.items()]
    text = policy("priority gang", "predicates capacity", actions=f"enqueue, allocate, {action}")
    for order in set(permutations(sizes)):
        names = [f"r{at}" for at in range(len(order))]
        running = [pod_group(name, queue="a", phase="Running") for name in names]
        running += [pod(f"{name}-0", name, cpu=str(size), node="n") for name, size in zip(names, order, strict=True)]
        wants = [pod_group("w", queue="b"), pod("w-0", "w", cpu=str(total - deserved))]
        result = decide(state(node("n", cpu=str(total)), *queues, running, wants), text)
        assert [order[names.index(name)] for name in evicted(result)] == goes


@pytest.mark.parametrize(
    ("barred", "others"),
    [
        ({"capability": {GPU: "4"}}, {}),
        ({"state": "Closed"}, {}),
        ({"weight": 0}, {}),
        ({}, {"guarantee": {"resource": {GPU: "2"}}}),
    ],
)
def test_limits_hold(barred: dict[str, Any], others: dict[str, Any]) -> None:
    """Neither a capability nor a guarantee of another queue is ever lent."""
    b = pod_group("b", queue="b"), *gang("b", 1, memory="")
    result = run(gpu_node(), queue("a", **barred), queue("b", **others), *job("a", 8), *b)
    assert "a" not in bound(result)


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize("shares", ["proportion", "capacity", "capacity\n    enableHierarchy: true"])
@pytest.mark.parametrize(("pods", "gpus"), [(1, 8), (2, 4)])
@pytest.mark.one_in(5)
def test_who_deserves_more_cpu_does_not_take_back_gpus_beyond_his_share(
    action: str, shares: str, pods: int, gpus: int
) -> None:
    """a borrowed GPUs; b wants as many, and CPUs of which it holds none. The world has memory for GPUs."""
    text = DEFAULT_POLICY.replace("allocate, backfill", f"allocate, {action}, backfill")
    by = Engine(text.replace("name: proportion", f"name: {shares}"))
    world = World(by, {"n": (16, 8)}, {"a": EVENLY, "b": EVENLY})
    world.jobs = [Job("borrows", "a", pods, pods, cpu=1, memory=gpus)]
    assert run_on(world) == {"bound": pods}
    world.jobs.append(Job("waits", "b", pods, pods, cpu=8 // pods, memory=gpus, created=1))
    assert run_on(world) == {}
    world.jobs.pop(0)
    assert run_on(world) == {"bound": pods}


def run_on(world: World) -> dict[str, int]:
    """What came and went in some sessions."""
    total: Counter[str] = Counter()
    for _ in range(5):
        total += world.session()[0]
    return dict(total)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_queue_that_promised_a_pod_its_place_does_not_borrow(action: str) -> None:
    """b's gang fits nowhere and leaves a more than its share of 4.5, of which high needs 3: three pods go, once."""
    by = engine((action, "allocate", "backfill"), "proportion")
    world = World(by, {"n0": (5, 16), "n1": (4, 16)}, {"a": {}, "b": {}}, patience=3)
    low, high = Job("low", "a", 5, 1, cpu=1), Job("high", "a", 1, 1, cpu=3, priority="high", created=2)
    low.pods.update(zip(low.pods, ["n0"] * 4, strict=False))
    low.phase = "Running"
    world.jobs = [low, Job("large", "b", 2, 2, cpu=3, created=1), high]
    assert (run_on(world)["evicted"], high.running) == (3, 1)
