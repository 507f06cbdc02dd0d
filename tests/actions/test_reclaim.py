"""reclaim: queues take back what others hold above their share, under Volcano's rules and under strict ones."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from stromboli.api.decisions import Evict, Nominate
from stromboli.engine import SessionResult
from tests import builders
from tests.actions.evictions import BOTH, evicted, nominated, running, starving
from tests.builders import node, pod, pod_group, queue

ONE_TIER = builders.policy("gang conformance proportion", actions="reclaim")
TWO_TIERS = builders.policy("gang conformance", "proportion", actions="reclaim")


def reclaim(*objs: Any, policy: str = ONE_TIER, compatibility: Any = "strict") -> SessionResult:
    return builders.decide(builders.state(*objs), policy, compatibility=compatibility)


def two_queues(**rich: Any) -> list[Any]:
    return [queue("rich", **rich), queue("poor")]


@BOTH
def test_a_queue_takes_back_its_share(compatibility: Any) -> None:
    result = reclaim(
        node("n", cpu="4"), *two_queues(), *running("uses", *["n"] * 4), *starving(3), compatibility=compatibility
    )
    assert evicted(result) == []

    result = reclaim(
        node("n", cpu="4"), *two_queues(), *running("uses", *["n"] * 4), *starving(2), compatibility=compatibility
    )
    assert evicted(result) == ["uses-2", "uses-3"]
    decisions = [d for d in result.decisions if isinstance(d, Evict)]
    assert {(d.action, d.beneficiary) for d in decisions} == {("reclaim", "default/wants")}
    assert {d.name: d.node for d in result.decisions if isinstance(d, Nominate)} == {"wants-0": "n", "wants-1": "n"}


@BOTH
@pytest.mark.parametrize("why", ["the queue", "the pod"])
def test_what_is_not_reclaimable_stays(compatibility: Any, why: str) -> None:
    queues = two_queues(reclaimable=False) if why == "the queue" else two_queues()
    more = {"annotations": {"volcano.sh/preemptable": "false"}} if why == "the pod" else {}
    uses = running("uses", *["n"] * 4, **more)
    assert evicted(reclaim(node("n", cpu="4"), *queues, *uses, *starving(), compatibility=compatibility)) == []


@BOTH
def test_a_pod_that_may_not_preempt_does_not(compatibility: Any) -> None:
    scene = [node("n", cpu="4"), *two_queues(), *running("uses", *["n"] * 4), *starving(preemptionPolicy="Never")]
    assert evicted(reclaim(*scene, compatibility=compatibility)) == []


@BOTH
def test_a_queue_that_has_its_share_takes_nothing(compatibility: Any) -> None:
    scene = [
        node("n", cpu="4"), *two_queues(),
        *running("uses", "n", "n"), *running("own", "n", "n", of="poor"), *starving(),
    ]  # fmt: skip
    assert evicted(reclaim(*scene, compatibility=compatibility)) == []


@BOTH
def test_capacity_is_taken_back_down_to_what_is_deserved(compatibility: Any) -> None:
    policy = builders.policy("gang conformance capacity", actions="reclaim")
    queues = [queue("rich", deserved={"cpu": "3"}), queue("poor", deserved={"cpu": "2"})]
    scene = [node("n", cpu="4", memory="4Gi"), *queues, *running("uses", *["n"] * 4)]
    assert evicted(reclaim(*scene, *starving(), policy=policy, compatibility=compatibility)) == ["uses-3"]
    assert evicted(reclaim(*scene, *starving(2), policy=policy, compatibility=compatibility)) == []


def test_in_a_tree_the_nearest_relatives_give_way_first() -> None:
    policy = "\n".join(
        ["actions: reclaim", "tiers:", "- plugins:", "  - name: gang", "  - {name: capacity, enableHierarchy: true}"]
    )
    queues = [
        queue("root"), queue("here", parent="root"), queue("there", parent="root"),
        queue("poor", parent="here", deserved={"cpu": "2"}), queue("sibling", parent="here"),
        queue("cousin", parent="there"),
    ]  # fmt: skip
    uses = [*running("far", "n", "n", of="cousin"), *running("near", "n", "n", of="sibling")]
    assert evicted(reclaim(node("n", cpu="4"), *queues, *uses, *starving(), policy=policy)) == ["near-1"]


# -- where strict rules differ ---------------------------------------------------------------------------------------


def test_veto_a_lower_tier_that_protects_a_queue_is_heard() -> None:
    """Volcano asks proportion only when the first tier leaves no candidate, and takes what a queue deserves."""
    scene = [
        node("n", cpu="6"),
        *(queue(name) for name in ("rich", "fair", "poor")),
        *running("fair", "n", "n", of="fair"),
        *running("uses", "n", "n", "n", "n"),
        *starving(2),
    ]
    assert evicted(reclaim(*scene, policy=TWO_TIERS, compatibility="strict")) == ["uses-2", "uses-3"]
    scene[1:4] = [queue("rich", priority=1), queue("fair"), queue("poor")]
    assert evicted(reclaim(*scene, policy=TWO_TIERS, compatibility="volcano")) == ["fair-0", "fair-1"]
    assert evicted(reclaim(*scene, policy=TWO_TIERS, compatibility="strict")) == ["uses-2", "uses-3"]


def test_whole_gang_what_is_left_of_a_gang_would_not_run() -> None:
    scene = [
        node("a", cpu="2"), node("b", cpu="2"), *two_queues(),
        *running("uses", "a", "a", "b", "b", least=4), *starving(2, cpu="1"),
    ]  # fmt: skip
    assert evicted(reclaim(*scene, policy=TWO_TIERS, compatibility="volcano")) == ["uses-0", "uses-1"]
    assert evicted(reclaim(*scene, policy=TWO_TIERS, compatibility="strict")) == []
    both = builders.policy("gang conformance", actions="reclaim")
    assert evicted(reclaim(*scene, policy=both, compatibility="volcano")) == []
    assert evicted(reclaim(*scene, policy=both, compatibility="strict")) == ["uses-0", "uses-1", "uses-2", "uses-3"]


def test_only_what_helps_the_queue_may_take_the_place() -> None:
    """The parent of the queue is full: Volcano evicts for a pod that it then refuses."""
    policy = "\n".join(
        ["actions: reclaim", "tiers:", "- plugins:", "  - name: gang", "  - {name: capacity, enableHierarchy: true}"]
    )
    queues = [
        queue("root"), queue("rich", parent="root"), queue("full", parent="root", capability={"cpu": "1"}),
        queue("poor", parent="full", deserved={"cpu": "2"}, capability={"cpu": "2"}),
        queue("sibling", parent="full", reclaimable=False),
    ]  # fmt: skip
    scene = [node("n", cpu="4"), *queues, *running("one", "n", of="sibling"), *running("uses", *["n"] * 3), *starving()]
    assert evicted(reclaim(*scene, policy=policy, compatibility="volcano")) == ["uses-2"]
    assert evicted(reclaim(*scene, policy=policy, compatibility="strict")) == []


def test_only_what_helps_a_large_victim_spares_the_small_ones() -> None:
    scene = [
        node("n", cpu="4"), *two_queues(),
        pod_group("uses", 0, queue="rich", phase="Running"),
        pod("large", "uses", node="n", cpu="2", priority=10), pod("small", "uses", node="n", cpu="1", priority=1),
        pod("other", "uses", node="n", cpu="1", priority=20),
        *starving(cpu="2"),
    ]  # fmt: skip
    policy = builders.policy("priority gang conformance proportion", actions="reclaim")
    assert evicted(reclaim(*scene, policy=policy, compatibility="volcano")) == ["large", "small"]
    assert evicted(reclaim(*scene, policy=policy, compatibility="strict")) == ["large"]


@pytest.mark.parametrize("seed", range(8))
def test_pods_that_are_alike_take_what_they_would_if_each_were_of_its_own_kind(seed: int) -> None:
    numbers = Random(seed)
    nodes = [node(f"n{i}", cpu="4") for i in range(6)]
    uses = [pod_group("uses", 1, queue="rich", phase="Running")] + [
        pod(f"uses-{i}", "uses", node=f"n{i % 6}", cpu="2", priority=numbers.randrange(4)) for i in range(12)
    ]
    outcomes = []
    for key in ("same", ""):
        waits = [pod(f"wants-{i}", "wants", cpu="2", tolerations=[{"key": key or f"own-{i}"}]) for i in range(5)]
        by = builders.policy("gang conformance capacity", actions="reclaim")
        queues = [queue("rich", deserved={"cpu": "8"}), queue("poor", deserved={"cpu": "16"})]
        result = reclaim(*nodes, *queues, *uses, pod_group("wants", 5, queue="poor"), *waits, policy=by)
        outcomes.append((evicted(result), Counter(nominated(result).values())))
    assert len(outcomes[0][0]) == 5
    assert outcomes[0] == outcomes[1]
