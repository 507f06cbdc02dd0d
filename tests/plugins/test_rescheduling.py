"""rescheduling: which pods leave busy nodes."""

from __future__ import annotations

from typing import Any

from stromboli.framework.cluster.environment import Environment, NodeUsage
from stromboli.plugins.rescheduling import Rescheduling
from tests import builders
from tests.builders import gang, node, pod, pod_group, queue
from tests.plugins import sessions

STRATEGY = {
    "name": "lowNodeUtilization",
    "params": {"thresholds": {"cpu": 30, "memory": 30}, "targetThresholds": {"cpu": 60, "memory": 60}},
}
ARGUMENTS = {"metricsPeriod": "10m", "interval": "5m", "strategies": [STRATEGY]}


def moved(
    *objs: Any, arguments: dict[str, Any] = ARGUMENTS, last: float | None = None, **load: tuple[float, float]
) -> list[str]:
    """The pods that are to move, the first to go first; `load` gives cpu and memory of nodes of 10 cpu and 10Gi."""
    usage = {name: NodeUsage(cpu, memory, builders.NOON) for name, (cpu, memory) in load.items()}
    ago = None if last is None else builders.NOON - last
    result = sessions.decide(
        [node(name, cpu="10", memory="10Gi") for name in load],
        pod_group("job", 0, phase="Running"),
        *objs,
        by=sessions.policy("rescheduling", arguments),
        environment=Environment(node_usage=usage, left={"rescheduling": ago}),
    )
    (plugin,) = [p for p in result.session.plugins if isinstance(p, Rescheduling)]
    running = result.session.view.members(result.session.view.jobs["default/job"])
    return [victim.name for victim in plugin.victim_tasks(running)]


def test_pods_leave_until_the_load_is_below_the_target() -> None:
    assert moved(gang("job", 9, node="busy"), busy=(85, 20), idle=(10, 10)) == ["job-0", "job-1", "job-2"]


def test_the_least_important_leave_first() -> None:
    pods = [
        pod("low", "job", node="busy", priority=1),
        pod("none", "job", node="busy"),
        pod("high", "job", node="busy", priority=9),
        pod("nothing", "job", node="busy", cpu="", memory="", priority=9),
    ]
    assert moved(*pods, busy=(99, 20), idle=(10, 10)) == ["none", "low", "nothing", "high"]


def test_the_busiest_node_comes_first() -> None:
    pods = [pod("a", "job", node="busy", cpu="2"), pod("b", "job", node="busier", cpu="2")]
    assert moved(*pods, busy=(70, 10), busier=(80, 10), idle=(10, 10)) == ["b", "a"]


def test_nobody_moves_without_a_reason_or_a_place() -> None:
    pods = gang("job", 3, node="one")
    assert moved(pods, one=(50, 20), idle=(10, 10)) == [], "no node is above the target"
    assert moved(pods, one=(20, 20), idle=(10, 10)) == [], "all nodes are idle"
    assert moved(pods, one=(90, 20), other=(50, 50)) == [], "no node is idle"
    assert moved(pods, one=(90, 20), idle=(10, 10), arguments={"metricsPeriod": "10m"}) == [], "the defaults do nothing"
    other_period = {"strategies": [STRATEGY], "metricsPeriod": "5m"}
    assert moved(pods, one=(90, 20), idle=(10, 10), arguments=other_period) == [], "no average over this period"


def test_what_runs_in_a_closed_queue_stays_where_it_is() -> None:
    closed = queue("default", state="Closed")
    assert moved(closed, gang("job", 3, node="one"), one=(90, 20), idle=(10, 10)) == []


def test_rounds_are_an_interval_apart() -> None:
    scene = {"one": (90.0, 20.0), "idle": (10.0, 10.0)}
    assert moved(gang("job", 3, node="one"), last=299, **scene) == []
    assert moved(gang("job", 3, node="one"), last=300, **scene) == []
    for last in (301, -86_400):
        assert moved(gang("job", 3, node="one"), last=last, **scene) == ["job-0", "job-1", "job-2"]


def test_what_is_full_takes_no_more() -> None:
    """The idle node takes exactly one of the pods up to its target."""
    pods = [pod(f"p{i}", "job", node="busy", cpu="5", memory="5Gi") for i in range(2)]
    assert moved(*pods, busy=(200, 200), idle=(10, 10)) == ["p0"]
