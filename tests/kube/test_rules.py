"""The rules in vectors against the plain way, on random clusters, before and after placements of the session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.framework.session.session import Session
from stromboli.plugins.nodeorder import NodeOrder
from stromboli.plugins.predicates import Predicates
from stromboli.state.pods import PodRecord
from tests.fuzz import tried
from tests.kube import clusters
from tests.kube.oracle import World

PLAIN = tried(30)


def record(session: Session, pod: dict[str, Any]) -> PodRecord:
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    return next(r for r in session.view.pods.records if r is not None and r.key == key)


def passed(session: Session, pod: PodRecord) -> list[bool]:
    plugin = next(p for p in session.plugins if isinstance(p, Predicates))
    view = session.view.nodes.view(session.view.nodes.rows)
    out = np.ones(len(view), np.bool_)
    for _, mask in plugin.predicate(pod, view):
        out &= mask
    return out.tolist()


def scores(session: Session, pod: PodRecord, weights: dict[str, int], rows: list[int]) -> list[float]:
    """The set-dependent scores with only some of them switched on."""
    off = dict.fromkeys(
        ("nodeaffinity.weight", "podaffinity.weight", "tainttoleration.weight", "podtopologyspread.weight"), 0
    )
    plugin = NodeOrder(NodeOrder.Arguments.model_validate(off | weights))
    plugin.open(session.view)
    out = plugin.batch_node_order(pod, session.view.nodes.view(np.array(rows)))
    return [0.0] * len(rows) if out is None else out.tolist()


def relative(values: list[float] | list[int]) -> list[float]:
    """Scores up to a constant, which changes no placement."""
    return [value - values[0] for value in values]


@PLAIN
@given(clusters.worlds(clusters.node_rules, tainted=True))
def test_filters_of_the_node_alone(case: tuple[World, dict[str, Any]]) -> None:
    world, pod = case
    session = clusters.opened(world, pod)
    expected = [world.passes(pod, i) for i in range(len(world.nodes))]
    assert passed(session, record(session, pod)) == expected


@PLAIN
@given(clusters.worlds(clusters.pod_rules))
def test_filters_between_pods(case: tuple[World, dict[str, Any]]) -> None:
    world, pod = case
    session = clusters.opened(world, pod)
    expected = [world.passes(pod, i) for i in range(len(world.nodes))]
    assert passed(session, record(session, pod)) == expected


@pytest.mark.exhaustive
@tried(60)
@given(clusters.worlds(clusters.spread_rules, tainted=True))
def test_filters_of_topology_spread(case: tuple[World, dict[str, Any]]) -> None:
    world, pod = case
    session = clusters.opened(world, pod)
    expected = [world.passes(pod, i) for i in range(len(world.nodes))]
    assert passed(session, record(session, pod)) == expected


def two_zones(**spec: Any) -> tuple[Session, PodRecord]:
    """Zones a and b with a node and a pod each, web in a and db in b; the pod that waits is another web."""
    nodes = [
        {
            "metadata": {"name": f"n{zone}", "labels": {clusters.HOST: f"n{zone}", clusters.ZONE: zone}},
            "spec": {},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
        }
        for zone in "ab"
    ]

    def pod(name: str, app: str, **more: Any) -> dict[str, Any]:
        container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
        metadata = {"name": name, "namespace": "default", "labels": {"app": app, "tier": "1"}}
        metadata["annotations"] = {"scheduling.k8s.io/group-name": "group"}
        return {"metadata": metadata, "spec": {"schedulerName": "stromboli", "containers": [container], **more}}

    placed = [(pod(app, app, nodeName=f"n{zone}"), at) for at, (app, zone) in enumerate((("web", "a"), ("db", "b")))]
    for each, _ in placed:
        each["status"] = {"phase": "Running"}
    waiting = pod("new", "web", **spec)
    session = clusters.opened(World(nodes, placed, clusters.NAMESPACES), waiting)
    return session, record(session, waiting)


@pytest.mark.parametrize(("wanted", "open_to"), [(2, [True, True]), (3, [False, False])])
def test_as_many_domains_as_are_wanted_are_enough(wanted: int, open_to: list[bool]) -> None:
    selector = {"matchLabels": {"tier": "1"}}
    spread = {"maxSkew": 1, "minDomains": wanted, "topologyKey": clusters.ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    assert passed(*two_zones(topologySpreadConstraints=[spread | {"labelSelector": selector}])) == open_to


def test_a_preference_counts_with_its_weight() -> None:
    terms = [
        {
            "weight": weight,
            "podAffinityTerm": {"topologyKey": clusters.ZONE, "labelSelector": {"matchLabels": {"app": app}}},
        }
        for app, weight in (("web", 1), ("db", 10))
    ]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    near_web, near_db = scores(*two_zones(affinity=affinity), {"podaffinity.weight": 1}, [0, 1])
    assert near_db > near_web


@PLAIN
@given(clusters.worlds(st.one_of(clusters.pod_rules, clusters.spread_rules)), st.data())
def test_placements_of_the_session_count_until_they_are_taken_back(
    case: tuple[World, dict[str, Any]], data: st.DataObject
) -> None:
    world, pod = case
    first = {**pod, "metadata": {**pod["metadata"], "name": "first"}}
    session = clusters.opened(world, pod, first)
    job = session.view.jobs[f"{pod['metadata']['namespace']}/group"]
    sub_job = next(iter(job.sub_jobs.values()))
    node = data.draw(st.integers(0, len(world.nodes) - 1))
    before = [world.passes(pod, i) for i in range(len(world.nodes))]
    assert passed(session, record(session, pod)) == before

    statement = session.statement()
    if data.draw(st.booleans()):
        statement.allocate(sub_job, (record(session, first),), (node,))
    else:
        statement.pipeline(sub_job, record(session, first), node)
    after = World(world.nodes, [*world.placed, (first, node)], world.namespaces)
    assert passed(session, record(session, pod)) == [after.passes(pod, i) for i in range(len(world.nodes))]

    statement.discard()
    assert passed(session, record(session, pod)) == before


@pytest.mark.exhaustive
@PLAIN
@given(clusters.worlds(clusters.pod_rules), st.booleans())
def test_evicted_pods_do_not_count(case: tuple[World, dict[str, Any]], asked_before: bool) -> None:
    world, pod = case
    running = [(p, w) for p, w in world.placed if "deletionTimestamp" not in p["metadata"]]
    session = clusters.opened(world, pod)
    if asked_before:
        passed(session, record(session, pod))
    statement = session.statement()
    for victim, _ in running:
        statement.evict(record(session, victim), "test")
    left = World(world.nodes, [p for p in world.placed if p not in running], world.namespaces)
    assert passed(session, record(session, pod)) == [left.passes(pod, i) for i in range(len(world.nodes))]
    statement.discard()
    assert passed(session, record(session, pod)) == [world.passes(pod, i) for i in range(len(world.nodes))]


@PLAIN
@given(
    clusters.worlds(st.one_of(clusters.node_rules, clusters.pod_rules, clusters.spread_rules), tainted=True),
    st.sampled_from(["node_affinity", "taint_toleration", "pod_affinity", "topology_spread"]),
    st.data(),
)
def test_scores_over_the_nodes_to_choose_from(
    case: tuple[World, dict[str, Any]], which: str, data: st.DataObject
) -> None:
    world, pod = case
    session = clusters.opened(world, pod)
    rows = sorted(data.draw(st.sets(st.integers(0, len(world.nodes) - 1), min_size=1)))
    expected = getattr(world, which)(pod, rows)
    argument = {"topology_spread": "podtopologyspread"}.get(which, which.replace("_", "")) + ".weight"
    found = scores(session, record(session, pod), {argument: 2}, rows)
    assert relative(found) == relative([2 * score for score in expected])


@PLAIN
@given(clusters.worlds(st.one_of(clusters.node_rules, clusters.pod_rules)))
def test_pods_that_do_not_vary_pass_the_same_nodes_wherever_pods_like_them_go(
    case: tuple[World, dict[str, Any]],
) -> None:
    world, pod = case
    session = clusters.opened(world, pod)
    predicates = next(p for p in session.plugins if isinstance(p, Predicates))
    if predicates.varies(record(session, pod)):
        return
    on_node = predicates.varies_on_node(record(session, pod))
    alone = [world.passes(pod, i) for i in range(len(world.nodes))]
    for node in range(len(world.nodes)):
        crowded = World(world.nodes, [*world.placed, (pod, node)], world.namespaces)
        others = [i for i in range(len(world.nodes)) if not (on_node and i == node)]
        assert [crowded.passes(pod, i) for i in others] == [alone[i] for i in others]
