"""fairshare through sessions: who gets what, who gives it back, and why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stromboli.api import crds
from stromboli.api.errors import PolicyError
from stromboli.api.reasons import Reason
from stromboli.engine import Engine, SessionResult
from stromboli.framework.diagnosis.explain import pending_reasons
from stromboli.metrics.sessions import SessionCollector
from stromboli.plugins.fairshare.spec import ANNOTATION
from stromboli.simulation.outcome import explanation
from tests import builders
from tests.builders import gang, node, pod, pod_group, queue
from tests.expectations.world import Job, World

GPU = "nvidia.com/gpu"
POLICY = builders.policy("priority gang conformance", "predicates fairshare", actions="allocate, preempt, reclaim")
CLASSES = [
    builders.decode("PriorityClass", {"metadata": {"name": name}, "value": value}, name)
    for name, value in (("low", 50), ("high", 75), ("build", 100))
]


def shared(name: str, shares: dict[str, Any] | str, **spec: Any) -> crds.Queue:
    """A queue with the annotation."""
    out = queue(name, **spec)
    out.metadata.annotations[ANNOTATION] = shares if isinstance(shares, str) else json.dumps(shares)
    return out


def job(name: str, count: int = 1, minimum: int | None = None, on: str = "", **more: Any) -> list[Any]:
    """A PodGroup and its pods of 1 cpu, which run where `on` says so."""
    about = {key: more.pop(key) for key in ("queue", "priorityClassName", "created") if key in more}
    group = pod_group(name, count if minimum is None else minimum, phase="Running" if on else "Inqueue", **about)
    return [group, *gang(name, count, node=on, memory="", **more)]


def decide(*objs: Any, policy: str = POLICY) -> SessionResult:
    flat = [each for obj in objs for each in (obj if isinstance(obj, list) else [obj])]
    return builders.decide(builders.state(*CLASSES, *flat), policy)


def bound(result: SessionResult) -> set[str]:
    return {key.partition("/")[2] for key in result.session.bound}


def evicted(result: SessionResult) -> set[str]:
    return {key.partition("/")[2] for key in result.session.evicted}


def why(result: SessionResult, name: str) -> Reason:
    return pending_reasons(result.session)[f"default/{name}"]


def cpus(result: SessionResult, amount: str = "fair_share") -> dict[str, float]:
    return {
        name: g.amounts[amount][0] / 1000 for name, g in result.session.report.gauges.items() if amount in g.amounts
    }


# -- policy and queues -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["proportion", "capacity"])
def test_only_one_plugin_says_what_queues_get(other: str) -> None:
    with pytest.raises(PolicyError, match=f"'fairshare' and '{other}' both divide the cluster among queues"):
        Engine(builders.policy("fairshare", other))


def test_quotas_come_first_and_weights_divide_the_rest() -> None:
    queues = [queue("a", deserved={"cpu": "2"}), queue("b", weight=3), queue("c", capability={"cpu": "1"})]
    jobs = [job(name, 12, 1, queue=name) for name in "abc"]
    assert cpus(decide(node("n0", cpu="12"), *queues, *jobs)) == {"a": 4.25, "b": 6.75, "c": 1.0}


def test_the_annotation_speaks_of_single_resources() -> None:
    wide = {"cpu": {"quota": "unlimited"}, GPU: {"weight": 3, "limit": "6"}}
    cards = {"resources": {GPU: "1"}}
    result = decide(
        node("n0", cpu="64", resources={GPU: "8"}),
        shared("a", wide, capability={GPU: "2"}),
        queue("b"),
        *(job(name, 8, 1, queue=name, **cards) for name in "ab"),
    )
    column = result.session.view.dimensions.index(GPU)
    shares = {name: result.session.report.queue(name).amounts["fair_share"] for name in "ab"}
    assert {name: vector[column] for name, vector in shares.items()} == {"a": 6_000, "b": 2_000}
    assert shares["a"][0] == 8_000


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("{", "invalid JSON"),
        ({"cpu": {"qouta": 1}}, "extra inputs are not permitted"),
        ({"cpu": {"quota": "many"}}, "cpu.quota"),
        ({"cpu": {"weight": -1}}, "cpu.weight"),
    ],
)
def test_an_annotation_that_cannot_be_read_sets_its_queue_aside(annotation: Any, problem: str) -> None:
    result = decide(node("n0"), shared("a", annotation), queue("b"), job("x", queue="a"), job("y", queue="b"))
    assert bound(result) == {"y-0"}
    assert why(result, "x-0").reason == "QueueMisconfigured"
    assert problem in why(result, "x-0").message


def test_a_parent_divides_its_share_among_its_children() -> None:
    tree = [queue("top", deserved={"cpu": "6"}), queue("other", weight=1)]
    leaves = [queue("a", parent="top", weight=1), queue("b", parent="top", weight=2)]
    jobs = [job(name, 12, 1, queue=name) for name in ("a", "b", "other")]
    result = decide(node("n0", cpu="12"), *tree, *leaves, *jobs)
    assert cpus(result) == {"top": 9.0, "other": 3.0, "a": 3.0, "b": 6.0}


def test_queues_that_lead_nowhere_are_set_aside_and_the_others_go_on() -> None:
    queues = [queue("lost", parent="gone"), queue("c1", parent="c2"), queue("c2", parent="c1"), queue("up")]
    queues += [queue("leaf", parent="up")]
    jobs = [job(name, queue=name) for name in ("lost", "c1", "up", "leaf")]
    result = decide(node("n0"), *queues, *jobs)
    assert bound(result) == {"leaf-0"}
    reasons = {name: why(result, f"{name}-0").reason for name in ("lost", "c1", "up")}
    assert reasons == {"lost": "QueueMisconfigured", "c1": "QueueMisconfigured", "up": "QueueNotALeaf"}


def test_what_others_hold_and_what_gates_hold_back_is_not_divided() -> None:
    foreign = pod("foreign", node="n0", cpu="2", scheduler="other")
    gated = job("x", 4, 1, queue="a", schedulingGates=[{"name": "wait"}])
    result = decide(node("n0"), foreign, queue("a"), queue("b"), gated, job("y", 8, 1, queue="b"))
    assert cpus(result) == {"a": 0.0, "b": 6.0}


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_fair_share_is_no_limit() -> None:
    elsewhere = job("y", 1, queue="b", cpu="8", nodeSelector={"zone": "elsewhere"})
    result = decide(node("n0"), queue("a"), queue("b"), job("x", 8, 1, queue="a"), elsewhere)
    assert cpus(result) == {"a": 4.0, "b": 4.0}
    assert len(bound(result)) == 8


def test_no_queue_goes_above_the_limit_of_an_ancestor() -> None:
    queues = [queue("top", capability={"cpu": "3"}), queue("a", parent="top"), queue("b", parent="top")]
    result = decide(node("n0"), *queues, job("x", 4, 1, queue="a"), job("y", 4, 1, queue="b"))
    assert len(bound(result)) == 3
    refused = why(result, next(f"x-{i}" for i in range(4) if f"x-{i}" not in bound(result)))
    assert (refused.reason, refused.message) == ("QueueCapabilityExceeded", "queue top has no capacity left in cpu")
    assert refused.detail == "cpu: holds 3, may have 3, 1 more requested"


def test_limits_hold_for_resources_that_are_not_divided() -> None:
    licence = {"resources": {"example.com/licence": "1"}}
    limited = queue("a", capability={"example.com/licence": "2"})
    result = decide(node("n0", resources={"example.com/licence": "8"}), limited, job("x", 4, 1, queue="a", **licence))
    assert len(bound(result)) == 2


def test_a_gang_that_would_go_above_the_limit_gets_nothing() -> None:
    policy = builders.policy("priority gang", "predicates fairshare", actions="preempt")
    limited = queue("a", capability={"cpu": "3"})
    result = decide(node("n0"), limited, job("x", 4, queue="a"), policy=policy)
    assert not result.session.bound
    assert not (result.session.view.pods.state == 2).any()


GPUS = {GPU: {"limit": 2}}


@pytest.mark.parametrize("limited", [[queue("a", capability={GPU: "2"})], [shared("a", GPUS)], [shared("t", GPUS)]])
@pytest.mark.parametrize(("gpus", "fits"), [(1, True), (2, False)])
def test_what_is_more_than_the_limit_never_fits(limited: list[crds.Queue], gpus: int, fits: bool) -> None:
    """A gang of two, whether the limit is the queue's own or that of its parent."""
    queues = [*limited, *([queue("a", parent="t")] if limited[0].metadata.name == "t" else [])]
    result = decide(node("n0", resources={GPU: "8"}), queues, job("x", 2, queue="a", resources={GPU: str(gpus)}))
    assert bool(bound(result)) == fits
    assert fits or why(result, "x-0").told.startswith("NeverFits: PodGroup default/x starts with more than queue a")


def test_a_limit_that_cannot_be_read_is_said_first() -> None:
    limited = shared("a", {GPU: {"limit": -1}}, capability={"cpu": "1"})
    assert why(decide(node("n0"), limited, job("x", 2, queue="a")), "x-0").reason == "QueueMisconfigured"


@pytest.mark.parametrize(("label", "runs"), [(None, 2), ("true", 4), ("false", 2)])
def test_jobs_that_are_never_evicted_stay_within_the_quota(label: str | None, runs: int) -> None:
    group, *pods = job("x", 4, 1, queue="a", priorityClassName="build")
    if label:
        group.metadata.annotations["volcano.sh/preemptable"] = label
    result = decide(node("n0"), queue("a", deserved={"cpu": "2"}), [group, *pods])
    assert len(bound(result)) == runs
    if runs == 2:
        reasons = pending_reasons(result.session).values()
        assert {reason.reason for reason in reasons} == {"QueueQuotaExceeded"}


TREE = [
    queue("top", deserved={"cpu": "2", "memory": "64Gi"}),
    queue("a", parent="top", deserved={"cpu": "4", "memory": "64Gi"}),
]
FLAT = [queue("a", deserved={"cpu": "2", "memory": "64Gi"})]


@pytest.mark.parametrize(
    ("queues", "above"),
    [
        (FLAT, ""),
        (TREE, " and of those above it"),
        ([shared("a", {"cpu": {"quota": 2}}, deserved={"memory": "64Gi"})], ""),
    ],
    ids=["flat", "the quota of an ancestor", "annotation"],
)
@pytest.mark.parametrize("spec", [{}, {"cpu": "3", "count": 1}], ids=["a gang", "a pod"])
def test_what_is_never_evicted_and_larger_than_the_quota_never_fits(
    queues: list[crds.Queue], above: str, spec: dict[str, Any]
) -> None:
    """It is not tried, and lays claim to no share; a job that may be evicted may also go above the quota."""
    size = {"count": 3, "queue": "a", **spec}
    result = decide(node("n0"), *queues, job("x", **size, priorityClassName="build"), job("y", queue="a"))
    found = why(result, "x-0")
    assert (found.reason, found.actionable, found.detail) == ("NeverFits", "user", "cpu: asks for 3, it may have 2")
    words = f"PodGroup default/x is never evicted, and starts with more than the quota of queue a{above} in cpu"
    assert found.message == words
    assert (bound(result), cpus(result)["a"]) == ({"y-0"}, 1.0)
    assert len(bound(decide(node("n0"), *queues, job("x", **size)))) == size["count"]


def test_a_job_that_asks_for_more_than_its_limit_is_not_admitted() -> None:
    policy = builders.policy("priority gang", "predicates fairshare", actions="enqueue, allocate")
    group = pod_group("x", 1, "a", phase="Pending", minResources={"cpu": "5"})
    result = decide(node("n0"), queue("a", capability={"cpu": "4"}), [group, pod("x-0", "x")], policy=policy)
    assert why(result, "x-0").reason == "NeverFits"
    assert not result.session.bound


# -- victims -----------------------------------------------------------------------------------------------------------


def test_a_queue_takes_back_its_share_and_no_more() -> None:
    running = [job(f"x{i}", queue="a", on="n0", created=i) for i in range(8)]
    wanting = [job(f"y{i}", queue="b", created=10 + i) for i in range(8)]
    result = decide(node("n0"), queue("a"), queue("b"), *running, *wanting)
    assert evicted(result) == {"x7-0", "x6-0", "x5-0", "x4-0"}
    assert why(result, "y7-0").reason == "Unschedulable"


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
@pytest.mark.parametrize(("runs", "minimum"), [(0, 1), (1, 1), (2, 1), (2, 2)])
def test_a_job_above_its_minimum_takes_its_queues_share_and_no_more(action: str, runs: int, minimum: int) -> None:
    """The fair share of b is half of the node."""
    policy = builders.policy("priority gang conformance", "predicates fairshare", actions=f"allocate, {action}")
    held = [job(f"x{i}", queue="a", on="n0", created=i) for i in range(8 - runs)]
    grows, *pods = job("y", 8, minimum, queue="b", created=10)
    if runs:
        grows.status.phase = "Running"
    pods[:runs] = gang("y", runs, node="n0", memory="")
    result = decide(node("n0"), queue("a"), queue("b"), *held, [grows, *pods], policy=policy)
    assert len(evicted(result)) == 4 - runs
    if action == "reclaim":
        assert evicted(result) == {f"x{i}-0" for i in range(4, 8 - runs)}


def test_what_a_queue_gave_back_stays_given_back() -> None:
    """Elastic jobs of two queues come to their fair shares, and no pod is evicted after that."""
    jobs = [Job("uses", "a", 8, 1, cpu=1), Job("wants", "b", 8, 1, cpu=1)]
    world = World(Engine(POLICY), {"n": (8, 64)}, {"a": {}, "b": {"weight": 3}}, jobs)
    jobs[0].pods = dict.fromkeys(jobs[0].pods, "n")
    jobs[0].phase = "Running"
    gone = [world.session()[0]["evicted"] for _ in range(8)]
    assert (sum(gone), sum(gone[2:])) == (6, 0)
    assert {each.name: each.running for each in jobs} == {"uses": 2, "wants": 6}


def test_a_job_that_is_never_evicted_takes_nothing_beyond_its_quota() -> None:
    """Not even when it asks for nothing of what its queue has too much of."""
    shares = {"cpu": {"quota": 1}, "memory": {"quota": "unlimited"}, GPU: {"quota": 8}}
    over = job("over", 2, queue="a", on="n0", priorityClassName="build")
    over[0].metadata.annotations["volcano.sh/preemptable"] = "false"
    wanting = pod_group("y", 1, "a", priorityClassName="build"), pod("y-0", "y", cpu="", resources={GPU: "1"})
    held = job("x", 4, 1, queue="b", on="n0", resources={GPU: "1"})
    node_of_cards = node("n0", cpu="64", resources={GPU: "4"})
    assert evicted(decide(node_of_cards, shared("a", shares), queue("b"), over, *wanting, held)) == set()
    shares["cpu"]["quota"] = 2
    assert len(evicted(decide(node_of_cards, shared("a", shares), queue("b"), over, *wanting, held))) == 1


def test_a_gang_is_taken_whole_even_if_its_queue_then_has_less_than_its_share() -> None:
    gangs = [job("x", 5, queue="a", on="n0"), job("z", 3, queue="a", on="n0", created=1, priorityClassName="high")]
    result = decide(node("n0"), queue("a"), queue("b"), *gangs, job("y", 4, queue="b", created=2))
    assert evicted(result) == {f"x-{i}" for i in range(5)}


@pytest.mark.parametrize("action", ["reclaim", "preempt"])
def test_jobs_that_are_not_preemptible_are_no_victims(action: str) -> None:
    theirs = "b" if action == "reclaim" else "a"
    running = job("x", 8, 1, queue="a", on="n0", priorityClassName="low")
    running[0].metadata.annotations["volcano.sh/preemptable"] = "false"
    wanting = job("y", queue=theirs, priorityClassName="high")
    assert evicted(decide(node("n0"), queue("a"), queue("b"), running, wanting)) == set()
    running[0].metadata.annotations["volcano.sh/preemptable"] = "true"
    assert len(evicted(decide(node("n0"), queue("a"), queue("b"), running, wanting))) == 1


def test_nothing_is_taken_that_the_order_of_queues_would_give_back() -> None:
    """b is first in line whenever it is below its share: what a took, it would get back."""
    queues = [queue("a", deserved={"cpu": "1"}), queue("b", deserved={"cpu": "1"}, priority=1, weight=0)]
    queues += [queue("c", deserved={"cpu": "1"})]
    running = [job("a0", queue="a", on="n0"), *(job(f"b{i}", queue="b", on="n0", created=i) for i in range(2))]
    result = decide(node("n0", cpu="4"), *queues, *running, job("c0", queue="c", on="n0"), job("a1", queue="a"))
    assert cpus(result)["a"] == 2.0
    assert evicted(result) == set()


def test_who_is_below_the_fair_share_is_served_first() -> None:
    held = [job("x", 3, 1, queue="a", on="n0")]
    result = decide(
        node("n0", cpu="4"),
        queue("a", created=0),
        queue("b", created=1),
        *held,
        job("more", queue="a", created=1),
        job("y", queue="b", created=2),
    )
    assert bound(result) == {"y-0"}


# -- what is told ------------------------------------------------------------------------------------------------------


def test_every_number_of_a_queue_is_told() -> None:
    queues = [queue("a", deserved={"cpu": "2"}), queue("b")]
    held = job("x", 7, 1, queue="a", on="n0"), job("y", 1, queue="b", on="n0")
    wanted = job("more", 1, queue="a"), job("grow", 7, 1, queue="b")
    nobody_goes = builders.policy("priority gang", "predicates fairshare", actions="allocate")
    result = decide(node("n0"), *queues, *held, *wanted, policy=nobody_goes)
    told = explanation(result.session)["queues"]["a"]
    assert {key: told[key]["cpu"] for key in ("deserved", "request", "fair_share", "allocated", "saturation")} == {
        "deserved": 2_000,
        "request": 8_000,
        "fair_share": 5_000,
        "allocated": 7_000,
        "saturation": 1.4,
    }
    assert [(step["step"], step["share"]["cpu"]) for step in told["steps"]] == [("quota", 2_000), ("round 1", 5_000)]
    series = {
        (family.name, sample.labels.get("queue")): sample.value
        for family in SessionCollector(lambda: result.session).collect()
        for sample in family.samples
        if sample.labels.get("resource") == "cpu"
    }
    assert series["stromboli_queue_fair_share", "a"] == 5_000
    assert series["stromboli_queue_saturation", "a"] == 1.4
    assert series["stromboli_queue_cluster_part", "b"] == 1 / 8
    assert series["stromboli_queue_usage", "b"] == 0.0
