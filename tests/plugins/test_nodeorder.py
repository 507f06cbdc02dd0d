"""The plugin: weights, and what counts as requested on a node."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from stromboli.api import objects
from stromboli.api.resources import Vector
from stromboli.discovery import discover
from stromboli.framework.cluster.nodes import NodeView
from stromboli.framework.cluster.view import View
from stromboli.framework.registry import Registry
from stromboli.framework.session.session import Session
from stromboli.plugins.nodeorder import NodeOrder
from stromboli.simulation.manifests import decode
from stromboli.state.pods import PodRecord
from tests import builders
from tests.fuzz import tried

WEIGHTS = (
    "leastrequested", "mostrequested", "balancedresource", "imagelocality",
    "nodeaffinity", "podaffinity", "tainttoleration", "podtopologyspread",
)  # fmt: skip
NODES = 80
TENS = range(0, NODES, 10)
SSD = [{"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]


def opened(*objs: Any) -> Session:
    cluster = builders.state(builders.queue("default"), builders.pod_group("g"), *objs)
    return builders.decide(cluster, builders.policy("predicates", actions="enqueue")).session


def named(session: Session, name: str) -> PodRecord:
    return next(r for r in session.view.pods.records if r is not None and r.name == name)


def plugin(session: Session, **weights: int) -> NodeOrder:
    """The plugin with only the given weights."""
    given = {f"{name}.weight": weights.get(name, 0) for name in WEIGHTS}
    out = NodeOrder(NodeOrder.Arguments.model_validate(given))
    out.open(session.view)
    return out


def scores(plugin: NodeOrder, session: Session, name: str) -> list[float] | None:
    out = plugin.node_order(named(session, name), session.view.nodes.view(session.view.nodes.rows))
    return None if out is None else out.tolist()


def two_nodes() -> Session:
    return opened(
        builders.node("n0", cpu="10", memory="10Gi"),
        builders.node("n1", cpu="10", memory="20Gi"),
        builders.pod("r", node="n0", cpu="4", memory="5Gi"),
        builders.pod("p", "g", cpu="1", memory="1Gi"),
        builders.pod("best-effort", "g", cpu="", memory=""),
        builders.pod("q", "g", cpu="2", memory="2Gi"),
    )


def test_default_weights() -> None:
    arguments = NodeOrder.Arguments()
    assert arguments.model_dump() == {
        "least_requested": 1, "most_requested": 0, "balanced_resource": 1, "node_affinity": 2,
        "pod_affinity": 2, "taint_toleration": 3, "image_locality": 1, "pod_topology_spread": 2, "selector_spread": 0,
    }  # fmt: skip


def test_wrong_weights_are_errors() -> None:
    with pytest.raises(ValidationError, match=r"leastrequested\.weigth"):
        NodeOrder.Arguments.model_validate({"leastrequested.weigth": 1})
    with pytest.raises(ValidationError, match="valid integer"):
        NodeOrder.Arguments.model_validate({"leastrequested.weight": "much"})


def test_scores_by_fullness() -> None:
    session = two_nodes()
    # n0: 5 of 10 cpu and 6 of 10 Gi with the pod, n1: 1 of 10 and 1 of 20
    assert scores(plugin(session, leastrequested=1), session, "p") == [(50 + 40) // 2, (90 + 95) // 2]
    assert scores(plugin(session, leastrequested=3), session, "p") == [3 * 45, 3 * 92]
    assert scores(plugin(session, mostrequested=1), session, "p") == [(50 + 60) // 2, (10 + 5) // 2]


def test_containers_without_requests_count_a_little() -> None:
    session = two_nodes()
    # 100 milli-cpu and 200 MiB: 4.1 of 10 cpu and 5.2 of 10 Gi
    assert scores(plugin(session, leastrequested=1), session, "best-effort") == [(59 + 48) // 2, (99 + 99) // 2]


def test_pods_without_requests_are_not_balanced() -> None:
    session = two_nodes()
    assert scores(plugin(session, balancedresource=1), session, "best-effort") is None
    # n0 differs by 0.1 before and after: 75; n1 by nothing before and 0.05 after: 50 + (50 - 3) // 2
    assert scores(plugin(session, balancedresource=1), session, "p") == [75, 73]


def test_gpus_are_balanced_when_they_are_requested() -> None:
    session = opened(
        builders.node("n0", cpu="10", memory="10Gi", resources={"nvidia.com/gpu": "2"}),
        builders.pod("p", "g", cpu="5", memory="5Gi", resources={"nvidia.com/gpu": "1"}),
        builders.pod("q", "g", cpu="5", memory="5Gi"),
        builders.pod("s", "g", cpu="5", memory="5Gi", resources={"nvidia.com/gpu": "2"}),
    )
    even = plugin(session, balancedresource=1)
    assert scores(even, session, "p") == [75]
    assert scores(even, session, "q") == [75]
    # shares 0.5, 0.5 and 1: a standard deviation of 0.2357
    assert scores(even, session, "s") == [50 + (50 + 76 - 100) // 2]


def test_promised_pods_count_at_once_and_evicted_ones_no_more() -> None:
    session = two_nodes()
    order = plugin(session, leastrequested=1, balancedresource=1)
    before = scores(order, session, "p")
    statement = session.statement()
    sub_job = next(iter(session.view.jobs["default/g"].sub_jobs.values()))

    def tell(method: str) -> None:
        # the session was opened without the plugin: hand it what was done
        getattr(order, method)(statement.operations[-1])

    statement.pipeline(sub_job, named(session, "q"), 1)
    tell("on_allocate")
    assert scores(order, session, "p") == scores_with(("r", "n0", "4", "5Gi"), ("q", "n1", "2", "2Gi"))
    statement.evict(named(session, "r"), "test")
    tell("on_deallocate")
    assert scores(order, session, "p") == scores_with(("q", "n1", "2", "2Gi"))
    operations = list(statement.operations)
    statement.discard()
    for operation in reversed(operations):
        getattr(order, "on_allocate" if operation.reason else "on_deallocate")(operation)
    assert scores(order, session, "p") == before


def scores_with(*running: tuple[str, str, str, str]) -> list[float] | None:
    """The scores of the pod p where these pods run."""
    session = opened(
        builders.node("n0", cpu="10", memory="10Gi"),
        builders.node("n1", cpu="10", memory="20Gi"),
        [builders.pod(name, node=node, cpu=cpu, memory=memory) for name, node, cpu, memory in running],
        builders.pod("p", "g", cpu="1", memory="1Gi"),
    )
    return scores(plugin(session, leastrequested=1, balancedresource=1), session, "p")


def test_nothing_to_prefer_is_no_score() -> None:
    session = two_nodes()
    order = plugin(session, **dict.fromkeys(WEIGHTS, 1))
    assert order.batch_node_order(named(session, "p"), session.view.nodes.view(session.view.nodes.rows)) is None
    assert not order.varies_on_node(named(session, "p"))


def test_preferred_node_affinity_is_relative_to_the_nodes_to_choose_from() -> None:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": SSD}}
    session = opened(
        builders.node("n0", labels={"disk": "ssd"}), builders.node("n1"), builders.node("n2", labels={"disk": "ssd"}),
        builders.pod("p", "g", affinity=affinity),
    )  # fmt: skip
    order, pod = plugin(session, nodeaffinity=2), named(session, "p")
    everywhere = order.batch_node_order(pod, session.view.nodes.view(session.view.nodes.rows))
    assert everywhere is not None
    assert everywhere.tolist() == [200, 0, 200]
    assert order.batch_node_order(pod, session.view.nodes.view(session.view.nodes.rows[[0, 2]])) is None
    assert not order.varies_on_node(pod)


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_pods_that_prefer_company_vary(kind: str) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    weighted = [{"weight": 1, "podAffinityTerm": term}]
    affinity = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    session = opened(builders.node("n0"), builders.pod("p", "g", affinity=affinity))
    assert plugin(session, podaffinity=1).varies_on_node(named(session, "p"))
    assert not plugin(session, podaffinity=0).varies_on_node(named(session, "p"))


@tried(20)
@given(
    sizes=st.lists(st.sampled_from([("4", "8Gi"), ("8", "16Gi")]), min_size=6, max_size=12),
    with_image=st.sets(st.integers(0, 11)),
    leaving=st.sets(st.integers(0, 11), max_size=3),
    jobs=st.lists(st.tuples(st.sampled_from(["500m", "1", "1500m"]), st.integers(2, 12)), min_size=1, max_size=5),
)
def test_elastic_jobs_get_the_nodes_that_they_get_without_what_is_known_of_amounts(
    sizes: list[tuple[str, str]], with_image: set[int], leaving: set[int], jobs: list[tuple[str, int]]
) -> None:
    nodes = [builders.node(f"n{i}", cpu=cpu, memory=memory) for i, (cpu, memory) in enumerate(sizes)]
    image = objects.ContainerImage(names=["example.com/app:1"], size_bytes=400 << 20)
    for i in with_image & set(range(len(nodes))):
        nodes[i] = replace(nodes[i], status=replace(nodes[i].status, images=[image]))
    running = [builders.pod(f"r{i}", node=f"n{i}", cpu="3", deleted=True) for i in leaving if i < len(nodes)]
    groups = [builders.pod_group(f"j{i}", min_member=1) for i in range(len(jobs))]
    pods = [builders.pod(f"j{i}-{k}", f"j{i}", cpu=cpu) for i, (cpu, count) in enumerate(jobs) for k in range(count)]
    cluster = builders.state(builders.queue("default"), nodes, groups, pods, running)
    policy = builders.policy("gang", "drf predicates proportion nodeorder binpack")
    policy = policy.replace("- name: nodeorder", "- name: nodeorder\n    arguments: {imagelocality.weight: 5}")
    known = builders.decide(cluster, policy).decisions
    assert builders.decide(cluster, policy, plain=True).decisions == known


def test_many_nodes_score_as_few_of_them_whatever_was_evicted_and_promised() -> None:
    compared = 0

    class Compared(NodeOrder):
        def open(self, view: View) -> None:
            super().open(view)
            self._nodes = view.nodes

        def node_order(self, pod: PodRecord, nodes: NodeView) -> Vector | None:
            nonlocal compared
            found = super().node_order(pod, nodes)
            if len(nodes) == NODES:
                parts = (
                    super(Compared, self).node_order(pod, self._nodes.view(nodes.rows[at : at + 10])) for at in TENS
                )
                assert found is not None
                assert found.tolist() == np.concatenate([part for part in parts if part is not None]).tolist()
                compared += 1
            return found

    known = discover()
    cluster = builders.state(
        builders.queue("default"),
        [decode("PriorityClass", {"metadata": {"name": n}, "value": v}, n) for n, v in (("low", 1), ("high", 9))],
        [builders.node(f"n{i:02}", cpu="8", memory=f"{8 + i % 3}Gi") for i in range(NODES)],
        [builders.pod_group(f"low{i}", 1, priorityClassName="low") for i in range(NODES)],
        [
            builders.pod(f"low{i}-{k}", f"low{i}", node=f"n{i:02}", cpu="4", memory="2Gi", priority=1)
            for i in range(NODES)
            for k in range(1 + (i % 4 > 0))
        ],
        [builders.pod_group(f"high{i}", 2, priorityClassName="high") for i in range(9)],
        [
            builders.pod(f"high{i}-{k}", f"high{i}", cpu=f"{1000 + 1500 * (i % 3)}m", memory=f"{1 + i}Gi", priority=9)
            for i in range(9)
            for k in range(2)
        ],
    )
    registry = Registry(known.actions, known.plugins | {"nodeorder": Compared})
    policy = builders.policy("priority gang", "predicates nodeorder binpack", actions="preempt, allocate")
    result = builders.decide(cluster, policy, registry=registry)
    assert not result.session.failures
    assert result.session.evicted
    assert compared >= 9


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", ["a", "b"])
def test_pods_of_a_class_go_where_others_prefer_them_by_their_labels(first: str, together: bool) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "b"}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    order = [first, "a" if first == "b" else "b"]
    groups = ["g", "g"] if together else [f"g-{name}" for name in order]
    cluster = builders.state(
        builders.queue("default"),
        [builders.node("near", cpu="16"), builders.node("far", cpu="16")],
        builders.pod("shy", node="near", affinity={"podAntiAffinity": preferred}),
        builders.pod("large", node="far", cpu="6"),
        [builders.pod_group(name, 1 + together, created=at) for at, name in enumerate(dict.fromkeys(groups))],
        [
            builders.pod(f"{g}-{at}-{n}", g, labels={"app": n})
            for at, (n, g) in enumerate(zip(order, groups, strict=True))
        ],
    )
    bound = builders.decide(cluster, builders.policy("gang", "predicates nodeorder")).session.bound
    assert {pod[-1]: node for pod, node in bound.items()} == {"a": "near", "b": "far"}


@tried(30)
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(0, 4)), min_size=1, max_size=6),
    st.sampled_from(["ReplicaSet", "StatefulSet", "ReplicationController"]),
)
def test_replicas_are_spread_over_nodes_and_zones_by_default(nodes: list[tuple[str, int]], kind: str) -> None:
    """As kube-scheduler's own constraints do: of nodes with a skew of 3, of zones with one of 5."""
    scores = spread_by_default(nodes, owner(kind))
    zones = {zone for zone, _ in nodes}
    crowding = []
    for zone, count in nodes:
        of_zone = sum(n for other, n in nodes if other == zone)
        zonal = of_zone * math.log(len(zones) + 2) + 4 if zone else 0
        crowding.append(math.floor(count * math.log(len(nodes) + 2) + 2 + zonal + 0.5))
    expected = [100 * (max(crowding) + min(crowding) - each) // max(crowding) for each in crowding]
    assert (scores is None and len(set(expected)) == 1) or scores == expected


def test_only_replicas_without_constraints_of_their_own_are_spread_by_default() -> None:
    nodes = [("a", 3), ("b", 0)]
    own = {"maxSkew": 1, "topologyKey": "disk", "whenUnsatisfiable": "DoNotSchedule"}
    assert spread_by_default(nodes, owner("ReplicaSet")) is not None
    assert spread_by_default(nodes, owner("ReplicaSet"), topologySpreadConstraints=[own]) is None
    assert spread_by_default(nodes, owner("ReplicaSet", controller=False)) is None
    for kind in ("Job", "DaemonSet", "Pod"):
        assert spread_by_default(nodes, owner(kind)) is None


def owner(kind: str, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "uid-web", "controller": controller}


def spread_by_default(nodes: list[tuple[str, int]], owner: dict[str, Any], **spec: Any) -> list[int] | None:
    """What nodes score for another pod of a PodGroup; of each its zone, and how many of the pods it has."""
    group = builders.pod_group("web")
    group.metadata.owner_references.append(owner)
    session = opened(
        group,
        [builders.node(f"n{i}", labels={"topology.kubernetes.io/zone": zone} if zone else {})
         for i, (zone, _) in enumerate(nodes)],
        [builders.pod(f"w-{i}-{k}", "web", node=f"n{i}") for i, (_, count) in enumerate(nodes) for k in range(count)],
        builders.pod("g", "g", node="n0"),
        pod := builders.pod("new", "web", **spec),
    )  # fmt: skip
    scores = plugin(session, podtopologyspread=1).batch_node_order(
        named(session, pod.metadata.name), session.view.nodes.view(session.view.nodes.rows)
    )
    return None if scores is None else scores.astype(int).tolist()
