"""HyperNodes that follow from the labels of nodes: which there are, what they hold, and that jobs see no difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stromboli.api import crds, objects
from stromboli.framework.cluster.levels import with_levels
from stromboli.framework.cluster.topology import TOP_NAME, Topology, topology
from stromboli.state.cluster import ClusterState
from tests.builders import decide, gang, hyper_node, node, pod_group, policy, queue, racks, state
from tests.fuzz import tried

ZONE, RACK, HOST = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
LEVELS = f"topology: {{levels: [{{nodeLabel: {ZONE}}}, {{nodeLabel: {RACK}}}]}}\n"
POLICY = policy("gang", "predicates proportion network-topology-aware")
PLACES = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["", "1", "2"]))


def placed(name: str, zone: str = "", rack: str = "", **more: Any) -> objects.Node:
    """A node in a zone and a rack, without the label of one that is empty."""
    return node(name, labels={key: value for key, value in ((ZONE, zone), (RACK, rack)) if value}, **more)


def tree(cluster: ClusterState, *labels: str) -> Topology:
    """The tree that sessions see."""
    snapshot = with_levels(cluster.snapshot(), labels)
    return topology(snapshot.hyper_nodes, snapshot.nodes.facts, snapshot.derived)


def held(found: Topology, cluster: ClusterState) -> dict[str, tuple[int, set[str]]]:
    """The tier and the nodes of each HyperNode."""
    names = list(cluster.snapshot().nodes.facts.index)
    return {
        name: (int(found.tiers[number]), {names[row] for row in found.nodes(number)})
        for number, name in enumerate(found.names)
        if name != TOP_NAME
    }


@given(st.lists(st.tuples(st.sampled_from("nmop"), PLACES), min_size=1, max_size=12))
@tried(50)
def test_nodes_that_agree_in_labels_make_a_domain(moves: list[tuple[str, tuple[str, str]]]) -> None:
    cluster, where = state(), dict[str, tuple[str, str]]()
    for name, place in moves:
        where[name] = place
        cluster.upsert("Node", placed(name, *place))
        found, expected = tree(cluster, ZONE, RACK), dict[str, tuple[int, set[str]]]()
        for each, (zone, rack) in where.items():
            if zone:
                expected.setdefault(zone, (2, set()))[1].add(each)
            if zone and rack:
                expected.setdefault(f"{zone}/{rack}", (1, set()))[1].add(each)
        assert held(found, cluster) == expected
        assert found.tier_by_name == {
            label: 2 - at for at, label in enumerate((ZONE, RACK)) if 2 - at in found.tiers[:-1]
        }
        assert all(found.name(found.parents[found.index[path]]) == path[0] for path in expected if "/" in path)
        assert not found.problems


def test_the_tree_goes_on_while_labels_of_the_levels_stay() -> None:
    cluster = state(placed("n", "a", "1"), placed("m", "a", "2"))
    first = tree(cluster, ZONE, RACK)
    cluster.upsert("Node", node("n", labels={ZONE: "a", RACK: "1", "other": "x"}))
    assert tree(cluster, ZONE, RACK) is first
    assert held(tree(cluster, ZONE), cluster) == {"a": (1, {"n", "m"})}
    cluster.upsert("Node", placed("n", "a", "2"))
    assert held(tree(cluster, ZONE, RACK), cluster) == {"a": (2, {"n", "m"}), "a/2": (1, {"n", "m"})}


def test_a_level_of_one_node_each_costs_what_its_nodes_do() -> None:
    """Nothing is kept for pairs of a HyperNode and a node that it does not hold, and little is made anew."""
    hosts = [node(f"n{at}", labels={RACK: str(at % 4), HOST: f"n{at}"}) for at in range(200)]
    cluster = state(*hosts)
    first = with_levels(cluster.snapshot(), (RACK, HOST)).hyper_nodes
    found = tree(cluster, RACK, HOST)
    kept = [value for name in Topology.__slots__ if isinstance(value := getattr(found, name), np.ndarray)]
    assert sum(array.size for array in kept) < 20 * len(hosts)
    cluster.upsert("Node", node("n0", labels={RACK: "1", HOST: "n0"}))
    now = with_levels(cluster.snapshot(), (RACK, HOST)).hyper_nodes
    assert {name for name in now if now[name] is not first.get(name)} == {"0", "1", "1/n0"}
    assert held(tree(cluster, RACK, HOST), cluster)["1/n0"] == (1, {"n0"})


def test_a_gang_that_may_not_leave_its_node() -> None:
    by = f"topology: {{levels: [{{nodeLabel: {RACK}}}, {{nodeLabel: {HOST}}}]}}\n{POLICY}"
    hosts = [node(name, cpu="2", labels={RACK: "1", HOST: name}) for name in ("n", "m", "o")]

    def one(count: int, **topology: Any) -> Any:
        job = pod_group("j", count, networkTopology=topology)
        return decide(state(*hosts, queue("default"), job, gang("j", count)), by)

    hard = {"mode": "hard", "highestTierName": HOST}
    assert len(set(one(2, **hard).session.bound.values())) == 1
    assert len(one(3, mode="soft").session.bound) == 3
    assert len(one(4, mode="hard", highestTierName=RACK).session.bound) == 4
    result = one(3, **hard)
    assert not result.session.bound
    view = result.session.view
    assert HOST in str(view.reason(view.jobs["default/j"])) or "HyperNode" in str(view.reason(view.jobs["default/j"]))


def test_without_levels_a_snapshot_is_as_it_was() -> None:
    snapshot = state(placed("n", "a", "1")).snapshot()
    assert with_levels(snapshot, ()) is snapshot


def by_hand(places: dict[str, tuple[str, str]]) -> Iterator[crds.HyperNode]:
    """HyperNodes of the cluster that name the nodes of each zone and rack."""
    for zone in {zone for zone, _ in places.values() if zone}:
        own = [name for name, place in places.items() if place == (zone, "")]
        in_racks = {rack for its, rack in places.values() if its == zone and rack}
        for rack in in_racks:
            members = [name for name, place in places.items() if place == (zone, rack)]
            yield _named(hyper_node(f"{zone}/{rack}", 1, "Node", members), RACK)
        upper = hyper_node(zone, 2, "HyperNode", [f"{zone}/{rack}" for rack in in_racks])
        upper.spec.members += hyper_node("", 2, "Node", own).spec.members
        yield _named(upper, ZONE)


def _named(of: crds.HyperNode, tier: str) -> crds.HyperNode:
    of.spec.tier_name = tier
    return of


@pytest.mark.exhaustive
@given(
    st.lists(st.tuples(PLACES, st.integers(0, 3)), min_size=1, max_size=8),
    st.sampled_from([{"highestTierAllowed": 1}, {"highestTierName": RACK}, {"highestTierName": ZONE}, {}]),
    st.sampled_from(["hard", "soft"]),
    st.integers(1, 6),
)
@tried(60)
def test_jobs_are_decided_and_told_as_by_written_hyper_nodes(
    nodes: list[tuple[tuple[str, str], int]], tier: dict[str, Any], mode: str, size: int
) -> None:
    places = {f"n{number}": place for number, (place, _) in enumerate(nodes)}
    # Labels that no node has are named where the policy has levels.
    assume(any(zone and rack for zone, rack in places.values()))
    sized = [placed(f"n{number}", *place, cpu=str(cpu)) for number, (place, cpu) in enumerate(nodes)]
    job = pod_group("job", size, networkTopology={"mode": mode, **tier})
    cluster = [sized, queue("default"), job, gang("job", size)]
    labelled = decide(state(*cluster), LEVELS + POLICY).session
    written = decide(state(*cluster, list(by_hand(places))), POLICY).session
    assert labelled.bound == written.bound
    assert labelled.view.trace.jobs == written.view.trace.jobs


def test_a_gang_is_placed_in_a_rack_and_told_which_label_is_missing() -> None:
    nodes = [placed("a1", "a", "1", cpu="4"), placed("a2", "a", "2", cpu="2"), placed("a3", "a", "2", cpu="2")]

    def decided(count: int, **tier: Any) -> tuple[set[str], list[str]]:
        job = pod_group("job", count, networkTopology={"mode": "hard", **tier})
        session = decide(state(nodes, queue("default"), job, gang("job", count, cpu="2")), LEVELS + POLICY).session
        return set(session.bound.values()), [reason.message for reason in session.view.trace.jobs.values()]

    assert decided(2, highestTierName=RACK)[0] in ({"a1"}, {"a2", "a3"})
    assert decided(4, highestTierName=ZONE)[0] == {"a1", "a2", "a3"}
    assert decided(3, highestTierName=RACK) == (
        set(),
        ["no HyperNode up to tier 1 is large enough for PodGroup default/job"],
    )
    assert decided(2, highestTierName="example.com/block") == (
        set(),
        ["there is no HyperNode of tier example.com/block"],
    )


@pytest.mark.parametrize(
    ("tier", "waits"), [({"highestTierAllowed": 2}, True), ({"highestTierAllowed": 3}, False), ({}, False)]
)
def test_levels_are_there_before_any_node_is_labelled(tier: dict[str, int], waits: bool) -> None:
    job = pod_group("job", 2, networkTopology={"mode": "hard" if tier else "soft", **tier})
    cluster = state(node("n"), queue("default"), job, gang("job", 2))
    session = decide(cluster, LEVELS + POLICY).session
    assert (session.bound == {}) is waits
    assert [reason.reason for reason in session.view.trace.jobs.values()] == (["NoHyperNode"] if waits else [])
    cluster.upsert("Node", placed("n", "a", "1"))
    assert len(decide(cluster, LEVELS + POLICY).session.bound) == 2


def test_levels_take_the_place_of_hyper_nodes_of_the_cluster() -> None:
    nodes = [placed("a1", "a", "1"), placed("b1", "b", "1")]
    cluster = state(nodes, list(racks(1, 1)), queue("default"))
    assert decide(cluster, LEVELS + POLICY).session.view.topology.names[:-1] == ["a/1", "b/1", "a", "b"]
