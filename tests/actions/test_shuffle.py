"""shuffle: evicts what plugins want to see elsewhere; strict rules protect some all the same."""

from __future__ import annotations

from typing import Any

from stromboli.api.decisions import Evict
from stromboli.framework.cluster.environment import Environment, NodeUsage
from tests import builders
from tests.builders import gang, node, pod, pod_group
from tests.plugins import sessions

POLICY = """\
actions: shuffle
tiers:
- plugins:
  - name: gang
  - name: conformance
- plugins:
  - name: rescheduling
    arguments:
      metricsPeriod: 10m
      strategies:
      - name: lowNodeUtilization
        params: {thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}
"""
BUSY = Environment(
    node_usage={
        name: NodeUsage(cpu=cpu, memory=10, measured=builders.NOON) for name, cpu in (("busy", 90), ("idle", 5))
    }
)
NODES = [node("busy", cpu="10"), node("idle", cpu="10")]


def shuffle(*objs: Any, compatibility: Any) -> list[str]:
    result = sessions.decide(NODES, *objs, by=POLICY, environment=BUSY, compatibility=compatibility)
    decisions = [d for d in result.decisions if isinstance(d, Evict)]
    assert {(d.action, d.beneficiary, d.node) for d in decisions} <= {("shuffle", "", "busy")}
    return sorted(d.name for d in decisions)


def test_pods_leave_the_busy_node_until_it_is_not() -> None:
    scene = [pod_group("job", 0, phase="Running"), gang("job", 8, node="busy")]
    for compatibility in ("volcano", "strict"):
        assert shuffle(*scene, compatibility=compatibility) == ["job-0", "job-1", "job-2", "job-3"]


def test_veto_nobody_goes_who_is_critical_or_does_not_agree() -> None:
    scene = [
        pod_group("job", 0, phase="Running"),
        pod("critical", "job", node="busy", priority=2_000_000_000),
        pod("stays", "job", node="busy", annotations={"volcano.sh/preemptable": "false"}),
        pod("goes", "job", node="busy"),
    ]
    assert shuffle(*scene, compatibility="volcano") == ["critical", "goes", "stays"]
    assert shuffle(*scene, compatibility="strict") == ["goes"]


def test_whole_gang_a_gang_keeps_its_minimum() -> None:
    scene = [pod_group("job", 2, phase="Running"), gang("job", 3, node="busy")]
    assert shuffle(*scene, compatibility="volcano") == ["job-0", "job-1", "job-2"]
    assert shuffle(*scene, compatibility="strict") == ["job-0"]
