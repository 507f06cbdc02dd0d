"""The tree of HyperNodes: who holds which nodes, who is whose ancestor, and how far apart a job may lie."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import crds
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.cluster.topology import NO_TIER, TOP_NAME, Topology, topology
from tests import builders
from tests.fuzz import tried

NODES = [f"{rack}{i}" for rack in "abcd" for i in range(3)]


def hyper_node(name: str, tier: int, *members: dict[str, Any], tier_name: str = "") -> crds.HyperNode:
    """A HyperNode of these members."""
    return crds.HyperNode.parse(
        {"metadata": {"name": name}, "spec": {"tier": tier, "tierName": tier_name, "members": list(members)}}
    )


def exact(name: str, kind: str = "Node") -> dict[str, Any]:
    """A member by name."""
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def regex(pattern: str) -> dict[str, Any]:
    """Nodes by an expression."""
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def labelled(**selector: Any) -> dict[str, Any]:
    """Nodes by labels."""
    return {"type": "Node", "selector": {"labelMatch": selector}}


def tree(*hyper_nodes: crds.HyperNode) -> Topology:
    """The tree of some HyperNodes over NODES, three to a rack, labelled with their rack."""
    state = builders.state([builders.node(name, labels={"rack": name[0]}) for name in NODES])
    return topology({h.metadata.name: h for h in hyper_nodes}, state.snapshot().nodes.facts, {})


def racks_and_spines() -> list[crds.HyperNode]:
    """Racks a to d, spines ab and cd."""
    racks = [hyper_node(rack, 1, regex(f"^{rack}"), tier_name="rack") for rack in "abcd"]
    return [*racks, *(hyper_node(s, 2, *(exact(r, "HyperNode") for r in s), tier_name="spine") for s in ("ab", "cd"))]


def nodes_of(of: Topology, name: str) -> list[str]:
    """The names of the nodes of a HyperNode."""
    return [NODES[i] for i in of.nodes(of.index[name])]


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (exact("b1"), ["b1"]),
        (exact("gone"), []),
        (regex("^b"), ["b0", "b1", "b2"]),
        (regex("2"), ["a2", "b2", "c2", "d2"]),
        (regex("^[[:lower:]]0$"), ["a0", "b0", "c0", "d0"]),
        (labelled(matchLabels={"rack": "c"}), ["c0", "c1", "c2"]),
        (
            labelled(matchExpressions=[{"key": "rack", "operator": "NotIn", "values": ["a", "b", "c"]}]),
            ["d0", "d1", "d2"],
        ),
        (labelled(), []),
        (labelled(matchExpressions=[{"key": "rack", "operator": "In"}]), []),
    ],
)
def test_members(member: dict[str, Any], expected: list[str]) -> None:
    assert nodes_of(tree(hyper_node("h", 1, member)), "h") == expected


def test_hyper_nodes_inherit_the_nodes_of_their_members() -> None:
    found = tree(*racks_and_spines())
    assert found.names == ["a", "b", "c", "d", "ab", "cd", TOP_NAME]
    assert nodes_of(found, "cd") == NODES[6:]
    assert nodes_of(found, TOP_NAME) == NODES
    assert found.tiers.tolist() == [1, 1, 1, 1, 2, 2, 3]


def test_the_whole_cluster_is_the_only_domain_without_hyper_nodes() -> None:
    found = tree()
    assert (len(found), found.tiers.tolist()) == (1, [1])
    assert all(found.mask(each).all() for each in range(len(found)))


def test_ancestors_and_the_lowest_common_one() -> None:
    found = tree(*racks_and_spines())
    a, b, c, ab, top = (found.index[name] for name in ("a", "b", "c", "ab", TOP_NAME))
    assert found.ancestors(a) == [a, ab, top]
    assert found.lca(a, b) == ab
    assert found.lca(a, ab) == ab
    assert found.lca(a, c) == top
    assert found.lca(NOWHERE, c) == found.lca(c, NOWHERE) == c
    assert found.lca_tiers(a).tolist() == [1, 2, 3, 3, 2, 3, 3]
    assert found.below(ab).tolist() == [a, b, ab]


def test_the_hyper_node_around_nodes_is_the_lowest_that_holds_them_all() -> None:
    found = tree(*racks_and_spines())
    around = {
        nodes: found.name(found.around(np.array([NODES.index(n) for n in nodes], np.intp)))
        for nodes in ((), ("a0", "a2"), ("c0", "d0"), ("a0", "d0"))
    }
    assert around == {(): "", ("a0", "a2"): "a", ("c0", "d0"): "cd", ("a0", "d0"): TOP_NAME}


def test_nodes_know_their_hyper_node_of_each_tier() -> None:
    found = tree(hyper_node("a", 1, regex("^a")), hyper_node("all", 3, exact("a", "HyperNode"), regex("^b")))
    assert found.lowest.tolist() == [0] * 3 + [NOWHERE] * 9
    assert found.of_tier(2).tolist() == [NOWHERE] * 12
    assert found.of_tier(3).tolist() == [1] * 6 + [NOWHERE] * 6
    assert found.holders(0).tolist() == [0, 1, 2]
    assert found.sums(np.arange(12.0)).tolist() == [3.0, 15.0, 66.0]


def test_what_would_close_a_cycle_is_left_out_and_named() -> None:
    found = tree(
        hyper_node("x", 1, exact("y", "HyperNode"), regex("^a")),
        hyper_node("y", 2, exact("x", "HyperNode"), regex("^b")),
        hyper_node("z", 3, exact("z", "HyperNode"), regex("^c")),
    )
    assert found.problems == [
        "HyperNode y: member x: holds this HyperNode itself",
        "HyperNode z: member z: holds this HyperNode itself",
    ]
    assert nodes_of(found, "x") == NODES[:6]
    assert nodes_of(found, "y") == NODES[3:6]
    assert found.ancestors(found.index["y"]) == [found.index["y"], found.index["x"], found.top]


def test_a_hyper_node_has_one_parent() -> None:
    found = tree(
        hyper_node("rack", 1, regex("^a")),
        hyper_node("one", 2, exact("rack", "HyperNode"), exact("missing", "HyperNode")),
        hyper_node("two", 2, exact("rack", "HyperNode"), regex("^d")),
    )
    assert found.problems == [
        "HyperNode one: member missing: there is no such HyperNode",
        "HyperNode two: member rack: already belongs to one",
    ]
    assert nodes_of(found, "two") == NODES[9:]


def test_an_expression_that_cannot_be_read_is_named() -> None:
    found = tree(hyper_node("h", 1, regex("a(")))
    assert nodes_of(found, "h") == []
    assert found.problems[0].startswith("HyperNode h: the pattern 'a(' is not valid: ")


def test_an_expression_takes_time_in_proportion_to_names() -> None:
    found = tree(hyper_node("h", 1, regex("^((a*)*)*[0-9]$")), hyper_node("i", 1, regex("(((a{1,999}){1,999}){1,99})")))
    assert nodes_of(found, "h") == NODES[:3]
    assert nodes_of(found, "i") == []
    assert "is not valid" in found.problems[0]


def test_a_tree_may_be_deep() -> None:
    chain = [hyper_node(f"h{at}", at + 1, exact(f"h{at - 1}", "HyperNode")) for at in range(1, 64)]
    found = tree(hyper_node("h0", 1, regex("^a")), *chain)
    assert nodes_of(found, "h63") == NODES[:3]
    assert len(found.ancestors(found.index["h0"])) == 65


def test_the_tree_is_kept_until_a_spec_or_a_node_changes() -> None:
    state = builders.state([builders.node(name) for name in NODES], racks_and_spines())

    def current() -> Topology:
        snapshot = state.snapshot()
        return topology(snapshot.hyper_nodes, snapshot.nodes.facts, snapshot.derived)

    first = current()
    state.upsert("HyperNode", racks_and_spines()[0])
    assert current() is first
    state.upsert("HyperNode", hyper_node("a", 1, regex("^[ab]")))
    second = current()
    assert second is not first
    state.upsert("Node", builders.node("a9"))
    assert (len(current()), len(current().lowest)) == (7, 13)


_SELECTORS = (exact("a0"), exact("b1"), regex("^a"), regex("2$"), labelled(matchLabels={"rack": "a"}))
_CHANGES = st.one_of(
    st.tuples(st.sampled_from(NODES), st.sampled_from("ab")),
    st.sampled_from(NODES),
    st.tuples(st.sampled_from("xyz"), st.integers(1, 2), st.lists(st.sampled_from(_SELECTORS), max_size=3)),
)


def names(member: dict[str, Any], node: str, rack: str) -> bool:
    """Whether a member of a HyperNode is about a node."""
    match member["selector"]:
        case {"exactMatch": {"name": name}}:
            return bool(name == node)
        case {"regexMatch": {"pattern": pattern}}:
            return re.search(pattern, node) is not None
    return rack == "a"


@tried(20)
@given(st.lists(_CHANGES, min_size=1, max_size=12))
def test_nodes_and_hyper_nodes_that_change_leave_the_tree_that_there_would_be_without(changes: list[Any]) -> None:
    top = hyper_node("top", 3, *(exact(name, "HyperNode") for name in "xyz"))
    state, racks, specs = builders.state(top), dict[str, str](), dict[str, tuple[int, list[dict[str, Any]]]]()
    for change in changes:
        match change:
            case (node, rack):
                racks[node] = rack
                state.upsert("Node", builders.node(node, labels={"rack": rack}))
            case (name, tier, members):
                specs[name] = tier, members
                state.upsert("HyperNode", hyper_node(name, tier, *members))
            case node:
                racks.pop(node, None)
                state.delete("Node", node)
        snapshot = state.snapshot()
        found = topology(snapshot.hyper_nodes, snapshot.nodes.facts, snapshot.derived)
        order = sorted(specs, key=lambda name: (specs[name][0], name))
        assert found.names == [*order, "top", TOP_NAME]
        held = {
            name: {node for node, rack in racks.items() if any(names(member, node, rack) for member in members)}
            for name, (_, members) in specs.items()
        }
        held |= {"top": set[str]().union(*held.values()), TOP_NAME: set(racks)}
        nodes = [record.name for record in snapshot.nodes.facts.records]
        for number, name in enumerate(found.names):
            assert {nodes[at] for at in np.flatnonzero(found.mask(number))} == held[name]
            assert {node for node in nodes if number in found.holders(nodes.index(node))} == held[name]


def job(spec: dict[str, Any], *pods: Any, **options: Any) -> tuple[Job, Topology]:
    """A job of this spec as a session opens it, and the session's tree."""
    cluster = builders.state(
        builders.queue("default"),
        [builders.node(name) for name in NODES],
        racks_and_spines(),
        builders.pod_group("j", **spec),
        *pods,
    )
    session = builders.decide(cluster, builders.policy("gang"), **options).session
    return session.view.jobs["default/j"], session.view.topology


@pytest.mark.parametrize(
    ("spec", "strict", "volcano"),
    [
        ({}, None, None),
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, 1, 1),
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 7}}, 7, 7),
        ({"networkTopology": {"mode": "hard", "highestTierName": "spine"}}, 2, 2),
        ({"networkTopology": {"mode": "hard", "highestTierName": "unknown"}}, NO_TIER, None),
        ({"networkTopology": {"mode": "hard"}}, 2, None),
        ({"networkTopology": {"mode": "soft"}}, 3, 3),
        ({"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}, 3, 3),
    ],
)
def test_the_tier_that_binds_a_job(spec: dict[str, Any], strict: int | None, volcano: int | None) -> None:
    assert job(spec)[0].highest_tier == strict
    assert job(spec, compatibility="volcano")[0].highest_tier == volcano


@pytest.mark.parametrize(
    ("own", "group", "tier"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, {"mode": "soft"}, 2),
        ({"mode": "soft"}, {"mode": "soft"}, 3),
        (None, {"mode": "soft"}, 3),
        ({"mode": "hard", "highestTierAllowed": 2}, {"mode": "hard", "highestTierAllowed": 1}, 1),
        ({"mode": "hard", "highestTierAllowed": 2}, None, None),
    ],
)
def test_the_tier_that_binds_a_group(own: Any, group: Any, tier: int | None) -> None:
    policy = {"name": "p", "matchLabelKeys": ["g"], **({"networkTopology": group} if group else {})}
    spec = {"subGroupPolicy": [policy], **({"networkTopology": own} if own else {})}
    found, _ = job(spec, builders.pod("j-0", "j", labels={"g": "1"}))
    assert found.sub_jobs["default/j/p-1"].highest_tier == tier


def test_running_pods_say_where_a_job_is() -> None:
    policy = {"name": "p", "matchLabelKeys": ["g"], "networkTopology": {"mode": "soft"}}
    found, session_tree = job(
        {"subGroupPolicy": [policy]},
        builders.pod("j-0", "j", node="a0", labels={"g": "1"}),
        builders.pod("j-1", "j", node="a1", labels={"g": "1"}),
        builders.pod("j-2", "j", node="b1", labels={"g": "2"}),
        builders.pod("j-3", "j", node="b2", labels={"g": "2"}, deleted=True),
        builders.pod("j-4", "j", node="gone", labels={"g": "3"}),
    )
    where = {uid[-1]: session_tree.name(s.allocated_hyper_node) for uid, s in found.sub_jobs.items()}
    assert where == {"1": "a", "2": "b", "3": ""}
    assert session_tree.name(found.allocated_hyper_node) == "ab"


def test_a_job_is_where_its_groups_are_even_if_only_the_job_cares() -> None:
    groups = [{"name": "p", "matchLabelKeys": ["g"]}]
    found, session_tree = job(
        {"subGroupPolicy": groups, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
        builders.pod("j-0", "j", node="a0", labels={"g": "1"}),
        builders.pod("j-1", "j", node="b0", labels={"g": "2"}),
    )
    assert session_tree.name(found.allocated_hyper_node) == "ab"
    assert {s.allocated_hyper_node for s in found.sub_jobs.values()} == {NOWHERE}


def test_a_tree_has_a_most_of_levels() -> None:
    def hyper_node(at: int) -> crds.HyperNode:
        below = {"type": "HyperNode", "selector": {"exactMatch": {"name": f"h{at - 1}"}}}
        node = {"type": "Node", "selector": {"exactMatch": {"name": "n"}}}
        return crds.HyperNode.parse(
            {"metadata": {"name": f"h{at}"}, "spec": {"tier": at + 1, "members": [below if at else node]}}
        )

    cluster = builders.state(builders.node("n"), *map(hyper_node, range(70)), builders.queue("default"))
    tree = builders.decide(cluster, builders.policy("gang")).session.view.topology
    assert tree.problems == ["HyperNode h64: member h63: would be more than 64 levels"]
