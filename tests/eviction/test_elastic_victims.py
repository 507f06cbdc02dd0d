"""Gangs that start with fewer pods than they have, and gangs that go on with some of their pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stromboli.api.decisions import Bind, Evict, Nominate
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import NOON, hyper_node, node, pod, pod_group, queue, state
from tests.expectations.world import CLASSES, VALUES

SHARES = DEFAULT_POLICY.replace("name: proportion", "name: capacity")
ACTIONS = ("preempt", "gangpreempt", "reclaim", "gangreclaim")
RECLAIMS = pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
EVERY = pytest.mark.parametrize("action", ACTIONS)
#: CPUs and Gi
Size = tuple[int, int]
#: least, the size of its pods, the numbers of their nodes, and its priority
Runs = tuple[int, Size, Sequence[int], str]


def decided(
    action: str,
    nodes: Sequence[Size],
    runs: Sequence[Runs],
    least: int,
    gang: Sequence[Size],
    only: str = "",
    racks: Any = (),
) -> tuple[set[str], dict[str, str]]:
    """The pods that are evicted, and the nodes of those of a gang that get places; the last of it is `only` for one."""
    theirs = "theirs" if "reclaim" in action else "mine"
    objs: list[Any] = [*CLASSES, queue("mine", deserved={"cpu": "99", "memory": "99Gi"})]
    objs.append(queue("theirs", deserved={"cpu": "0", "memory": "0"}))
    objs += [node(f"n{at}", cpu=f"{cpu}", memory=f"{gi}Gi") for at, (cpu, gi) in enumerate(nodes)]
    for number, (needs, size, on, priority) in enumerate(runs):
        name = f"j{number}"
        objs.append(pod_group(name, needs, theirs, "Running", created=number, priorityClassName=priority))
        objs += [
            _pod(f"{name}-{at}", name, size, node=f"n{host}", priority=VALUES[priority]) for at, host in enumerate(on)
        ]
    tight = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if racks else {}
    objs += [hyper_node(f"r{at}", 1, "Node", [f"n{each}" for each in members]) for at, members in enumerate(racks)]
    objs.append(pod_group("g", least, "mine", created=9, priorityClassName="high", **tight))
    for at, size in enumerate(gang):
        there = {"kubernetes.io/hostname": only} if only and at == len(gang) - 1 else {}
        objs.append(_pod(f"g-{at}", "g", size, priority=100, nodeSelector=there))
    engine = Engine(SHARES.replace("allocate, backfill", f"allocate, {action}"))
    decisions = engine.decide(state(objs).snapshot(), now=NOON).decisions
    gone = {each.name for each in decisions if isinstance(each, Evict)}
    return gone, {each.name: each.node for each in decisions if isinstance(each, Bind | Nominate)}


def _pod(name: str, job: str, size: Size, **more: Any) -> Any:
    return pod(name, job, cpu=f"{size[0]}", memory=f"{size[1]}Gi", **more)


@EVERY
def test_a_gang_starts_with_the_pods_that_fit_though_its_largest_do_not(action: str) -> None:
    """The three largest request more than there is."""
    _, places = decided(action, [(5, 8), (5, 8)], [(1, (1, 1), [1, 0, 0], "low")], 3, [(3, 1), (4, 1), (4, 1), (1, 1)])
    assert len(places) >= 3


@EVERY
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("spare", [0, 1])
def test_a_sub_group_goes_whole(action: str, size: int, spare: int) -> None:
    """One pod of the last group would be enough; without a group to spare the whole gang goes."""
    theirs = "theirs" if "reclaim" in action else "mine"
    policy = {"name": "part", "subGroupSize": size, "minSubGroups": 3 - spare, "matchLabelKeys": ["part"]}
    objs: list[Any] = [*CLASSES, *(node(f"n{part}", cpu=f"{size}") for part in range(3))]
    objs += [queue("mine", deserved={"cpu": "99", "memory": "99Gi"}), queue("theirs", deserved={"cpu": "0"})]
    objs += [pod_group("j", size * (3 - spare), theirs, "Running", subGroupPolicy=[policy])]
    for part in range(3):
        objs += [pod(f"j-{part}-{at}", "j", node=f"n{part}", labels={"part": f"{part}"}) for at in range(size)]
    objs += [pod_group("g", 1, "mine", created=9, priorityClassName="high"), pod("g-0", "g", priority=100)]
    engine = Engine(SHARES.replace("allocate, backfill", f"allocate, {action}"))
    gone = {each.name for each in engine.decide(state(objs).snapshot(), now=NOON).decisions if isinstance(each, Evict)}
    parts = {name.split("-")[1] for name in gone}
    assert len(gone) == len(parts) * size
    assert len(parts) == (spare or 3)


@RECLAIMS
def test_victims_for_one_more_pod_may_do_for_the_first_as_well(action: str) -> None:
    """A pod to spare makes room for one; the gang that goes for the second leaves room for both."""
    gone, places = decided(
        action, [(4, 8), (8, 8)], [(0, (1, 1), [0], "low"), (2, (4, 1), [1, 1], "low")], 1, [(4, 1), (4, 1)]
    )
    assert (gone, len(places)) == ({"j1-0", "j1-1"}, 2)


@RECLAIMS
def test_other_places_for_all_pods_that_get_any_are_looked_for(action: str) -> None:
    """Three get places of which the gang needs two."""
    runs = [(1, (2, 2), [0, 2, 2], "low"), (3, (1, 2), [2, 0, 1], "low")]
    gone, places = decided(action, [(8, 4), (5, 4), (7, 6)], runs, 2, [(1, 3), (3, 1), (4, 2)])
    assert (len(gone), len(places)) == (2, 3)


@EVERY
def test_of_a_gang_that_goes_in_part_the_rest_may_stay_as_well(action: str) -> None:
    """At first two of its pods are to go and another job, then only one of them."""
    gang, nodes = [(1, 3), (1, 4), (1, 4)], [(8, 7), (7, 5), (8, 4)]
    gone, places = decided(action, nodes, [(1, (2, 1), [2], "low"), (1, (1, 1), [0, 1, 2], "low")], 3, gang, "n0")
    assert (len(gone), len(places)) == (1, 3)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_gang_loses_the_one_pod_that_it_can_spare_if_that_is_enough_for_another_pod(action: str) -> None:
    """The first pod of two, of which the gang needs one, breaks it."""
    gone, places = decided(action, [(6, 4), (3, 8)], [(2, (3, 2), [1, 0, 0], "low")], 1, [(4, 1), (1, 3)])
    assert (gone, len(places)) == ({"j0-0"}, 1)


@RECLAIMS
def test_what_a_gang_in_a_rack_grows_by_is_made_room_for_at_once(action: str) -> None:
    """A gang that goes for its second pod leaves room for the first as well."""
    runs = [(3, (3, 1), [2, 0, 1], "low"), (1, (3, 1), [1], "low")]
    gone, places = decided(action, [(5, 7), (8, 7), (3, 7)], runs, 1, [(3, 1), (3, 1)], racks=[[0, 1], [2]])
    assert (gone, len(places)) == ({"j0-0", "j0-1", "j0-2"}, 2)


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_what_a_gang_gave_up_pod_by_pod_is_of_its_unit_when_the_rest_goes(action: str) -> None:
    runs = [(1, (3, 2), [1, 1], "low"), (1, (2, 1), [0, 2], "low")]
    _, places = decided(action, [(4, 4), (8, 5), (3, 8)], runs, 4, [(1, 2), (4, 1), (1, 4), (1, 4)])
    assert len(places) == 4


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_a_gang_that_goes_for_its_queues_limit_stays_in_part(action: str) -> None:
    """The small pod goes first, alone in vain; with the large one gone there is room for it."""
    objs: list[Any] = [
        *CLASSES,
        queue("mine", capability={"cpu": "5"}),
        node("n0"),
        pod_group("j", 1, "mine", "Running"),
    ]
    objs += [_pod(f"j-{at}", "j", (3 - 2 * at, 1), node="n0", priority=10) for at in range(2)]
    objs += [pod_group("g", 1, "mine", created=9, priorityClassName="high"), _pod("g-0", "g", (3, 1), priority=100)]
    engine = Engine(SHARES.replace("allocate, backfill", f"allocate, {action}"))
    decisions = engine.decide(state(objs).snapshot(), now=NOON).decisions
    assert [each.name for each in decisions if isinstance(each, Evict)] == ["j-0"]


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_what_was_spared_first_stays_if_the_gang_that_goes_after_it_leaves_room_for_all(action: str) -> None:
    """One node has two pods to spare; for the third place the gang of four on the other node is evicted."""
    runs = [(0, (1, 1), [0, 0], "low"), (1, (1, 1), [0], "high"), (4, (1, 1), [1, 1, 1, 1], "low")]
    gone, places = decided(action, [(3, 8), (4, 8)], runs, 3, [(1, 1)] * 3)
    assert (gone, len(places)) == ({"j2-0", "j2-1", "j2-2", "j2-3"}, 3)
