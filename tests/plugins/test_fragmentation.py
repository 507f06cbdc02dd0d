"""How much of the free cards is of no use to the pods that usually come."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.plugins.fgd.fragmentation import Fragments, fragments
from tests.builders import decide, gang, node, pod_group, policy, state
from tests.plugins.test_deviceshare import V_NUMBER, vgpu_node
from tests.plugins.test_fgd import CARDS, sharer

GPU = "nvidia.com/gpu"
FIFO = policy("gang predicates")


def of(*objs: Any, by: str = FIFO) -> dict[str, tuple[list[float], list[float]]]:
    """By kind of card, what is free on each node, and what of it are fragments."""
    found: list[Fragments] = list(fragments(decide(state(*objs), by).session.view))
    return {each.resource: (each.free.tolist(), each.fragments.round(3).tolist()) for each in found}


def gpus(name: str, number: int, cpu: str = "8") -> Any:
    return node(name, cpu, resources={GPU: str(number)})


def pods(name: str, count: int, cards: int, cpu: str = "1", **more: Any) -> list[Any]:
    return [pod_group(name, count), *gang(name, count, cpu=cpu, resources={GPU: str(cards)} if cards else {}, **more)]


def test_cards_that_are_too_few_for_a_typical_pod_are_fragments() -> None:
    # Of three pods two ask for one card, which any free one is, and one for four, which no node has free.
    objs = [gpus("a", 4), gpus("b", 4), pods("runs", 2, 1, node="a"), pods("large", 1, 4, node="b")]
    free, lost = of(*objs)[GPU]
    assert free == [2, 0]
    assert lost == [pytest.approx(2 / 3, abs=1e-3), 0]


def test_cards_without_processors_for_a_typical_pod_are_fragments() -> None:
    objs = [gpus("a", 4, cpu="4"), pods("runs", 1, 1, cpu="3", node="a"), pods("waits", 1, 1, cpu="3")]
    assert of(*objs)[GPU] == ([3], [3])


def test_pods_without_cards_can_use_none() -> None:
    objs = [gpus("a", 2), pods("runs", 1, 1, node="a"), pods("plain", 1, 0, node="a")]
    assert of(*objs)[GPU] == ([1], [0.5])


def test_a_cluster_without_cards_or_pods_has_no_fragments() -> None:
    assert of(node("a"), pods("runs", 1, 0, node="a")) == {}
    assert of(gpus("a", 2))[GPU] == ([2], [0])


def test_parts_of_shared_cards_count_as_the_plugin_counts_them() -> None:
    objs = [vgpu_node("n1", CARDS, CARDS), pod_group("job"), sharer("job-0", 700, "n1", "n1-0"), sharer("job-1", 400)]
    # Of the first card 0.3 is left, too little for either; the other is whole. Half of the pods take 0.4 of a card.
    for by in (FIFO, policy("gang predicates fgd")):
        free, lost = of(*objs, by=by)[V_NUMBER]
        assert len(free) == 1
        assert free[0] in (pytest.approx(1.3), pytest.approx(0.9))
        assert lost[0] == pytest.approx(0.3)
