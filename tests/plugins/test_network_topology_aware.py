"""network-topology-aware: which HyperNodes are offered, and the scores of HyperNodes and of nodes in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from stromboli.api import crds
from stromboli.api.errors import PolicyError
from stromboli.engine import Engine
from stromboli.framework.cluster.job import NOWHERE, Job
from stromboli.framework.session.session import Session
from stromboli.plugins.network_topology_aware import NetworkTopologyAware
from stromboli.state.cluster import ClusterState
from tests import builders


def hyper_node(name: str, tier: int, kind: str, *members: str) -> crds.HyperNode:
    """A HyperNode of members by name."""
    selected = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return crds.HyperNode.parse({"metadata": {"name": name}, "spec": {"tier": tier, "members": selected}})


def cluster(*objs: Any, topology: dict[str, Any] | None = None, **spec: Any) -> ClusterState:
    """Racks a to d of two nodes of 8 cpus and 32 GiB, spines ab and cd, a node outside, and a PodGroup j."""
    more = {"networkTopology": topology} if topology else {}
    return builders.state(
        builders.queue("default"),
        [builders.node(f"{rack}{i}") for rack in "abcd" for i in range(2)],
        builders.node("outside"),
        [hyper_node(rack, 1, "Node", f"{rack}0", f"{rack}1") for rack in "abcd"],
        [hyper_node(spine, 2, "HyperNode", *spine) for spine in ("ab", "cd")],
        builders.pod_group("j", **spec, **more),
        *objs,
    )


def policy(arguments: dict[str, Any] | None = None) -> str:
    """A policy with the plugin and nothing else that scores."""
    plugin: dict[str, Any] = {"name": NetworkTopologyAware.name, **({"arguments": arguments} if arguments else {})}
    return yaml.safe_dump({"actions": "backfill", "tiers": [{"plugins": [{"name": "gang"}, plugin]}]})


def opened(state: ClusterState, arguments: dict[str, Any] | None = None) -> tuple[NetworkTopologyAware, Session, Job]:
    """The plugin in a session that has decided nothing, the session, and job j."""
    session = Engine(policy(arguments)).decide(state.snapshot(), now=builders.NOON).session
    plugin = next(p for p in session.plugins if isinstance(p, NetworkTopologyAware))
    return plugin, session, session.view.jobs["default/j"]


def node_scores(state: ClusterState, pod: str, anchor: str = "", **arguments: Any) -> dict[str, float] | None:
    """The score of each node for a pod of j whose group is around a HyperNode."""
    plugin, session, job = opened(state, arguments)
    record = state.record(f"default/{pod}")
    assert record is not None
    session.view.sub_job_of(job, record).anchor = session.view.topology.index[anchor] if anchor else NOWHERE
    found = plugin.batch_node_order(record, session.view.nodes.view(session.view.nodes.rows))
    return (
        None
        if found is None
        else dict(zip([session.view.nodes.name(i) for i in range(9)], found.tolist(), strict=True))
    )


def gradients(state: ClusterState, root: str = "", *, evicting: bool = False, **arguments: Any) -> list[list[str]]:
    """The HyperNodes offered to j, by gradient."""
    plugin, session, job = opened(state, arguments)
    tree = session.view.topology
    found = plugin.hyper_node_gradient(job, tree.index[root] if root else tree.top, evicting)
    return [[tree.name(hyper_node) for hyper_node in gradient] for gradient in found]


HARD_1, HARD_2 = ({"mode": "hard", "highestTierAllowed": tier} for tier in (1, 2))
TOP = "<cluster-top-hypernode>"

# -- which HyperNodes ------------------------------------------------------------------------------------------------


def test_hyper_nodes_are_offered_up_to_the_tier_lowest_first() -> None:
    assert gradients(cluster(topology=HARD_1)) == [["a", "b", "c", "d"]]
    assert gradients(cluster(topology=HARD_2)) == [["a", "b", "c", "d"], ["ab", "cd"]]
    assert gradients(cluster(topology={"mode": "soft"})) == [["a", "b", "c", "d"], ["ab", "cd"], [TOP]]
    assert gradients(cluster(topology=HARD_2), "cd") == [["c", "d"], ["cd"]]
    assert gradients(cluster()) == [[TOP]]


def test_hyper_nodes_that_cannot_hold_the_minimum_are_not_offered() -> None:
    running = [builders.pod("x", node="a0", cpu="1"), builders.pod("y", node="b0", cpu="1", deleted=True)]
    state = cluster(*running, topology=HARD_1, minResources={"cpu": "16"})
    assert gradients(state) == [["b", "c", "d"]]
    assert gradients(state, evicting=True) == [["a", "b", "c", "d"]]


def test_a_group_is_offered_what_holds_all_its_pods_before_what_holds_those_that_it_starts_with() -> None:
    state = cluster(builders.gang("j", 3, cpu="6"), topology=HARD_2)
    plugin, session, job = opened(state)
    found = plugin.hyper_node_gradient(job.sub_jobs[job.key], session.view.topology.top, False)
    assert [[session.view.topology.name(h) for h in gradient] for gradient in found] == [
        ["ab", "cd"],
        ["a", "b", "c", "d"],
    ]


def test_a_running_job_is_offered_what_is_near_whatever_its_minimum() -> None:
    state = cluster(builders.pod("j-0", "j", node="c0"), topology=HARD_2, minResources={"cpu": "1000"})
    assert gradients(state) == [["c", "d"], ["cd"]]
    assert gradients(state, "d") == [["d"]]
    assert gradients(state, "ab") == []
    spread = [builders.pod(f"j-{i}", "j", node=node) for i, node in enumerate(("a0", "c0"))]
    assert gradients(cluster(*spread, topology=HARD_2)) == []


def test_wide_hyper_nodes_are_offered_first_and_few_of_them_when_others_are_evicted() -> None:
    state = cluster(topology=HARD_2)
    assert gradients(state, evicting=True) == [["ab", "cd"], ["a", "b", "c", "d"]]
    limit = {"hypernode.gradient.evict.max-hypernodes": 3}
    assert gradients(state, evicting=True, **limit) == [["ab", "cd"], ["d"]]


# -- scores of HyperNodes --------------------------------------------------------------------------------------------


def hyper_node_scores(state: ClusterState, *names: str, **arguments: Any) -> list[float]:
    """The scores of some HyperNodes for j."""
    plugin, session, job = opened(state, arguments)
    rows = np.array([session.view.topology.index[name] for name in names], np.intp)
    return plugin.hyper_node_order(job.sub_jobs[job.key], rows).round(6).tolist()


def test_a_hyper_node_scores_by_how_full_it_is_with_the_group() -> None:
    state = cluster(builders.gang("j", 2, cpu="4", memory="8Gi"), builders.pod("x", node="b0", cpu="2", memory="8Gi"))
    assert hyper_node_scores(state, "a", "b", "cd") == [37.5, 50.0, 18.75]
    assert hyper_node_scores(state, "a", "b", weight=10) == [375.0, 500.0]
    assert hyper_node_scores(state, "a", "b", **{"hypernode.binpack.memory": 0}) == [50.0, 62.5]


def test_a_hyper_node_that_cannot_hold_the_group_scores_nothing() -> None:
    state = cluster(builders.gang("j", 2, cpu="8", memory="1Gi"), builders.pod("x", node="b0", cpu="1"))
    assert hyper_node_scores(state, "b") == [0.0]


def test_of_equally_full_hyper_nodes_those_with_pods_of_the_group_score_more() -> None:
    pods = [builders.pod("j-0", "j", node="b0"), builders.pod("x", node="a0"), builders.pod("j-1", "j")]
    assert hyper_node_scores(cluster(*pods), "a", "b") == [11.71875, 11.71875 + 50.0]


def test_other_resources_count_when_they_are_named() -> None:
    named = {"hypernode.binpack.resources": "example.com/x", "hypernode.binpack.resources.example.com/x": 2}
    state = cluster(builders.pod("j-0", "j", cpu="8", memory="", resources={"example.com/x": "1"}))
    for node in ("a0", "b0"):
        state.upsert("Node", builders.node(node, resources={"example.com/x": "1" if node == "a0" else "4"}))
    assert hyper_node_scores(state, "a", "b") == [50.0, 50.0]
    assert hyper_node_scores(state, "a", "b", **named) == [round(250 / 3, 6), round(100 / 3, 6)]


def test_placements_of_the_session_count() -> None:
    state = cluster(builders.gang("j", 1, cpu="4", memory="8Gi"), builders.pod("x", "j", node="a1"))
    plugin, session, job = opened(state)
    sub_job = job.sub_jobs[job.key]
    rows = np.array([session.view.topology.index["a"], session.view.topology.index["b"]], np.intp)
    before = plugin.hyper_node_order(sub_job, rows)
    statement = session.statement()
    statement.allocate(sub_job, session.view.pending(job), [session.view.nodes.facts.index["b0"]])
    assert plugin.hyper_node_order(sub_job, rows)[1] > before[1]
    statement.discard()
    assert plugin.hyper_node_order(sub_job, rows).tolist() == before.tolist()


# -- scores of nodes -------------------------------------------------------------------------------------------------


def test_nodes_score_by_the_tier_that_they_share_with_the_group() -> None:
    state = cluster(builders.pod("j-0", "j"), topology=HARD_2)
    assert node_scores(state, "j-0") is None
    assert node_scores(state, "j-0", "a") == {
        **dict.fromkeys(("a0", "a1"), 100.0),
        **dict.fromkeys(("b0", "b1"), 50.0),
        **dict.fromkeys(("c0", "c1", "d0", "d1", "outside"), 0.0),
    }


def test_of_equally_close_nodes_those_with_more_of_the_group_nearby_score_more() -> None:
    pods = [builders.pod(f"j-{i}", "j", node=node) for i, node in enumerate(("a0", "a1", "b0"))]
    found = node_scores(cluster(*pods, builders.pod("j-9", "j"), topology=HARD_2), "j-9", "ab")
    assert found is not None
    assert (found["a0"], found["b1"], found["c0"]) == (50.0 + 50.0, 50.0 + 25.0, 0.0)


def test_pods_of_other_jobs_fill_hyper_nodes_up() -> None:
    state = cluster(
        builders.pod("j-0", "j", cpu="2", memory="8Gi"), builders.pod("x", node="c0", cpu="4", memory="16Gi")
    )
    found = node_scores(state, "j-0")
    assert found is not None
    total, top = 1 + 0.8 + 0.64, 0.64 * 6 / 72
    empty, fuller = 2 / 16 + 0.8 * 2 / 32, 6 / 16 + 0.8 * 6 / 32
    assert found["a0"] == pytest.approx(100 * (empty + top) / total)
    assert found["c1"] == pytest.approx(100 * (fuller + top) / total)
    assert found["d0"] == pytest.approx(100 * (2 / 16 + 0.8 * 6 / 32 + top) / total)
    assert found["outside"] == pytest.approx(100 * (1.8 + top) / total)
    assert node_scores(state, "j-0", **{"hypernode.binpack.normal-pod.enable": False}) is None
    lowest_only = node_scores(state, "j-0", **{"hypernode.binpack.normal-pod.fading": 0})
    assert lowest_only is not None
    assert lowest_only["c0"] == 37.5


@pytest.mark.parametrize("tier", [3, 400, 2**31 - 1])
@pytest.mark.parametrize("fading", [0, 0.5, 1, 1.5])
def test_tiers_that_no_hyper_node_has_cost_nothing(tier: int, fading: float) -> None:
    """However much they count together, a node of the fuller rack scores as much as one of the empty rack, or more."""
    state = cluster(builders.pod("j-0", "j", cpu="1"), builders.pod("x", node="c0", cpu="4"))
    state.upsert("HyperNode", hyper_node("ab", tier, "HyperNode", "a", "b"))
    found = node_scores(state, "j-0", **{"hypernode.binpack.normal-pod.fading": fading})
    assert found is not None
    assert 0 < found["d0"] <= found["c0"] <= 100


def test_there_is_nothing_to_choose_without_hyper_nodes() -> None:
    state = builders.state(
        builders.queue("default"),
        [builders.node(f"n{i}") for i in range(9)],
        builders.pod_group("j"),
        builders.pod("j-0", "j"),
    )
    assert node_scores(state, "j-0") is None
    plugin, session, job = opened(state)
    assert plugin.neighbourhoods(session.view.pending(job)[0]) is None


def test_neighbours_are_nodes_in_the_same_hyper_nodes() -> None:
    plugin, session, job = opened(cluster(builders.pod("j-0", "j")))
    of_node = plugin.neighbourhoods(session.view.pending(job)[0])
    assert of_node is not None
    assert [of_node[2 * i] == of_node[2 * i + 1] for i in range(4)] == [True] * 4
    assert len(set(of_node.tolist())) == 5


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"wieght": 1}, "unknown argument 'wieght'"),
        ({"hypernode.binpack.resources.example.com/x": 2}, "is not in hypernode.binpack.resources"),
        ({"weight": "ten"}, "weight"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        Engine(policy(arguments))
