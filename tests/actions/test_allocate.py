"""allocate: gangs whole or not at all, elastic jobs in turns, topologies, shards, and batches that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stromboli.api import crds
from stromboli.api.decisions import Bind
from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import Environment, Sharding
from stromboli.framework.session.handover import nominated_hyper_nodes
from stromboli.state.cluster import ClusterState
from tests import builders
from tests.builders import racks
from tests.fuzz import tried

POLICY = builders.policy("priority gang", "predicates proportion nodeorder binpack network-topology-aware")


def decide(cluster: ClusterState, policy: str = POLICY, **environment: Any) -> SessionResult:
    """One session."""
    return Engine(policy).decide(cluster.snapshot(), now=builders.NOON, environment=Environment(**environment))


def bound(result: SessionResult) -> dict[str, str]:
    """The node of each pod that was bound, in the order of decision."""
    return {d.name: d.node for d in result.decisions if isinstance(d, Bind)}


def pipelined(result: SessionResult) -> set[str]:
    """The names of the pods that were promised a place."""
    session = result.session
    return {session.view.record(row).name for row in np.flatnonzero(session.view.pods.state == 2).tolist()}


# -- gangs -----------------------------------------------------------------------------------------------------------


def test_a_gang_starts_whole_or_not_at_all() -> None:
    cluster = builders.state(
        builders.queue("default"),
        builders.node("n", cpu="4"),
        builders.pod_group("small", 4, created=2),
        builders.pod_group("big", 5, created=1),
        builders.gang("big", 5),
        builders.gang("small", 4),
    )
    result = decide(cluster)
    assert sorted(bound(result)) == ["small-0", "small-1", "small-2", "small-3"]
    assert result.session.view.jobs["default/big"].ready_count == 0


def test_two_gangs_that_fit_alone_and_not_together() -> None:
    cluster = builders.state(
        builders.queue("default"),
        [builders.node(f"n{i}", cpu="2") for i in range(3)],
        builders.pod_group("first", 4, created=1),
        builders.pod_group("second", 4, created=2),
        builders.gang("second", 4),
        builders.gang("first", 4),
    )
    assert sorted(bound(decide(cluster))) == ["first-0", "first-1", "first-2", "first-3"]


def test_elastic_jobs_grow_in_turns() -> None:
    cluster = builders.state(
        builders.queue("a", created=1),
        builders.queue("b", created=2),
        builders.node("n", cpu="6"),
        builders.pod_group("a", queue="a"),
        builders.pod_group("b", queue="b"),
        builders.gang("a", 6),
        builders.gang("b", 6),
    )
    assert list(bound(decide(cluster))) == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


def test_each_role_of_a_gang_has_its_minimum() -> None:
    cluster = builders.state(
        builders.queue("default"),
        builders.node("n", cpu="2"),
        builders.pod_group("j", 3, minTaskMember={"driver": 1, "worker": 2}),
        [builders.pod(f"w{i}", "j", annotations={"volcano.sh/task-spec": "worker"}) for i in range(3)],
        builders.pod("z", "j", annotations={"volcano.sh/task-spec": "driver"}),
    )
    assert bound(decide(cluster)) == {}
    cluster.upsert("Node", builders.node("n", cpu="3"))
    assert sorted(bound(decide(cluster))) == ["w0", "w1", "z"]
    cluster.upsert("Node", builders.node("n", cpu="4"))
    assert sorted(bound(decide(cluster))) == ["w0", "w1", "w2", "z"]


def test_a_gang_may_wait_for_terminating_pods() -> None:
    cluster = builders.state(
        builders.queue("default"),
        builders.node("n", cpu="2"),
        builders.pod("going", node="n", cpu="1", deleted=True),
        builders.pod_group("j", 2),
        builders.gang("j", 2),
        builders.pod_group("late", 1, created=9),
        builders.pod("late-0", "late"),
    )
    result = decide(cluster)
    assert bound(result) == {}, "what a waiting gang holds is not free for others"
    assert pipelined(result) == {"j-1"}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("free", [1, 2])
@pytest.mark.parametrize("near", [{}, {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}])
def test_a_sub_group_that_a_job_grows_by_waits_whole(size: int, free: int, near: dict[str, Any]) -> None:
    """Of the nodes of the second group some are free, and others hold pods that terminate."""
    nodes = [f"n{number}" for number in range(size)]
    cluster = [builders.node(name, cpu="1") for name in nodes]
    cluster += [builders.node("own", cpu=str(size)), builders.hyper_node("r", 1, "Node", [*nodes, "own"])]
    policy = {"name": "part", "subGroupSize": size, "minSubGroups": 1, "matchLabelKeys": ["part"], **near}
    cluster += [builders.queue("default"), builders.pod_group("j", size, phase="Running", subGroupPolicy=[policy])]
    for at in range(size):
        cluster.append(builders.pod(f"j-0-{at}", "j", node="own", labels={"part": "0"}))
        cluster.append(builders.pod(f"j-1-{at}", "j", labels={"part": "1"}))
    gone = [builders.pod(f"old-{name}", node=name, deleted=True) for name in nodes[free:]]
    waits = decide(builders.state(*cluster, *gone))
    assert not bound(waits) or free >= size
    starts = decide(builders.state(*cluster))
    assert len(bound(starts)) == size
    assert len(pipelined(waits)) == size - len(bound(waits))


def test_what_was_promised_is_not_given_to_others_meanwhile() -> None:
    cluster = builders.state(
        builders.queue("default"),
        builders.node("n", cpu="4"),
        builders.pod("stays", node="n", cpu="1"),
        builders.pod("going", node="n", cpu="2", deleted=True),
        builders.pod_group("first", 1, created=1),
        builders.pod("first-0", "first", cpu="3"),
        builders.pod_group("second", 1, created=2),
        builders.gang("second", 2),
    )
    result = decide(cluster, builders.policy("gang", "predicates"))
    assert (bound(result), pipelined(result)) == ({}, {"first-0"})


def test_a_pod_that_its_queue_refuses_does_not_stop_the_others() -> None:
    cluster = builders.state(
        builders.queue("default", capability={"cpu": "3"}),
        builders.node("n", cpu="16"),
        builders.pod_group("j", 2),
        builders.pod("j-0-0", "j", cpu="2"),
        builders.pod("j-0-1", "j", cpu="2"),
        builders.pod("j-0-2", "j", cpu="1"),
    )
    result = decide(cluster, builders.policy("gang", "predicates capacity"))
    assert sorted(bound(result)) == ["j-0-0", "j-0-2"]
    assert result.session.view.trace.pods[cluster.pods.by_key["default/j-0-1"]].stage.name == "QueueShare"


def test_a_role_that_found_no_node_is_not_tried_again() -> None:
    role = {"volcano.sh/task-spec": "big"}
    cluster = builders.state(
        builders.queue("default"),
        builders.node("n", cpu="3"),
        builders.pod("alien", scheduler="other", node="n", cpu="1"),
        builders.pod_group("j", 1),
        [builders.pod(f"big-x-{i}", "j", cpu="3", annotations=role) for i in range(3)],
        builders.pod("small-x-9", "j"),
    )
    result = decide(cluster, builders.policy("gang", "predicates"))
    assert list(bound(result)) == ["small-x-9"]
    reasons = [result.session.view.trace.pods[cluster.pods.by_key[f"default/big-x-{i}"]].reason for i in range(3)]
    assert reasons == ["Unschedulable", "SameRoleFailed", "SameRoleFailed"]


# -- nominated nodes -------------------------------------------------------------------------------------------------


def test_a_nominated_node_goes_before_better_ones_while_it_has_room() -> None:
    """Under Volcano's rules also before nodes that are free, if pods terminate there."""
    cluster = builders.state(
        builders.queue("default"),
        [builders.node(f"n{i}", cpu=str(2 + 4 * i)) for i in range(3)],
        builders.pod("half", node="n0", cpu="1"),
        builders.pod("full", node="n1", cpu="6", deleted=True),
        [builders.pod_group(name, 1, created=i) for i, name in enumerate("ijk")],
        nominated("i-0", "n0"),
        nominated("j-0", "n1"),
        nominated("k-0", "gone"),
    )
    result = decide(cluster)
    assert bound(result) == {"i-0": "n0", "j-0": "n2", "k-0": "n2"}
    volcano = decide(cluster, f"compatibility: volcano\n{POLICY}")
    assert (bound(volcano), pipelined(volcano)) == ({"i-0": "n0", "k-0": "n2"}, {"j-0"})


def nominated(name: str, node: str) -> Any:
    """A pod for which a node was nominated."""
    return builders.pod(name, name.partition("-")[0], memory="", nominated=node)


# -- shards ----------------------------------------------------------------------------------------------------------


def shard(name: str, desired: list[str], in_use: list[str]) -> dict[str, Any]:
    """A NodeShard."""
    return {"metadata": {"name": name}, "spec": {"nodesDesired": desired}, "status": {"nodesInUse": in_use}}


def shared_cluster(desired: list[str], elsewhere: list[str] | None = None) -> ClusterState:
    """Two nodes of two cpus, a gang of three, and the shards ours and theirs."""
    cluster = builders.state(
        builders.queue("default"),
        [builders.node(f"n{i}", cpu="2") for i in range(2)],
        builders.pod_group("j", 1),
        builders.gang("j", 3),
    )
    cluster.upsert("NodeShard", shard("ours", desired, []))
    cluster.upsert("NodeShard", shard("theirs", [], elsewhere or []))
    return cluster


def test_a_hard_shard_is_never_left() -> None:
    result = decide(shared_cluster(["n1"]), sharding=Sharding("hard", "ours"))
    assert bound(result) == {"j-0": "n1", "j-1": "n1"}
    why = result.session.view.trace.pods[2]
    assert why.nodes == {"node(s) were not in the scheduler's node shard": 1, "Insufficient cpu": 1}


def test_a_soft_shard_is_filled_first() -> None:
    result = decide(shared_cluster(["n1"]), sharding=Sharding("soft", "ours"))
    assert bound(result) == {"j-0": "n1", "j-1": "n1", "j-2": "n0"}


def test_nodes_that_others_still_use_are_not_ours_yet() -> None:
    result = decide(shared_cluster(["n0", "n1"], ["n0"]), sharding=Sharding("hard", "ours"))
    assert set(bound(result).values()) == {"n1"}
    own = result.session.view.shard
    assert own is not None
    assert own.new_status is not None
    assert (own.new_status.in_use, own.new_status.to_add, own.new_status.to_remove) == ({"n1"}, {"n0"}, set())


def test_without_a_shard_of_its_name_nothing_is_ours() -> None:
    result = decide(shared_cluster(["n0"]), sharding=Sharding("hard", "unknown"))
    assert bound(result) == {}
    assert result.session.view.shard is not None
    assert result.session.view.shard.new_status is None


# -- topology --------------------------------------------------------------------------------------------------------


def topological(count: int, *objs: Any, tier: int | None = 1, mode: str = "hard", **more: Any) -> ClusterState:
    """A gang j with a topology."""
    spec = {"mode": mode, **({} if tier is None else {"highestTierAllowed": tier})}
    return builders.state(
        builders.queue("default"),
        *objs,
        builders.pod_group("j", count, networkTopology=spec, **more),
        builders.gang("j", count),
    )


def racks_of(result: SessionResult) -> set[str]:
    """The racks in which pods of j were bound."""
    return {node.partition("-")[0] for name, node in bound(result).items() if name.startswith("j-")}


def where(result: SessionResult) -> str:
    """The HyperNode of j."""
    return result.session.view.topology.name(result.session.view.jobs["default/j"].allocated_hyper_node)


def test_a_hard_gang_takes_the_rack_that_holds_it() -> None:
    result = decide(topological(4, *racks(1, 2, 1)))
    assert (racks_of(result), where(result)) == ({"r1"}, "r1")


def test_a_hard_gang_waits_rather_than_spread() -> None:
    result = decide(topological(4, *racks(1, 1, 1, 1)))
    assert bound(result) == {}
    why = result.session.view.trace.jobs["default/j"]
    assert why.reason == "NoHyperNodeFits"
    assert why.message == "no HyperNode up to tier 1 is large enough for PodGroup default/j"


def test_a_hard_gang_says_when_there_is_no_hyper_node_of_its_tier() -> None:
    result = decide(topological(4, *racks(2, 2), tier=0))
    assert result.session.view.trace.jobs["default/j"].reason == "NoHyperNode"


def test_the_next_tier_is_tried_when_no_rack_holds_a_gang() -> None:
    result = decide(topological(6, *racks(1, 1, 2, 2), tier=2))
    assert (racks_of(result), where(result)) == ({"r2", "r3"}, "spine1")


def test_a_soft_gang_goes_to_one_rack_if_it_can_and_anywhere_if_not() -> None:
    result = decide(topological(4, *racks(1, 2, 1), mode="soft", tier=None))
    assert racks_of(result) == {"r1"}
    result = decide(topological(7, *racks(1, 2, 1), mode="soft", tier=None))
    assert len(bound(result)) == 7
    assert where(result) == "<cluster-top-hypernode>"


def test_a_gang_takes_the_fullest_rack_that_holds_it() -> None:
    running = [builders.pod("other", node="r1-0", cpu="1")]
    assert racks_of(decide(topological(2, *racks(2, 2, 2), running))) == {"r1"}


def test_a_rack_without_room_for_min_resources_is_not_tried() -> None:
    result = decide(topological(2, *racks(1, 2), minResources={"cpu": "3"}))
    assert racks_of(result) == {"r1"}


def test_a_running_job_stays_below_its_hyper_node() -> None:
    cluster = topological(1, *racks(1, 1, 4), builders.pod("j-9", "j", node="r0-0", cpu="2"), tier=2)
    assert (racks_of(decide(cluster)), where(decide(cluster))) == ({"r1"}, "spine0")


def test_sub_groups_of_a_job_each_have_their_rack() -> None:
    group = {
        "name": "g",
        "matchLabelKeys": ["g"],
        "subGroupSize": 2,
        "minSubGroups": 2,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    cluster = builders.state(
        builders.queue("default"),
        *racks(1, 1, 1, 1),
        builders.pod_group("j", 4, networkTopology={"mode": "hard", "highestTierAllowed": 2}, subGroupPolicy=[group]),
        builders.pod("other", node="r0-0", cpu="1"),
        [builders.pod(f"j-{g}{i}", "j", labels={"g": g}) for g in "ab" for i in range(2)],
    )
    result = decide(cluster)
    nodes = bound(result)
    assert {nodes["j-a0"], nodes["j-b0"]} == {"r2-0", "r3-0"}
    assert (nodes["j-a0"], nodes["j-b0"]) == (nodes["j-a1"], nodes["j-b1"])
    assert where(result) == "spine1"
    groups = result.session.view.jobs["default/j"].sub_jobs
    assert sorted(result.session.view.topology.name(s.allocated_hyper_node) for s in groups.values()) == ["r2", "r3"]


@pytest.mark.parametrize("topology", [None, {"mode": "hard", "highestTierAllowed": 1}])
def test_a_gang_goes_where_victims_were_evicted_for_it(topology: dict[str, Any] | None) -> None:
    more = {"networkTopology": topology} if topology else {}
    cluster = builders.state(
        builders.queue("default"),
        *racks(1, 1),
        builders.pod("fuller", node="r0-0", cpu="500m"),
        builders.pod_group("j", 2, **more),
        [nominated(f"j-{i}", "r1-0") for i in range(2)],
    )
    names = {"default/j": "r1"}
    result = decide(cluster, nominated_hyper_nodes=names)
    assert racks_of(result) == {"r1"}
    assert nominated_hyper_nodes(result.session) == {}
    cluster.upsert("Pod", builders.pod("going", node="r1-0", cpu="1", deleted=True))
    waiting = decide(cluster, nominated_hyper_nodes=names)
    if topology:
        assert (bound(waiting), pipelined(waiting)) == ({}, {"j-1"})
    else:
        assert bound(waiting) == {"j-0": "r1-0", "j-1": "r0-0"}
    assert nominated_hyper_nodes(waiting.session) == (names if topology else {})


def test_nominations_are_void_when_one_pod_cannot_go_there() -> None:
    cluster = builders.state(
        builders.queue("default"),
        *racks(1, 1),
        builders.pod("taken", node="r1-0", cpu="1"),
        builders.pod_group("j", 2, networkTopology={"mode": "hard", "highestTierAllowed": 1}),
        [nominated(f"j-{i}", "r1-0") for i in range(2)],
    )
    result = decide(cluster, nominated_hyper_nodes={"default/j": "r1"})
    assert (racks_of(result), nominated_hyper_nodes(result.session)) == ({"r0"}, {})


# -- trials leave no trace -------------------------------------------------------------------------------------------


def columns(cluster: ClusterState, result: SessionResult) -> dict[str, Any]:
    """All that a session counts."""
    session = result.session
    nodes, pods = session.view.nodes, session.view.pods
    amounts = (nodes.idle, nodes.used, nodes.releasing, nodes.pipelined, nodes.scoring, pods.state, pods.node)
    return {
        "columns": [column.tolist() for column in amounts],
        "jobs": {key: (job.counts, job.allocated_hyper_node) for key, job in session.view.jobs.items()},
        "groups": {
            key: [(s.counts, s.allocated_hyper_node) for s in job.sub_jobs.values()]
            for key, job in session.view.jobs.items()
        },
        "allocated": {name: gauges.amounts["allocated"].tolist() for name, gauges in session.report.gauges.items()},
    }


@pytest.mark.parametrize(
    "cluster",
    [
        lambda: topological(9, *racks(2, 2), tier=2),
        lambda: topological(5, *racks(2, 2), tier=1),
        lambda: topological(9, *racks(2, 2), mode="soft"),
        lambda: builders.state(
            builders.queue("default"), *racks(2, 2), builders.pod_group("j", 9), builders.gang("j", 9)
        ),
        lambda: builders.state(
            builders.queue("default"),
            *racks(2, 2),
            builders.pod_group(
                "j", 4, subGroupPolicy=[{"name": "g", "matchLabelKeys": ["g"], "subGroupSize": 4, "minSubGroups": 3}]
            ),
            [builders.pod(f"j-{g}{i}", "j", labels={"g": g}) for g in "abc" for i in range(4)],
        ),
    ],
)
def test_what_is_taken_back_leaves_no_trace(cluster: Callable[[], ClusterState]) -> None:
    fresh = cluster()
    fresh.upsert("Pod", builders.pod("other", node="r0-0", cpu="1"))
    fresh.upsert("Pod", builders.pod("going", node="r1-0", cpu="1", deleted=True))
    after = columns(fresh, decide(fresh))
    before = columns(fresh, decide(fresh, POLICY.replace("'allocate'", "'backfill'")))
    assert after == before


# -- batches and shortcuts change nothing ----------------------------------------------------------------------------

TOPOLOGIES: list[dict[str, Any] | None] = [
    None,
    {"mode": "soft"},
    {"mode": "hard", "highestTierAllowed": 1},
    {"mode": "hard", "highestTierAllowed": 2},
]
GROUPS: list[dict[str, Any] | None] = [
    None,
    None,
    {"subGroupSize": 2, "minSubGroups": 1},
    {"subGroupSize": 2, "minSubGroups": 2, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
    {"subGroupSize": 1, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
]

JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "count": st.integers(1, 8),
            "minimum": st.integers(1, 8),
            "cpus": st.sampled_from([("1",), ("2",), ("1", "2"), ("500m", "1")]),
            "role": st.booleans(),
            "queue": st.sampled_from("ab"),
            "topology": st.sampled_from(TOPOLOGIES),
            "groups": st.sampled_from(GROUPS),
            "number": st.integers(2, 4),
        }
    ),
    min_size=1,
    max_size=6,
)


def random_cluster(
    nodes: list[int], used: list[int], going: list[bool], jobs: list[dict[str, Any]], hyper_nodes: bool
) -> ClusterState:
    """Nodes in four racks of two spines, some of them busy, and jobs of identical and of different pods."""
    cluster = builders.state(builders.queue("a", created=1), builders.queue("b", weight=2, created=2))
    members: dict[str, list[str]] = {"r0": [], "r1": [], "r2": [], "r3": []}
    for i, cpu in enumerate(nodes):
        cluster.upsert("Node", builders.node(f"n{i}", cpu=str(cpu), memory=f"{4 * cpu}Gi"))
        members[f"r{i % 4}"].append(f"n{i}")
        if used[i] and used[i] <= cpu:
            cluster.upsert("Pod", builders.pod(f"u{i}", node=f"n{i}", cpu=str(used[i]), deleted=going[i]))
    spines = {"s0": ["r0", "r1"], "s1": ["r2", "r3"]}
    for tier, kind, table in ((1, "Node", members), (2, "HyperNode", spines)):
        for name, held in table.items():
            selected = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in held]
            spec = {"metadata": {"name": name}, "spec": {"tier": tier, "members": selected}}
            if hyper_nodes and selected:
                cluster.upsert("HyperNode", crds.HyperNode.parse(spec))
    for number, job in enumerate(jobs):
        name, count = f"j{number}", job["count"]
        topology = {"networkTopology": job["topology"]} if job["topology"] else {}
        policies = [{"name": "g", "matchLabelKeys": ["g"], **job["groups"]}] if job["groups"] else []
        cluster.upsert(
            "PodGroup",
            builders.pod_group(
                name,
                min(job["minimum"], count),
                queue=job["queue"],
                created=number,
                subGroupPolicy=policies,
                **topology,
            ),
        )
        for i in range(count):
            cluster.upsert(
                "Pod",
                builders.pod(
                    f"{name}-{i}",
                    name,
                    cpu=job["cpus"][i % len(job["cpus"])],
                    labels={"g": str(i % job["number"])},
                    annotations={"volcano.sh/task-spec": "worker"} if job["role"] else {},
                ),
            )
    return cluster


#: a full HyperNode beside one that is chosen: whether it is asked about counts
_GROWS_BESIDE_A_FULL_ONE = {
    "count": 12,
    "minimum": 10,
    "cpus": ("1",),
    "role": False,
    "queue": "a",
    "topology": {"mode": "soft"},
    "groups": {"subGroupSize": 3, "networkTopology": {"mode": "hard", "highestTierAllowed": 2}},
    "number": 2,
}


@pytest.mark.exhaustive
@tried(30)
@example(nodes=[3] * 11, used=[0] * 10 + [1], going=[False] * 11, jobs=[_GROWS_BESIDE_A_FULL_ONE], hyper_nodes=True)
@given(
    nodes=st.lists(st.integers(1, 6), min_size=1, max_size=9),
    used=st.lists(st.integers(0, 3), min_size=9, max_size=9),
    going=st.lists(st.booleans(), min_size=9, max_size=9),
    jobs=JOBS,
    hyper_nodes=st.booleans(),
)
def test_a_session_decides_as_one_that_places_each_pod_alone_and_tries_every_hyper_node(
    nodes: list[int], used: list[int], going: list[bool], jobs: list[dict[str, Any]], hyper_nodes: bool
) -> None:
    cluster = random_cluster(nodes, used, going, jobs, hyper_nodes)
    quick = decide(cluster)
    careful = builders.decide(cluster, POLICY, plain=True)
    assert bound(quick) == bound(careful)
    assert pipelined(quick) == pipelined(careful)
    tree, jobs_of = quick.session.view.topology, careful.session.view.jobs
    for key, job in quick.session.view.jobs.items():
        assert tree.name(job.allocated_hyper_node) == tree.name(jobs_of[key].allocated_hyper_node)
