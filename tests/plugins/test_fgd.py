"""fgd: shared cards, and which nodes are good for a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind
from stromboli.devices.vgpu import ByTypeAndId, Request
from stromboli.plugins.fgd.stock import CARD, Kind, Wanted
from stromboli.plugins.fgd.typical import Worth, typical_pods
from tests.builders import pod_group
from tests.fuzz import tried
from tests.plugins.sessions import decide, policy
from tests.plugins.test_deviceshare import IDS, V_CORES, V_MEMORY, V_NUMBER, user, vgpu_node

ALL = ("fgd", "bestfit", "packing", "clustering", "dotprod", "random")
CARDS = "100,1000,NVIDIA-T4"


def placed(*objs: Any, score: str = "fgd", typical: Sequence[dict[str, Any]] = (), jobs: int = 1) -> dict[str, str]:
    """The node of each pod that is bound, with the cards that its binding names."""
    arguments = {"fgd.score": score, "fgd.typicalPods": list(typical)}
    groups = [pod_group("job" if number == 0 else f"job{number}", created=number) for number in range(jobs)]
    result = decide(*objs, *groups, by=policy("fgd", arguments))
    assert not result.session.failures
    found = {}
    for bind in result.decisions:
        if isinstance(bind, Bind):
            cards = [each.split(",")[0] for each in bind.annotations.get(IDS, "").split(":") if each]
            found[bind.name] = f"{bind.node}: {' '.join(cards)}".rstrip(": ")
    return found


def sharer(name: str, part: int, where: str = "", card: str = "", number: int = 1, **more: Any) -> Any:
    """A pod with parts of cards; one that runs says which card it has."""
    held = {"annotations": {IDS: f"{card},NVIDIA,{part},0:"}} if card else {}
    return user(name, {V_NUMBER: str(number), V_MEMORY: str(part)}, where, **held, **more)


@pytest.mark.parametrize("score", ["bestfit", "packing", "clustering", "dotprod"])
def test_a_sharing_pod_gets_the_card_with_the_least_left_that_suffices(score: str) -> None:
    running = [sharer("run-0", 300, "n1", "n1-1"), sharer("run-1", 600, "n1", "n1-2")]
    assert placed(vgpu_node("n1", CARDS, CARDS, CARDS), *running, sharer("job-0", 500), score=score) == {
        "job-0": "n1: n1-1"
    }


@pytest.mark.parametrize("score", ALL)
def test_cards_are_never_given_out_twice(score: str) -> None:
    pods = [sharer(f"job-{number}", 400) for number in range(8)] + [sharer("job-8", 1000)]
    got = placed(vgpu_node("n1", CARDS, CARDS), vgpu_node("n2", CARDS), *pods, score=score)
    by_card = list(got.values())
    assert len(got) >= 5
    assert all(by_card.count(place) <= 2 for place in by_card)


@pytest.mark.parametrize("score", ALL)
def test_several_cards_are_untouched_ones(score: str) -> None:
    running = sharer("run-0", 1, "n1", "n1-0")
    pod = user("job-0", {V_NUMBER: "2", V_MEMORY: "1000"})
    assert placed(vgpu_node("n1", CARDS, CARDS), running, pod, score=score) == {}
    assert placed(vgpu_node("n1", CARDS, CARDS, CARDS), running, pod, score=score) == {"job-0": "n1: n1-1 n1-2"}


def test_only_cards_of_the_types_that_a_pod_names_are_used() -> None:
    nodes = vgpu_node("n1", CARDS), vgpu_node("n2", "100,1000,NVIDIA-P100")
    choosy = sharer("job-0", 10, annotations={"nvidia.com/use-gputype": "P100"})
    assert placed(*nodes, choosy) == {"job-0": "n2: n2-0"}


def test_compute_counts_as_well_as_memory() -> None:
    greedy = user("job-0", {V_NUMBER: "1", V_MEMORY: "10", V_CORES: "60"})
    other = user("job-1", {V_NUMBER: "1", V_MEMORY: "10", V_CORES: "60"})
    assert placed(vgpu_node("n1", CARDS), greedy, other) == {"job-0": "n1: n1-0"}


def test_fgd_leaves_what_typical_pods_can_use() -> None:
    """After 400 of a card that has 1000, a half fits as before; a card that has 700 would be left with 300."""
    nodes = vgpu_node("n1", CARDS, CARDS), vgpu_node("n2", CARDS)
    running = sharer("run-0", 300, "n1", "n1-0")
    halves = [{"cpu": 1000, "cards": 1, "part": 500}]
    assert placed(*nodes, running, sharer("job-0", 200), typical=halves) == {"job-0": "n1: n1-0"}
    assert placed(*nodes, running, sharer("job-0", 400), typical=halves) == {"job-0": "n1: n1-1"}


@pytest.mark.parametrize(("step", "node"), [(1.0, "n2"), (1e6, "n1")])
def test_the_coarser_fgd_is_the_more_nodes_are_equal(step: float, node: str) -> None:
    # A part of a card keeps pods with two from n1, and from one of three cards of n2.
    nodes = vgpu_node("n1", CARDS, CARDS), vgpu_node("n2", CARDS, CARDS, CARDS)
    arguments = {"fgd.typicalPods": [{"cpu": 0, "cards": cards} for cards in (1, 2)], "fgd.step": step}
    result = decide(*nodes, sharer("job-0", 500), pod_group("job"), by=policy("fgd", arguments))
    assert [each.node for each in result.decisions if isinstance(each, Bind)] == [node]


@pytest.mark.parametrize(("balance", "node"), [(0, "n1"), (1, "n2")])
def test_balanced_fgd_leaves_each_card_its_part_of_the_processors(balance: float, node: str) -> None:
    # About half of the CPU would be left, on n1 for three of four idle cards, on n2 for two.
    nodes = [vgpu_node(name, *[CARDS] * 4) for name in ("n1", "n2")]
    cards = ("n1-0", "n2-0", "n2-1")
    running = [sharer(f"run-{number}", 1000, card[:2], card) for number, card in enumerate(cards)]
    arguments = {"fgd.typicalPods": [{"cpu": 1000, "cards": 1}], "fgd.balance": balance}
    result = decide(*nodes, *running, user("job-0", {"cpu": "3"}), pod_group("job"), by=policy("fgd", arguments))
    assert [each.node for each in result.decisions if isinstance(each, Bind)] == [node]


def test_fgd_takes_processors_where_they_are_of_no_use_to_cards() -> None:
    nodes = vgpu_node("n1", CARDS), vgpu_node("n2", CARDS)
    full = sharer("run-0", 1000, "n1", "n1-0"), sharer("run-1", 1000, "n2", "n2-0")
    typical = [{"cpu": 8000, "cards": 1, "part": 500}]
    plain = user("job-0", {})
    assert placed(*nodes, plain, typical=typical) == {"job-0": "n1"}
    assert placed(*nodes, full[0], plain, typical=typical) == {"job-0": "n1"}
    assert placed(*nodes, full[1], plain, typical=typical) == {"job-0": "n2"}


def test_pods_beside_those_with_as_many_cards() -> None:
    nodes = [vgpu_node(name, *[CARDS] * 4) for name in ("n1", "n2", "n3")]
    running = [sharer("run-0", 1000, "n2", "n2-0"), sharer("run-1", 500, "n3", "n3-0")]
    assert placed(*nodes, *running, sharer("job-0", 100), score="clustering") == {"job-0": "n3: n3-0"}
    assert placed(*nodes, *running, sharer("job-0", 1000), score="clustering") == {"job-0": "n2: n2-1"}
    assert placed(*nodes, *running, sharer("job-0", 1000, number=2), score="clustering") == {"job-0": "n1: n1-0 n1-1"}


def test_typical_pods_are_those_of_the_cluster_unless_they_are_given() -> None:
    """Where all other pods take halves, a pod of 400 goes where no half is lost."""
    nodes = vgpu_node("n1", CARDS), vgpu_node("n2", CARDS)
    running = sharer("run-0", 300, "n1", "n1-0")
    others = [sharer(f"wait-{number}", 500, job="elsewhere") for number in range(50)]
    assert placed(*nodes, running, *others, sharer("job-0", 400)) == {"job-0": "n2: n2-0"}


KINDS = [Kind("NVIDIA-T4", CARD), Kind("NVIDIA-P100", CARD)]
WANTED = st.builds(
    lambda cpu, cards, part, choosy: Wanted(
        float(cpu),
        Request(cards, 0, None, 0) if cards else None,
        ByTypeAndId(None, ("T4",), (), frozenset(), frozenset()) if choosy else None,
        share=part if cards == 1 else CARD if cards else None,
    ),
    st.integers(0, 8).map(lambda cpu: cpu * 500),
    st.sampled_from([0, 1, 1, 2, 4]),
    st.sampled_from([1, 250, 500, 700, 1000]),
    st.booleans(),
)
LEFT = st.lists(st.sampled_from([0, 100, 250, 300, 499, 500, 999, 1000]), min_size=4, max_size=4)


def fragment(pod: Wanted, kind: Kind, cpu: float, left: Sequence[int]) -> float:
    """What of a node is a fragment for a typical pod, as the paper's cases have it."""
    total = float(sum(left))
    if not pod.cards or not pod.allows(kind) or cpu < pod.cpu:
        return total
    part = pod.part(kind)
    if sum(each >= part for each in left) < pod.cards:
        return total
    return float(sum(each for each in left if each < part))


@tried(100)
@given(
    counts=st.dictionaries(WANTED, st.integers(1, 50), min_size=1, max_size=8),
    nodes=st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 5000), LEFT), min_size=1, max_size=5),
)
def test_fragments_are_those_of_the_definition(
    counts: dict[Wanted, int], nodes: list[tuple[int, int, list[int]]]
) -> None:
    typical = typical_pods(counts)
    kinds, cpus, lefts = zip(*nodes, strict=True)
    found = Worth(typical, KINDS, 4).fragments(np.array(kinds), np.array(cpus, np.float64), np.array(lefts))
    total = sum(typical.values())
    expected = [
        sum(weight * fragment(pod, KINDS[kind], cpu, left) for pod, weight in typical.items()) / total
        for kind, cpu, left in nodes
    ]
    assert found == pytest.approx(expected)


@tried(50)
@given(counts=st.dictionaries(WANTED, st.integers(1, 50), min_size=1, max_size=20))
def test_typical_pods_are_the_fewest_that_make_up_nearly_all(counts: dict[Wanted, int]) -> None:
    typical = typical_pods(counts)
    total, chosen = sum(counts.values()), sorted(typical.values())
    assert sum(chosen) >= 0.95 * total
    assert sum(chosen[1:]) < 0.95 * total
    assert min(chosen) >= max((count for pod, count in counts.items() if pod not in typical), default=0)
