"""The plugin: its switches, what it says, and which pods it wants placed one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.framework.plugin.causes import Passing
from stromboli.framework.session.session import Session
from stromboli.kube import node_affinity
from stromboli.plugins.predicates import Predicates
from stromboli.state.pods import PodRecord
from tests import builders

HOST = "kubernetes.io/hostname"


def opened(*objs: Any, arguments: dict[str, bool] | None = None, **options: Any) -> Session:
    lines = [f"      {key}: {str(value).lower()}" for key, value in (arguments or {}).items()]
    policy = "\n".join(
        [builders.policy("predicates", actions="enqueue"), *(["    arguments:", *lines] if lines else [])]
    )
    cluster = builders.state(builders.queue("default"), builders.pod_group("g"), *objs)
    return builders.decide(cluster, policy, **options).session


def named(session: Session, name: str) -> PodRecord:
    return next(r for r in session.view.pods.records if r is not None and r.name == name)


def feasible(session: Session, name: str) -> list[str]:
    mask = session.kernel.feasible(named(session, name)).tolist()
    return [record.name for record, passes in zip(session.view.nodes.facts.records, mask, strict=True) if passes]


def near(app: str, *, anti: bool = False) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(kind: str = "DoNotSchedule") -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "web"}}
    return [{"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": kind, "labelSelector": selector}]


#: a pod that only n0 takes, by the switch of the filter that says so, and the cause for n1
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "predicate.NodeAffinityEnable": (
        {"nodeSelector": {"disk": "ssd"}},
        "node(s) didn't match Pod's node affinity/selector",
    ),
    "predicate.TaintTolerationEnable": ({}, "node(s) had untolerated taint {dedicated: db}"),
    "predicate.NodePortsEnable": (
        {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
        "node(s) didn't have free ports for the requested pod ports",
    ),
    "predicate.PodAffinityEnable": (
        {"affinity": near("web", anti=True)},
        "node(s) didn't match pod anti-affinity rules",
    ),
    "predicate.PodTopologySpreadEnable": (
        {"topologySpreadConstraints": spread()},
        "node(s) didn't match pod topology spread constraints",
    ),
}


def case(switch: str, *, on: bool) -> Session:
    spec = CASES[switch][0]
    taints = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    return opened(
        builders.node("n0", labels={"disk": "ssd"}),
        builders.node("n1", taints=taints if switch == "predicate.TaintTolerationEnable" else []),
        builders.pod(
            "running",
            node="n1",
            labels={"app": "web"},
            containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
        ),
        builders.pod("p", "g", labels={"app": "web"}, **spec),
        arguments=None if on else {switch: False},
    )


@pytest.mark.parametrize("switch", CASES)
def test_each_filter_names_its_cause(switch: str) -> None:
    session = case(switch, on=True)
    causes = {cause: mask.tolist() for cause, mask in session.kernel.causes(named(session, "p"))}
    assert causes == {CASES[switch][1]: [False, True]}


@pytest.mark.parametrize("switch", CASES)
def test_each_filter_can_be_turned_off(switch: str) -> None:
    session = case(switch, on=False)
    assert feasible(session, "p") == ["n0", "n1"]
    assert not session.kernel.varies(named(session, "p"))


RESTARTS = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]
BOTH = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"]


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        ({"containers": [{"name": "c", "restartPolicyRules": RESTARTS}]}, ["restarts", "both"]),
        ({"initContainers": [{"name": "c", "restartPolicyRules": RESTARTS}]}, ["restarts", "both"]),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, None),
        ({"hostNetwork": True, "hostUsers": False}, ["users", "both"]),
        ({"hostNetwork": True, "hostUsers": True}, None),
        ({"hostUsers": False}, None),
        (
            {"hostNetwork": True, "hostUsers": False, "containers": [{"name": "c", "restartPolicyRules": RESTARTS}]},
            ["both"],
        ),
    ],
)
def test_pods_go_to_nodes_that_declare_the_features_they_need(spec: dict[str, Any], nodes: list[str] | None) -> None:
    declared = {"none": [], "restarts": BOTH[:1], "users": BOTH[1:], "both": BOTH}
    session = opened(
        *(builders.node(name, status={"declaredFeatures": features}) for name, features in declared.items()),
        builders.pod("plain", "g"),
        builders.pod("p", "g", **spec),
    )
    assert feasible(session, "p") == (list(declared) if nodes is None else nodes)
    assert feasible(session, "plain") == list(declared)
    causes = [cause for cause, _ in session.kernel.causes(named(session, "p"))]
    assert causes == ([] if nodes is None else ["node(s) didn't match Pod's required features"])


def test_cordoned_nodes_take_only_pods_that_tolerate_it() -> None:
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    session = opened(
        builders.node("n0", unschedulable=True),
        builders.pod("p", "g"),
        builders.pod("daemon", "g", tolerations=[toleration]),
    )
    assert feasible(session, "p") == []
    assert [cause for cause, _ in session.kernel.causes(named(session, "p"))] == ["node(s) were unschedulable"]
    assert feasible(session, "daemon") == ["n0"]


@pytest.mark.parametrize(
    ("status", "taint"), [("False", "not-ready"), ("Unknown", "unreachable"), ("odd", "unreachable")]
)
def test_a_node_that_is_not_ready_takes_only_pods_that_tolerate_its_taint(status: str, taint: str) -> None:
    key = f"node.kubernetes.io/{taint}"
    cluster = (
        builders.node("n0", ready=status),
        builders.node("n1", ready="True"),
        builders.node("n2"),
        builders.pod("p", "g"),
        builders.pod("daemon", "g", tolerations=[{"key": key, "operator": "Exists"}]),
        builders.pod("evictable", "g", tolerations=[{"key": key, "operator": "Exists", "effect": "NoExecute"}]),
    )
    session = opened(*cluster)
    assert feasible(session, "p") == feasible(session, "evictable") == ["n1", "n2"]
    assert [cause for cause, _ in session.kernel.causes(named(session, "p"))] == ["node(s) were not ready"]
    assert feasible(session, "daemon") == ["n0", "n1", "n2"]
    assert feasible(opened(*cluster, compatibility="volcano"), "p") == ["n0", "n1", "n2"]


def test_what_nodes_say_is_asked_once_for_pods_with_the_same_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    required_nodes = node_affinity.required_nodes
    monkeypatch.setattr(
        node_affinity, "required_nodes", lambda spec, facts: asked.append(spec) or required_nodes(spec, facts)
    )
    session = opened(
        *(builders.node(f"n{at}", labels={"pool": str(at % 3)}) for at in range(6)),
        *(builders.pod(f"p{at}", "g", cpu=f"{1 + at}", nodeSelector={"pool": str(at % 3)}) for at in range(9)),
        builders.pod("near", "g", nodeSelector={"pool": "0"}, affinity=near("web")),
    )
    for at in range(9):
        assert feasible(session, f"p{at}") == [f"n{at % 3}", f"n{at % 3 + 3}"]
    assert feasible(session, "near") == []
    assert len(asked) == 3


def test_a_running_pod_keeps_others_away() -> None:
    session = opened(
        builders.node("n0"),
        builders.node("n1"),
        builders.pod("r", node="n0", labels={"app": "db"}, affinity=near("web", anti=True)),
        builders.pod("p", "g", labels={"app": "web"}),
        builders.pod("q", "g", labels={"app": "cache"}),
    )
    assert feasible(session, "p") == ["n1"]
    assert session.kernel.varies(named(session, "p"))
    assert feasible(session, "q") == ["n0", "n1"]
    assert not session.kernel.varies(named(session, "q"))


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": near("web")},
        {"affinity": near("web", anti=True)},
        {"topologySpreadConstraints": spread()},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
    ],
)
def test_pods_whose_nodes_depend_on_other_pods_vary(spec: dict[str, Any]) -> None:
    session = opened(builders.node("n0"), builders.pod("p", "g", labels={"app": "web"}, **spec))
    assert session.kernel.varies(named(session, "p"))


def test_pods_with_preferences_only_do_not_vary() -> None:
    session = opened(builders.node("n0"), builders.pod("p", "g", topologySpreadConstraints=spread("ScheduleAnyway")))
    assert not session.kernel.varies(named(session, "p"))


def test_a_view_of_some_nodes_gets_the_answers_of_those() -> None:
    session = opened(
        builders.node("n0"), builders.node("n1", labels={"disk": "ssd"}), builders.node("n2"),
        builders.pod("p", "g", nodeSelector={"disk": "ssd"}),
    )  # fmt: skip
    plugin = next(p for p in session.plugins if isinstance(p, Predicates))
    view = session.view.nodes.view(session.view.nodes.rows[[2, 1]])
    assert [mask.tolist() for _, mask in plugin.predicate(named(session, "p"), view)] == [[False, True]]


def template(name: str, zone: str) -> Any:
    return builders.pod(name, "g", nodeSelector={"zone": zone}, annotations={"volcano.sh/template-uid": "t"})


@pytest.mark.parametrize(("compatibility", "nodes"), [("volcano", ["n0"]), ("strict", ["n1"])])
def test_answers_are_shared_by_template_only_as_volcano_does(compatibility: str, nodes: list[str]) -> None:
    session = opened(
        builders.node("n0", labels={"zone": "a"}), builders.node("n1", labels={"zone": "b"}),
        template("p", "a"), template("q", "b"),
        arguments={"predicate.CacheEnable": True},
        compatibility=compatibility,
    )  # fmt: skip
    assert feasible(session, "p") == ["n0"]
    assert feasible(session, "q") == nodes


@pytest.mark.parametrize("switch", CASES)
def test_only_what_other_pods_cause_passes_when_they_go(switch: str) -> None:
    session = case(switch, on=True)
    found = {isinstance(cause, Passing) for cause, _ in session.kernel.causes(named(session, "p"))}
    assert found == {switch not in ("predicate.NodeAffinityEnable", "predicate.TaintTolerationEnable")}
