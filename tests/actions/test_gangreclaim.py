"""gangreclaim: a gang takes back what other queues hold above their share, under both sets of rules."""

from __future__ import annotations

from typing import Any

from stromboli.api.decisions import Evict
from stromboli.engine import SessionResult
from tests import builders
from tests.actions.evictions import BOTH, evicted, running, starving
from tests.builders import node, queue

PROPORTION = builders.policy("gang conformance proportion", actions="gangreclaim")
CAPACITY = builders.policy("gang conformance capacity", actions="gangreclaim")


def reclaim(*objs: Any, policy: str = CAPACITY, compatibility: Any = "strict") -> SessionResult:
    return builders.decide(builders.state(*objs), policy, compatibility=compatibility)


def two_queues(rich: int = 1, poor: int = 3) -> list[Any]:
    return [queue("rich", deserved={"cpu": str(rich)}), queue("poor", deserved={"cpu": str(poor)})]


@BOTH
def test_a_gang_takes_back_what_its_queue_deserves(compatibility: Any) -> None:
    scene = [node("n", cpu="4"), *two_queues(), *running("uses", *["n"] * 4)]
    result = reclaim(*scene, *starving(3), compatibility=compatibility)
    assert evicted(result) == [f"uses-{i + (compatibility == 'strict')}" for i in range(3)]
    assert {d.action for d in result.decisions if isinstance(d, Evict)} == {"gangreclaim"}
    assert evicted(reclaim(*scene, *starving(4, memory="9Gi"), compatibility=compatibility)) == []


@BOTH
def test_the_request_of_the_whole_gang_counts(compatibility: Any) -> None:
    """One pod would be within what the queue deserves, three are not."""
    queues = [
        queue("rich", deserved={"cpu": "3", "memory": "3Gi"}),
        queue("poor", deserved={"cpu": "1", "memory": "1Gi"}),
    ]
    scene = [node("n", cpu="4"), *queues, *running("uses", *["n"] * 4)]
    assert len(evicted(reclaim(*scene, *starving(1), compatibility=compatibility))) == 1
    assert evicted(reclaim(*scene, *starving(3), compatibility=compatibility)) == []


@BOTH
def test_a_queue_keeps_what_it_deserves(compatibility: Any) -> None:
    scene = [node("n", cpu="4"), *two_queues(rich=3), *running("uses", *["n"] * 4)]
    assert evicted(reclaim(*scene, *starving(2), compatibility=compatibility)) == []


@BOTH
def test_queues_that_are_not_reclaimable_and_the_own_queue_keep_theirs(compatibility: Any) -> None:
    rich, poor = queue("rich", deserved={"cpu": "1"}, reclaimable=False), queue("poor", deserved={"cpu": "4"})
    scene = [node("n", cpu="4"), rich, poor, *running("uses", *["n"] * 3), *running("own", "n", of="poor")]
    assert evicted(reclaim(*scene, *starving(), compatibility=compatibility)) == []


@BOTH
def test_of_whole_gangs_the_one_that_gives_most_for_what_it_loses(compatibility: Any) -> None:
    large = running("large", *["n"] * 3, least=3)
    scene = [node("n", cpu="4"), *two_queues(), *large, *running("small", "n", least=1), *starving()]
    assert evicted(reclaim(*scene, compatibility=compatibility)) == ["small-0"]


@BOTH
def test_a_queue_that_has_all_that_it_deserves_takes_nothing(compatibility: Any) -> None:
    scene = [
        node("n", cpu="4"), queue("rich"), queue("poor"),
        *running("uses", "n", "n"), *running("own", "n", "n", of="poor"), *starving(),
    ]  # fmt: skip
    assert evicted(reclaim(*scene, policy=PROPORTION, compatibility=compatibility)) == []


# -- where strict rules differ ---------------------------------------------------------------------------------------


def test_veto_proportion_protects_what_a_queue_deserves() -> None:
    """Volcano's proportion has no say in gangs: it takes from a queue that has its share and spares the rich one."""
    scene = [
        node("n", cpu="6"), queue("rich", priority=1), queue("fair"), queue("poor"),
        *running("fair", "n", "n", of="fair"), *running("uses", *["n"] * 4), *starving(2),
    ]  # fmt: skip
    assert evicted(reclaim(*scene, policy=PROPORTION, compatibility="volcano")) == ["fair-0", "fair-1"]
    strict = evicted(reclaim(*scene, policy=PROPORTION, compatibility="strict"))
    assert [name.partition("-")[0] for name in strict] == ["uses", "uses"]
