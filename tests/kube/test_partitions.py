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


def cards(count: int, partitions: list[Partition], *, one_pool: bool) -> list[dict[str, Any]]:
    """Cards of the node n0, whose partitions draw on the slices of memory that they cover."""
    objs, devices, sets = [device_class()], list[list[Any]](), list[dict[str, Any]]()
    for card in range(count):
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


def started(objs: list[Any], whole: int, others: int, minimum: int) -> set[str]:
    """The devices given to pods that need a whole card, and to pods that may take any partition."""
    cluster = builders.state(
        builders.node("n0"), builders.queue("default"), builders.pod_group("g", minimum, phase="Inqueue")
    )
    names = [*[f"any-{i}" for i in range(others)], *[f"whole-{i}" for i in range(whole)]]
    for name in names:
        selectors = [f"{A}.size == {_CARD}"] if name.startswith("whole") else []
        objs = [*objs, claim(name, request("r", *selectors)), pod(name, name, cpu="1m")]
    for obj in objs:
        cluster.upsert(obj["kind"] if isinstance(obj, dict) else "Pod", obj)
    binds = [each for each in builders.decide(cluster, POLICY).decisions if isinstance(each, Bind)]
    return {each.claims[0].allocation["devices"]["results"][0]["device"] for each in binds}


def most(free: list[tuple[int, Partition]], whole: int, others: int, used: frozenset[tuple[int, int]]) -> int:
    """The most pods that any choice of partitions places, by trying all of them."""
    best = 0
    for at, (card, (first, size)) in enumerate(free):
        slices = {(card, slice_) for slice_ in range(first, first + size)}
        if used & slices:
            continue
        rest = free[at + 1 :]
        if others:
            best = max(best, 1 + most(rest, whole, others - 1, used | slices))
        if whole and size == _CARD:
            best = max(best, 1 + most(rest, whole - 1, others, used | slices))
    return best


@tried(40)
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
    objs = cards(count, partitions, one_pool=one_pool)
    used, free = set[tuple[int, int]](), [(card, each) for card in range(count) for each in partitions]
    for card, (first, size) in sorted(taken):
        slices = {(card, at) for at in range(first, first + size)}
        if (card, (first, size)) in free and not used & slices:
            used |= slices
            pool = "pool-0" if one_pool else f"pool-{card}"
            objs.append(held(f"old-{part(card, (first, size))}", pool, part(card, (first, size))))
    possible = most(free, whole, others, frozenset(used))
    for minimum in range(1, whole + others + 1):
        begun = len(started(objs, whole, others, minimum))
        assert (begun >= minimum) == (possible >= minimum), (minimum, begun, possible)
