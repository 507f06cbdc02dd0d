"""What every way of placing a gang would place is placed; of what none would place it is proven.

`STROMBOLI_FUZZ=5000` with `-m exhaustive --hypothesis-seed=7` tries so many clusters, others with another seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.engine import SessionResult
from stromboli.framework.diagnosis.explain import why_job
from tests.builders import decide, policy
from tests.fuzz import tried
from tests.placement.brute_force import lawful, may_share, possible
from tests.placement.small_clusters import HOST, ZONE, Cluster, Parts, SmallNode, SmallPod

#: gangs, filters, HyperNodes, and limits of queues and of those above them
POLICY = policy("priority gang", "predicates capacity nodeorder network-topology-aware").replace(
    "- name: capacity", "- name: capacity\n    enableHierarchy: true"
)
#: reasons of gangs that would wait for ever
FOR_EVER = ("CannotBePlacedTogether", "NeverFits", "NoMatchingNode", "NotEnoughPodsOfTask", "NoHyperNodeFits")

SIZES = st.sampled_from([1, 2, 3, 4])
KEYS, APPS = st.sampled_from([HOST, ZONE]), st.sampled_from("ab")
TERMS = st.lists(st.tuples(KEYS, APPS), max_size=2, unique=True).map(tuple)
SKEWS = st.lists(st.tuples(KEYS, APPS, st.integers(1, 2)), max_size=1).map(tuple)
SELDOM = st.sampled_from([False, False, False, True])


def rarely(some: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    return SELDOM.flatmap(lambda yes: some if yes else st.just(otherwise))


NODES = st.builds(
    SmallNode,
    cpu=st.sampled_from([2, 4, 6]),
    memory=st.sampled_from([2, 4, 8]),
    zone=st.sampled_from("uv"),
    disk=st.sampled_from(["", "ssd"]),
    rack=st.sampled_from([0, 0, 1, 2]),
    attaches=rarely(st.integers(0, 2), None),
)


def pods(*parts: str) -> st.SearchStrategy[SmallPod]:
    return st.builds(
        SmallPod,
        cpu=SIZES,
        memory=SIZES,
        app=APPS,
        role=st.sampled_from(["", "ps", "worker"]),
        part=st.sampled_from(parts),
        disk=rarely(st.just("ssd"), ""),
        ports=rarely(st.sampled_from([(80,), (80, 81), (81,)]), ()),
        volumes=rarely(st.integers(1, 2), 0),
        near=rarely(TERMS, ()),
        far=rarely(TERMS, ()),
        spread=rarely(SKEWS, ()),
    )


OTHERS = st.builds(
    SmallPod,
    cpu=st.integers(1, 2),
    app=APPS,
    ports=rarely(st.just((80,)), ()),
    volumes=rarely(st.just(1), 0),
    far=rarely(TERMS, ()),
)


@st.composite
def clusters(draw: st.DrawFn, *, busy: bool) -> Cluster:
    nodes = tuple(draw(NODES) for _ in range(draw(st.integers(1, 6))))
    parts = draw(rarely(st.builds(Parts, size=st.integers(1, 3), least=st.integers(1, 2), hard=st.booleans()), None))
    gang = tuple(draw(pods("0", "1", "2") if parts else pods("0")) for _ in range(draw(st.integers(2, 8))))
    least = draw(st.integers(2, len(gang)))
    by_role = {}
    for role in ("ps", "worker"):
        there = sum(pod.role == role for pod in gang)
        if there and draw(SELDOM):
            by_role[role] = draw(st.integers(1, there))
    return Cluster(
        nodes,
        gang,
        max(least, sum(by_role.values())),
        running(nodes, [(draw(OTHERS), on) for on in draw(st.lists(st.sampled_from(range(len(nodes))), max_size=4))])
        if busy
        else (),
        by_role,
        parts,
        tier=draw(st.sampled_from([None, None, 1, 2])),
        capability=draw(st.sampled_from([None, None, None, 6, 10])),
        above=draw(st.sampled_from([None, None, None, 8, 12])),
    )


@st.composite
def begun(draw: st.DrawFn) -> Cluster:
    """A gang that lost some of its pods, with a node."""
    cluster = draw(clusters(busy=False))
    for number in range(draw(st.integers(1, len(cluster.pods) - 1))):
        on = draw(st.sampled_from(range(len(cluster.nodes))))
        if len(cluster.held) < cluster.least - 1 and may_share(cluster, number, on, cluster.held):
            cluster = replace(cluster, held={**cluster.held, number: on})
    return cluster


def running(nodes: tuple[SmallNode, ...], some: list[tuple[SmallPod, int]]) -> tuple[tuple[SmallPod, int], ...]:
    """Those of some pods that their nodes hold."""
    kept: list[tuple[SmallPod, int]] = []
    for each, on in some:
        here, node = [each, *(other for other, where in kept if where == on)], nodes[on]
        ports, volumes = [port for other in here for port in other.ports], sum(other.volumes for other in here)
        room = sum(other.cpu for other in here) <= node.cpu and sum(other.memory for other in here) <= node.memory
        if room and len(ports) == len(set(ports)) and (node.attaches is None or volumes <= node.attaches):
            kept.append((each, on))
    return tuple(kept)


def run(cluster: Cluster) -> SessionResult:
    return decide(cluster.state(), POLICY)


def starts(cluster: Cluster, result: SessionResult) -> bool:
    """Whether the gang gets places, in which case they keep all its rules."""
    found = {
        int(key.removeprefix("default/x-")): int(name.removeprefix("n"))
        for key, name in result.session.bound.items()
        if key.startswith("default/x-")
    }
    assert not found or lawful(cluster, {**cluster.held, **found})
    return bool(found)


def waits_for_ever(result: SessionResult) -> bool:
    """What is said of a gang that does not start."""
    why = why_job(result.session, result.session.view.jobs["default/x"])
    assert why is not None
    assert why.reason != "NoPlacesFound"
    return why.reason in FOR_EVER and why.actionable == "user"


def check_alone(cluster: Cluster) -> None:
    result = run(cluster)
    assert starts(cluster, result) == possible(cluster)
    assert starts(cluster, result) or waits_for_ever(result), why_job(
        result.session, result.session.view.jobs["default/x"]
    )


def check_beside_others(cluster: Cluster) -> None:
    result = run(cluster)
    assert starts(cluster, result) == possible(cluster)
    if not starts(cluster, result):
        numbers = range(len(cluster.running) + 1)
        rests = (rest for number in numbers for rest in combinations(cluster.running, number))
        later = any(possible(replace(cluster, running=rest)) for rest in rests)
        # Pods of others count where they help a rule, though they may be in the way as well.
        helped = any(pod.near or pod.spread for pod in cluster.pods)
        assert waits_for_ever(result) != later or (helped and not later)


def first_of_all() -> Cluster:
    """The last pod is alone on its node, which it may be if it comes before the two that share the other."""
    near = {"near": ((HOST, "b"),)}
    gang = SmallPod(3, app="b"), SmallPod(1, 4, app="b", disk="ssd", **near), SmallPod(2, app="b", **near)
    return Cluster((SmallNode(4, 8, "u", disk="ssd"), SmallNode(2, 2, "u")), gang, 3)


def attaching() -> Cluster:
    """A volume that only one node limits is among what keeps the gang from its places."""
    nodes = (SmallNode(2, 2, "u"), SmallNode(2, 4, "u"), SmallNode(2, 4, "u", "ssd"), SmallNode(2, 8, "u"))
    pods = (SmallPod(1), *(SmallPod(1, 3) for _ in range(5)), SmallPod(1, 2, disk="ssd", volumes=1))
    return Cluster((*nodes, SmallNode(2, 2, "u", "ssd", attaches=0)), pods, 6)


@given(clusters(busy=False))
@example(first_of_all())
@example(attaching())
@example(Cluster((SmallNode(2, 2, "u"),), (SmallPod(1, disk="ssd"), SmallPod(1, disk="ssd")), 2, tier=1))
@example(Cluster((SmallNode(2, 2, "u"), SmallNode(2, 2, "u", rack=1)), (SmallPod(1), SmallPod(1, 2)), 2, tier=1))
@example(Cluster((SmallNode(4, 8, "u", attaches=1),), (SmallPod(1, volumes=2), SmallPod(1)), 2))
@example(Cluster((SmallNode(6, 8, "u", attaches=1), SmallNode(6, 8, "u")), (SmallPod(3, 8, volumes=1), SmallPod(1)), 2))
@tried(15)
def test_what_fits_starts_and_of_what_does_not_it_is_proven(cluster: Cluster) -> None:
    check_alone(cluster)


def joined() -> Cluster:
    """Two pods join a third, whose node takes one of them; when it has gone they may be alone on the other."""
    there = (SmallPod(1), 0), (SmallPod(1, app="b"), 1)
    gang = SmallPod(2, near=((HOST, "a"),)), SmallPod(2, near=((HOST, "a"),))
    return Cluster((SmallNode(2, 8, "u"), SmallNode(4, 8, "v")), gang, 2, there)


def balanced() -> Cluster:
    """One pod lets two be in the other zone, where another has the room of one."""
    gang = (SmallPod(2, spread=((ZONE, "a", 1),)), SmallPod(2, spread=((ZONE, "a", 1),)))
    there = (SmallPod(1), 1), (SmallPod(1, app="b"), 0)
    return Cluster((SmallNode(4, 8, "u"), SmallNode(1, 8, "v")), gang, 2, there)


def repelled() -> Cluster:
    """The only node that is large enough has a pod that keeps the first away."""
    there = ((SmallPod(1, app="b", far=((HOST, "a"),)), 0),)
    return Cluster((SmallNode(4, 8, "u"), SmallNode(2, 8, "u")), (SmallPod(3), SmallPod(1)), 2, there)


def one_that_is_not_needed() -> Cluster:
    """A pod that matches no node, and two that wait for room."""
    there = ((SmallPod(2, app="b"), 0),)
    return Cluster((SmallNode(4, 8, "u"),), (SmallPod(1, disk="ssd"), SmallPod(2), SmallPod(2)), 2, there)


def refused_in_order() -> Cluster:
    """The second pod joins the first or is before it; on the node that it needs the first has no room beside it."""
    gang = SmallPod(4, volumes=1), SmallPod(2, 3, near=((HOST, "a"),)), SmallPod(2, 2, app="b")
    away = SmallPod(1, app="b", far=((ZONE, "b"),)), SmallPod(1, app="b", far=((HOST, "b"),))
    nodes = SmallNode(4, 4, "u", attaches=1), SmallNode(4, 2, "u"), SmallNode(4, 2, "v")
    return Cluster(nodes, gang, 3, ((away[0], 2), (away[1], 0)))


@pytest.mark.parametrize("cluster", [joined(), balanced(), repelled(), one_that_is_not_needed(), refused_in_order()])
def test_a_gang_that_others_keep_from_its_places_is_told_to_wait(cluster: Cluster) -> None:
    assert not possible(cluster)
    assert not waits_for_ever(run(cluster))


def joined_from_a_full_node() -> Cluster:
    """The first pod joins the second, and not the one on a full node."""
    there = ((SmallPod(2, app="a"), 0),)
    return Cluster((SmallNode(2, 8, "u"),) * 2, (SmallPod(1, near=((HOST, "a"),)), SmallPod(1)), 2, there)


def joins_what_it_excludes() -> Cluster:
    """The second pod never has a place; that the others have one without those that run is found all the same."""
    away = {"far": ((HOST, "b"),)}
    gang = (
        *(SmallPod(1), SmallPod(1, 3, near=((HOST, "b"), (ZONE, "b")), **away), SmallPod(1, 3, **away)),
        *(SmallPod(2, 2, volumes=1), SmallPod(1, 3, **away)),
        SmallPod(4, app="b", disk="ssd", spread=((HOST, "b", 2),)),
        *(SmallPod(1, 3, app="b", disk="ssd"), SmallPod(4, 3, app="b")),
    )
    nodes = (
        *(SmallNode(2, 8, "u"), SmallNode(4, 8, "u"), SmallNode(2, 8, "u", disk="ssd")),
        *(SmallNode(2, 4, "u", attaches=0), SmallNode(2, 4, "u"), SmallNode(4, 8, "u", disk="ssd")),
    )
    return Cluster(nodes, gang, 6, ((SmallPod(1, volumes=1), 0), (SmallPod(2, ports=(80,)), 2), (SmallPod(1), 1)))


@pytest.mark.exhaustive
@given(clusters(busy=True))
@example(joined_from_a_full_node())
@example(joins_what_it_excludes())
@tried(15)
def test_what_fits_beside_others_starts(cluster: Cluster) -> None:
    check_beside_others(cluster)


def check_begun(cluster: Cluster) -> None:
    """No other pod runs, so what is missing comes at once or never; a rule that its own pods break is not looked at."""
    result = run(cluster)
    assert starts(cluster, result) == possible(cluster)
    if not starts(cluster, result) and not any(pod.near or pod.spread for pod in cluster.pods):
        assert waits_for_ever(result), why_job(result.session, result.session.view.jobs["default/x"])


@pytest.mark.exhaustive
def test_a_gang_that_has_begun_goes_on_where_it_can() -> None:
    tried(150)(given(begun())(check_begun))()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("busy", "check"), [(False, check_alone), (True, check_beside_others)])
def test_many_clusters(busy: bool, check: Callable[[Cluster], None]) -> None:
    tried(150)(given(clusters(busy=busy))(check))()
