"""Which partitions of cards the pods of a gang get that may take several: those that leave most to others."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api.decisions import Bind
from tests import builders
from tests.fuzz import tried
from tests.kube.test_dra import POLICY, A, claim, device, device_class, pod, request, resource_slice
from tests.kube.test_dra_shared import consumed, held

#: slices of memory of a card
_CARD = 4
#: the partitions of a card, as the first slice of memory and how many there are from it on
Partition = tuple[int, int]
_PARTITIONS = [(first, size) for size in (4, 2, 1) for first in range(0, _CARD, size)]


def cards(of_each: list[list[Partition]], *, one_pool: bool) -> list[dict[str, Any]]:
    """Cards of the node n0, whose partitions draw on the slices of memory that they cover."""
    objs, devices, sets, count = [device_class()], list[list[Any]](), list[dict[str, Any]](), len(of_each)
    for card, partitions in enumerate(of_each):
        name = f"card-{card}"
        sets.append({"name": name, "counters": consumed(**{f"slice-{at}": 1 for at in range(_CARD)})})
        devices.append([])
        for first, size in partitions:
            slices = consumed(**{f"slice-{at}": 1 for at in range(first, first + size)})
            counters = {"consumesCounters": [{"counterSet": name, "counters": slices}]}
            devices[-1].append(device(part(card, (first, size)), size=size, more=counters))
    pools = (
        [(sets, [each for parts in devices for each in parts])]
        if one_pool
        else [([sets[at]], devices[at]) for at in range(count)]
    )
    for number, (counters, parts) in enumerate(pools):
        pool = {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 2}
        objs.append(resource_slice(f"counters-{number}", pool=pool, nodeName="n0", sharedCounters=counters))
        objs.append(resource_slice(f"parts-{number}", *parts, pool=pool, nodeName="n0"))
    return objs


def part(card: int, partition: Partition) -> str:
    return f"{card}-{partition[0]}-{partition[1]}"


def started(objs: list[Any], sizes: list[int], minimum: int) -> set[str]:
    """The devices given to pods that need a partition of some size at least."""
    cluster = builders.state(
        builders.node("n0"), builders.queue("default"), builders.pod_group("g", minimum, phase="Inqueue")
    )
    for number, size in enumerate(sizes):
        selectors = [f"{A}.size >= {size}"] if size > 1 else []
        objs = [*objs, claim(f"p{number}", request("r", *selectors)), pod(f"p{number}", f"p{number}", cpu="1m")]
    for obj in objs:
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    binds = [each for each in builders.decide(cluster, POLICY).decisions if isinstance(each, Bind)]
    return {each.claims[0].allocation["devices"]["results"][0]["device"] for each in binds}


def most(free: list[tuple[int, Partition]], sizes: list[int], used: frozenset[tuple[int, int]]) -> int:
    """The most pods that any choice of partitions places, by trying all of them."""
    if not sizes:
        return 0
    best = most(free, sizes[1:], used)
    for card, (first, size) in free:
        slices = {(card, slice_) for slice_ in range(first, first + size)}
        if size >= sizes[0] and not used & slices:
            best = max(best, 1 + most(free, sizes[1:], used | slices))
        if best == len(sizes):
            break
    return best


@tried(20)
@given(
    st.integers(1, 2),
    st.lists(st.sampled_from(_PARTITIONS), min_size=1, unique=True),
    st.sets(st.tuples(st.integers(0, 1), st.sampled_from(_PARTITIONS)), max_size=2),
    st.integers(0, 2),
    st.integers(0, 5),
    st.booleans(),
)
@example(1, [(0, 4), (0, 1), (1, 1), (2, 1), (3, 1)], set(), 0, 4, True)
@example(2, [(0, 4), (0, 1), (1, 1)], {(1, (0, 1))}, 1, 1, True)
@example(2, [(0, 4), (0, 1), (1, 1)], {(1, (0, 1))}, 1, 1, False)
def test_a_gang_starts_if_any_choice_of_partitions_lets_it(
    count: int, partitions: list[Partition], taken: set[tuple[int, Partition]], whole: int, others: int, one_pool: bool
) -> None:
    objs = cards([partitions] * count, one_pool=one_pool)
    used, free = set[tuple[int, int]](), [(card, each) for card in range(count) for each in partitions]
    for card, (first, size) in sorted(taken):
        slices = {(card, at) for at in range(first, first + size)}
        if (card, (first, size)) in free and not used & slices:
            used |= slices
            pool = "pool-0" if one_pool else f"pool-{card}"
            objs.append(held(f"old-{part(card, (first, size))}", pool, part(card, (first, size))))
    sizes = [1] * others + [_CARD] * whole
    possible = most(free, sizes, frozenset(used))
    for minimum in range(1, whole + others + 1):
        begun = len(started(objs, sizes, minimum))
        assert (begun >= minimum) == (possible >= minimum), (minimum, begun, possible)


#: partitions of any size that begin anywhere
_ODD = [(first, size) for size in range(1, _CARD + 1) for first in range(_CARD - size + 1)]


@tried(20)
@given(
    st.lists(st.lists(st.sampled_from(_ODD), min_size=1, max_size=6, unique=True), min_size=1, max_size=3),
    st.lists(st.integers(1, _CARD), min_size=2, max_size=5),
    st.booleans(),
)
@example([[(0, 4), (1, 2), (2, 2), (3, 1)], [(2, 1), (0, 3), (0, 4)], [(2, 2), (1, 2)]], [2, 2, 3], True)
@example([[(2, 1), (1, 2), (3, 1), (1, 3), (1, 1)], [(0, 4), (3, 1), (0, 3)]], [1, 4, 2], False)
@example([[(0, 3), (2, 2), (0, 1), (0, 4)], [(0, 3), (2, 1), (1, 3), (1, 1)], [(1, 3)]], [1, 3, 3, 1, 1], True)
def test_unlike_cards_are_divided_so_that_all_pods_of_a_gang_get_their_size(
    of_each: list[list[Partition]], sizes: list[int], one_pool: bool
) -> None:
    free = [(card, each) for card, partitions in enumerate(of_each) for each in partitions]
    possible = most(free, sorted(sizes, reverse=True), frozenset()) == len(sizes)
    assert len(started(cards(of_each, one_pool=one_pool), sizes, len(sizes))) == len(sizes) * possible


def test_a_pod_that_takes_any_card_leaves_the_large_one_to_the_pod_that_needs_it() -> None:
    whole = [device("large", size=_CARD), device("small", size=1)]
    objs = [device_class(), resource_slice("s", *whole, nodeName="n0")]
    assert started(objs, [1, _CARD], 2) == {"large", "small"}
    assert started(objs, [_CARD, _CARD], 2) == set()
