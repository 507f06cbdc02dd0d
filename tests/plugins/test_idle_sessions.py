"""When time alone may change what sessions decide: plugins that read the clock say until when it does not."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from stromboli.engine import Engine
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, policy, queue, state

#: when the builders create PodGroups
CREATED = 1_704_067_200.0


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(NOON + seconds, UTC).isoformat().replace("+00:00", "Z")


def with_arguments(text: str, name: str, **arguments: Any) -> str:
    return text.replace(f"- name: {name}", f"- {{name: {name}, arguments: {arguments}}}")


def overdue() -> ClusterState:
    """Two gangs that are admitted from 600 s on, though the node is full."""
    jobs = [pod_group(name, phase="Pending", minResources={"cpu": "8"}) for name in ("a", "b")]
    for job in jobs:
        job.metadata.annotations["sla-waiting-time"] = "10m"
    return state(node("n"), queue("default"), pod("alien", scheduler="other", node="n", cpu="8"), *jobs)


def zoned() -> ClusterState:
    """A node that opens at some hour, for a pod that may run there."""
    zone = node("z", labels={"volcano.sh/revocable-zone": "z"})
    return state(
        zone, queue("default"), pod_group("job"), pod("p", "job", annotations={"volcano.sh/revocable-zone": "*"})
    )


def cooling() -> ClusterState:
    """Victims that are protected until 600 s have passed."""
    scheduled = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(0)}]}
    spare = {"volcano.sh/cooldown-time": "10m"}
    old = [pod(f"old-{at}", "old", node="n", status=scheduled, annotations=spare) for at in range(8)]
    runs = [pod_group("old", 0, "a", phase="Running"), *old]
    return state(node("n"), queue("a"), queue("b"), *runs, pod_group("new", 1, "b"), pod("new", "new"))


CASES = {
    "sla": (overdue, policy("sla", "overcommit", actions="enqueue"), CREATED),
    "tdm": (
        zoned,
        with_arguments(policy("gang", "predicates tdm"), "tdm", **{"tdm.revocable-zone.z": "22:20-23:00"}),
        NOON,
    ),
    "cdp": (cooling, policy("gang cdp", "predicates proportion", actions="allocate, reclaim"), NOON),
}


@pytest.mark.parametrize("name", CASES)
def test_sessions_are_begun_when_time_changes_something_and_not_before(name: str) -> None:
    make, by, begin = CASES[name]
    engine, cluster = Engine(by), make()
    decided: list[tuple[float, str, float]] = []
    for now in range(int(begin), int(begin) + 4_000, 60):
        result = engine.decide(cluster.fork().snapshot(), now=now, environment=OFFLINE)
        decided.append((now, str(result.decisions), result.again_at))
    assert len({what for _, what, _ in decided}) > 1
    for (_, what, again), (now, then, _) in pairwise(decided):
        assert what == then or again <= now
    assert all(again > now for now, what, again in decided if "Evict(" not in what)


@pytest.mark.parametrize(("waiting", "again"), [(False, 1_000 / 24), (True, -math.inf)])
def test_past_usage_needs_sessions_only_while_a_pod_waits(waiting: bool, again: float) -> None:
    by = with_arguments(policy("gang", "predicates fairshare"), "fairshare", **{"usage.window": "1000s"})
    cluster = state(
        *(node("n"), queue("default"), pod_group("runs", phase="Running"), pod("runs", "runs", node="n", cpu="8")),
        *((pod_group("waits"), pod("waits", "waits")) if waiting else ()),
    )
    result = Engine(by).decide(cluster.snapshot(), now=NOON, environment=OFFLINE)
    assert result.again_at == pytest.approx(NOON + again)
