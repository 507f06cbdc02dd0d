"""What fits starts: a gang is not left waiting for the order of its pods, and what cannot start says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stromboli.api import crds
from stromboli.engine import Engine, SessionResult, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.framework.diagnosis.explain import all_reasons, why_job
from stromboli.placement.exact import places, solving
from stromboli.policy.document import DEFAULT_POLICY
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, racks, state
from tests.kube.test_volumes import claim, csi_node, volume

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUESTS = {"resources": {"requests": {"cpu": "1"}}}
PORT = {"containers": [{"name": "main", "image": "x", "ports": [{"hostPort": 80, "containerPort": 80}], **REQUESTS}]}


def run(*objs: Any, by: str = DEFAULT_POLICY, rules: Any = "strict") -> SessionResult:
    cluster = state(queue("default"), *objs)
    return Engine(by, compatibility=rules).decide(cluster.snapshot(), now=NOON)


def terms(kind: str, key: str, **labels: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def ps_comes_last() -> Iterator[Any]:
    """Three nodes for three pods; the workers, which come first, would take the only one that holds the ps."""
    yield from (node("large", cpu="4"), node("n1", cpu="2"), node("n2", cpu="2"), pod_group("x", 3))
    yield from (pod("x-0", "x", cpu="2"), pod("x-1", "x", cpu="2"), pod("x-2", "x", cpu="4"))


def attracted_by_the_smaller_node() -> Iterator[Any]:
    """Pods that stay together on a node, of which the first has room for four and the second for six."""
    yield from (node("four", cpu="4"), node("six", cpu="12"), pod("held", node="six", cpu="6"), pod_group("x", 6))
    yield [pod(f"x-{i}", "x", labels={"app": "x"}, **terms("podAffinity", HOST, app="x")) for i in range(6)]


def only_one_node_for_the_second() -> Iterator[Any]:
    yield from (node("a", labels={"disk": "ssd"}, cpu="4"), node("b", cpu="4"), pod_group("x", 2))
    yield from (pod("x-0", "x", cpu="4"), pod("x-1", "x", cpu="4", nodeSelector={"disk": "ssd"}))


def hard_and_elastic() -> Iterator[Any]:
    """Racks of four pods for a gang of four with twenty to spare."""
    yield from racks(2, 2)
    yield pod_group("x", 4, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    yield gang("x", 24, memory="")


def the_driver_comes_last() -> Iterator[Any]:
    yield from (node("n", cpu="3"), pod_group("x", 3, minTaskMember={"driver": 1, "worker": 2}))
    yield [pod(f"w-{i}", "x", annotations={"volcano.sh/task-spec": "worker"}) for i in range(6)]
    yield pod("z-0", "x", annotations={"volcano.sh/task-spec": "driver"})


def one_to_spare_is_in_the_way() -> Iterator[Any]:
    """What the queue may hold is enough for two of three pods, if the first is not one of them."""
    yield queue("small", capability={"cpu": "4"})
    yield from (node("n"), pod_group("x", 2, queue="small"))
    yield from (pod("x-0", "x", cpu="3"), pod("x-1", "x", cpu="2"), pod("x-2", "x", cpu="2"))


def who_is_joined_comes_last() -> Iterator[Any]:
    yield from (node("a", cpu="2"), node("b", cpu="2"), pod_group("x", 2))
    yield pod("x-0", "x", **terms("podAffinity", HOST, app="leader"))
    yield pod("x-1", "x", labels={"app": "leader"})


def spread_over_unequal_zones() -> Iterator[Any]:
    """Two zones with places for two pods each if the pods that are not spread leave them alone."""
    yield from (node("u", labels={ZONE: "u"}, cpu="2"), node("v", labels={ZONE: "v"}, cpu="2"))
    yield from (node("w", cpu="2"), pod_group("x", 6))
    yield [pod(f"x-{i}", "x") for i in range(2)]
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}}
    yield [pod(f"y-{i}", "x", labels={"app": "x"}, topologySpreadConstraints=[constraint | selector]) for i in range(4)]


def a_group_for_each_rack() -> Iterator[Any]:
    """Two groups of a small and a large pod, and two racks with a node for each."""
    for rack in "ab":
        names = [f"{rack}-large", f"{rack}-small"]
        yield from (node(names[0], cpu="4"), node(names[1], cpu="2"))
        members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
        yield crds.HyperNode.parse({"metadata": {"name": rack}, "spec": {"tier": 1, "members": members}})
    policy = {"name": "part", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": ["part"]}
    near = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    yield pod_group("x", 4, subGroupPolicy=[policy | near], networkTopology={"mode": "hard", "highestTierAllowed": 2})
    for part in "01":
        yield from (pod(f"x-{part}-0", "x", cpu="2", labels={"part": part}),)
        yield from (pod(f"x-{part}-1", "x", cpu="4", labels={"part": part}),)


FITS = [
    a_group_for_each_rack,
    *(ps_comes_last, attracted_by_the_smaller_node, only_one_node_for_the_second, hard_and_elastic),
    *(the_driver_comes_last, one_to_spare_is_in_the_way, who_is_joined_comes_last, spread_over_unequal_zones),
]
BY = DEFAULT_POLICY.replace("- name: proportion\n", "- name: capacity\n")


@pytest.mark.parametrize("shares", ["capacity", "fairshare"])
@pytest.mark.parametrize("situation", FITS)
def test_what_fits_starts(situation: Any, shares: str) -> None:
    result = run(*situation(), by=DEFAULT_POLICY.replace("- name: proportion\n", f"- name: {shares}\n"))
    job = result.session.view.jobs["default/x"]
    assert job.ready_count >= job.min_available > 0


@pytest.mark.parametrize("situation", [ps_comes_last, only_one_node_for_the_second, the_driver_comes_last])
def test_under_volcanos_rules_the_order_decides(situation: Any) -> None:
    assert not run(*situation(), rules="volcano").session.bound


def test_a_gang_that_has_places_in_order_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_Attempt", None)
    assert len(run(node("n"), pod_group("x", 4), gang("x", 4)).session.bound) == 4


# -- what cannot start ------------------------------------------------------------------------------------------------


def told(result: SessionResult) -> tuple[str, str, str]:
    why = why_job(result.session, result.session.view.jobs["default/x"])
    assert why is not None
    assert {each.reason for key, each in all_reasons(result.session).items() if "/x-" in key} == {why.reason}
    return why.reason, why.message.rpartition("they could be ")[2], why.actionable


def test_volumes_that_a_node_does_not_attach_are_counted() -> None:
    objs = [*(node(f"n{number}") for number in range(2)), pod_group("x", 3)]
    cluster = state(queue("default"), objs)
    for number in range(2):
        cluster.upsert("CSINode", csi_node(f"n{number}", 1))
    for number in range(3):
        csi = {"driver": "csi.example.com", "volumeHandle": f"h{number}"}
        cluster.upsert("PersistentVolume", volume(f"v{number}", csi=csi))
        cluster.upsert("PersistentVolumeClaim", claim(f"c{number}", volume=f"v{number}"))
        claims = [{"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}]
        cluster.upsert("Pod", pod(f"x-{number}", "x", volumes=claims))
    result = Engine(BY).decide(cluster.snapshot(), now=NOON)
    assert told(result)[1] == "with more limits of attached volumes on a node"
    why = result.session.view.trace.jobs["default/x"]
    assert why.detail.endswith("attached volumes: 3 pods request 1 each, and nodes that take one have room for 2")


@pytest.mark.parametrize("held", [0, 1])
def test_four_pods_with_one_port_on_three_nodes_are_told_so(held: int) -> None:
    running = [pod("held", node="n0", **PORT)] if held else []
    result = run(*(node(f"n{i}") for i in range(3)), *running, pod_group("x", 4), gang("x", 4, **PORT))
    assert told(result) == ("CannotBePlacedTogether", "without host port 80/TCP", "user")
    why = result.session.view.trace.jobs["default/x"]
    assert why.detail == "it starts with 4 pods; host port 80/TCP: 4 pods, 3 nodes that could take one each"


def test_what_has_to_go_is_the_smallest_set_of_constraints() -> None:
    nodes = [node(f"n{i}", cpu="2", labels={ZONE: "u"}) for i in range(3)]
    apart = terms("podAntiAffinity", ZONE, app="x")
    pods = [pod(f"x-{i}", "x", cpu="2", labels={"app": "x"}, **apart) for i in range(2)]
    result = run(*nodes, pod_group("x", 2), pods)
    assert told(result) == ("CannotBePlacedTogether", f"without pod anti-affinity by {ZONE}", "user")


def test_nodes_that_a_selector_excludes_are_a_way_out() -> None:
    nodes = [node("a", labels={"disk": "ssd"}, cpu="2"), node("b", cpu="2")]
    pods = [pod(f"x-{i}", "x", cpu="2", nodeSelector={"disk": "ssd"}) for i in range(2)]
    assert (
        told(run(*nodes, pod_group("x", 2), pods))[1]
        == "with more cpu on a node, or on nodes that node selectors, taints or cordons keep them off"
    )


def test_who_only_waits_for_others_is_told_that_it_resolves() -> None:
    running = (pod_group("run", 1, phase="Running"), pod("run-0", "run", cpu="3", node="large"))
    result = run(*running, *ps_comes_last(), by=policy("gang", "predicates"))
    assert not result.session.bound
    why = why_job(result.session, result.session.view.jobs["default/x"])
    assert why is not None
    assert (why.reason, why.actionable) == ("Unschedulable", "wait")


@pytest.mark.parametrize("kept_off", [{"unschedulable": True}, {"labels": {"disk": "hdd"}}])
def test_a_full_cluster_is_no_reason_where_no_node_would_take_the_pod(kept_off: dict[str, Any]) -> None:
    running = [pod_group("run", phase="Running"), *gang("run", 2, node="n")]
    waiting = pod("x-0", "x", nodeSelector={"disk": "ssd"}) if "labels" in kept_off else pod("x-0", "x")
    result = run(node("n", cpu="2", **kept_off), *running, pod_group("x"), waiting)
    assert told(result)[0] == "NoMatchingNode"
    assert told(result)[2] == ("user" if "labels" in kept_off else "admin")


def test_a_gang_that_lost_a_node_is_told_that_its_own_pods_leave_no_room() -> None:
    nodes = [node(f"n{number}", cpu="4") for number in range(2)]
    group = pod_group("x", 3, phase="Running")
    placed = [pod(f"x-{number}", "x", cpu="3", node=f"n{number}") for number in range(2)]
    result = run(*nodes, group, placed, pod("x-2", "x", cpu="3"))
    assert told(result)[::2] == ("CannotBePlacedTogether", "user")
    assert result.session.view.trace.jobs["default/x"].detail.startswith("it lacks 1 pod beside 2 that run; cpu: ")


def test_a_gang_whose_own_pods_hold_the_port_of_the_last_is_told_so() -> None:
    nodes = [node(f"n{number}") for number in range(2)]
    placed = [pod(f"x-{number}", "x", node=f"n{number}", **PORT) for number in range(2)]
    running = [pod_group("run", phase="Running"), pod("run-0", "run", node="n0")]
    result = run(*nodes, running, pod_group("x", 3, phase="Running"), placed, pod("x-2", "x", **PORT))
    assert told(result) == ("CannotBePlacedTogether", "without host port 80/TCP", "user")


def test_what_pods_lack_in_one_order_only_is_not_told_as_if_for_good() -> None:
    """x-0 joins x-1, which has no node to itself; in the order of pods x-0 is tried while there is nothing to join."""
    pods = (
        pod("x-0", "x", cpu="1", **terms("podAffinity", ZONE, app="b")),
        pod("x-1", "x", cpu="1", labels={"app": "b"}),
    )
    running = (pod_group("run", 1, phase="Running"), pod("run-0", "run", cpu="3", node="n"))
    result = run(node("n", cpu="4", labels={ZONE: "u"}), *running, pod_group("x", 2), *pods)
    assert told(result)[::2] == ("PlacesTaken", "wait")


def test_what_was_not_found_within_the_budget_is_not_called_impossible() -> None:
    by = f"{BY}\nsession: {{search: 10}}\n"
    assert told(run(*ps_comes_last(), by=by))[::2] == ("NoPlacesFound", "admin")


def test_what_was_in_vain_is_not_searched_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    search = solving.search

    def counting(*arguments: Any) -> Any:
        asked.append("search")
        return search(*arguments)

    monkeypatch.setattr(solving, "search", counting)
    cluster = state(queue("default"), *(node(f"n{i}") for i in range(3)), pod_group("x", 4), gang("x", 4, **PORT))
    sessions = Successive(Engine(policy("gang", "predicates")), Environment())
    first = sessions.decide(cluster.snapshot(), now=NOON)
    assert asked
    asked.clear()
    second = sessions.decide(cluster.snapshot(), now=NOON + 1)
    assert not asked
    assert told(second) == told(first)
    assert second.environment == first.environment
    cluster.upsert("Node", node("n3"))
    assert len(sessions.decide(cluster.snapshot(), now=NOON + 2).session.bound) == 4
