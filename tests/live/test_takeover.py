"""What a former leader left behind is seen, said and mended by the next."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from stromboli.engine import Engine
from stromboli.live.binding import takeover
from stromboli.live.binding.takeover import begun_gangs, overcommitting
from stromboli.state.pods import seconds
from tests.live.cluster import Cluster
from tests.live.conftest import StartService, until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def bind(cluster: Cluster, pod: str, node: str) -> None:
    """As a former leader did; this API server does not ask for room."""
    path = f"/api/v1/namespaces/default/pods/{pod}/binding"
    cluster.create(path, {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})


def told(cluster: Cluster, reason: str) -> set[str]:
    """What Events with a reason are about."""
    events = cluster.items("/apis/events.k8s.io/v1/events")
    return {event["regarding"]["name"] for event in events if event["reason"] == reason}


async def take_over(start: StartService) -> None:
    await start(lambda text: Engine(), leader_elect=True)


async def test_a_gang_that_was_begun_is_completed_before_all_others(cluster: Cluster, start: StartService) -> None:
    """Of sixteen places ten are free, and the older gang would take eight of them."""
    cluster.gang("older", 8)
    cluster.gang("begun", 12)
    for number in range(6):
        bind(cluster, f"begun-{number}", "n0")
    await take_over(start)
    await until(lambda: sum(bool(node) for name, node in cluster.pods().items() if name.startswith("begun")) == 12)
    await until(lambda: told(cluster, "GangIncomplete") == {"begun"})
    assert len(cluster.pods()) == 20


async def test_of_gangs_that_block_each_other_the_least_makes_room(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both need twelve of sixteen places, and hold nine and seven."""
    monkeypatch.setattr(takeover, "_PATIENCE", 2.0)
    for name, pods, node in (("most", 9, "n0"), ("least", 7, "n1")):
        cluster.gang(name, 12)
        for number in range(pods):
            bind(cluster, f"{name}-{number}", node if number < 8 else "n1")
    await take_over(start)
    await until(lambda: Counter(name.partition("-")[0] for name, node in cluster.pods().items() if node)["most"] == 12)
    assert Counter(name.partition("-")[0] for name in cluster.pods()) == {"most": 12, "least": 5}
    assert told(cluster, "GangIncomplete") >= {"most", "least", "least-0"}


async def test_a_gang_that_kube_scheduler_bound_in_part_is_evicted_too(cluster: Cluster, start: StartService) -> None:
    """Its gates were lifted one by one when the leader went. Pods of kube-scheduler's own stay."""
    grouped = {"annotations": {"scheduling.k8s.io/group-name": "begun"}}
    cluster.group("begun", 20)
    for number in range(20):
        cluster.pod(f"begun-{number}", metadata=grouped, schedulerName="default-scheduler")
    cluster.pod("foreign", schedulerName="default-scheduler")
    for name in ("begun-0", "begun-1", "foreign"):
        bind(cluster, name, "n0")
    await start(lambda text: Engine(), leader_elect=True, extender_scheduler_names=("default-scheduler",))
    await until(lambda: {name for name, node in cluster.pods().items() if node} == {"foreign"})
    assert told(cluster, "GangIncomplete") == {"begun", "begun-0", "begun-1"}


async def test_a_node_that_holds_too_much_loses_what_was_bound_last(cluster: Cluster, start: StartService) -> None:
    for number in range(11):
        cluster.pod(f"p-{number:02}", metadata={"annotations": {"scheduling.k8s.io/group-name": "some"}})
    cluster.group("some", 1)
    for number in range(11):
        bind(cluster, f"p-{number:02}", "n0")
    cluster.pod("foreign", schedulerName="another")
    bind(cluster, "foreign", "n0")
    await take_over(start)
    await until(lambda: len(cluster.pods()) == 8)
    assert Counter(cluster.pods().values()) == {"n0": 8}
    assert "foreign" in cluster.pods()
    assert len(told(cluster, "NodeOvercommitted")) == 4


async def test_no_pod_that_kube_scheduler_bound_is_evicted_from_a_node_that_seems_to_hold_too_much(
    cluster: Cluster, start: StartService
) -> None:
    """What sessions assume of its pods changes with each answer that it does not follow."""
    cluster.group("some", 1)
    for number in range(11):
        metadata = {"annotations": {"scheduling.k8s.io/group-name": "some"}}
        cluster.pod(f"p-{number:02}", metadata=metadata, schedulerName="default-scheduler")
        bind(cluster, f"p-{number:02}", "n0")
    state = (await start(lambda text: Engine(), extender_scheduler_names=("default-scheduler",))).state
    await until(lambda: bool((state.nodes.used > state.nodes.allocatable).any()))
    assert not list(overcommitting(state, time.time() - 60))


async def test_what_was_bound_long_before_the_take_over_is_left_alone(cluster: Cluster, start: StartService) -> None:
    """A gang that lost some of its pods, on a node whose allocatable has shrunk."""
    cluster.gang("old", 8)
    long_ago = "2020-01-01T00:00:00Z"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": long_ago}
    for number in range(6):
        bind(cluster, f"old-{number}", "n0")
        status = f"/api/v1/namespaces/default/pods/old-{number}/status"
        cluster.patch(status, {"status": {"conditions": [condition]}})
    for name, cpu in (("n0", "4"), ("n1", "1")):
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        cluster.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
    state = (await start()).state

    def found(began: float) -> tuple[int, list[str]]:
        since = began - 60
        return len(list(overcommitting(state, since))), [group.key for group, _ in begun_gangs(state, since, began)]

    assert found(time.time()) == (0, [])
    assert found(seconds(long_ago) + 30) == (2, ["default/old"])


async def test_a_gang_that_several_leaders_left_in_part_is_still_evicted(
    cluster: Cluster, start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun minutes ago, and no leader since had the time to complete it or to give it up."""
    monkeypatch.setattr(takeover, "_PATIENCE", 1.0)
    cluster.gang("begun", 20)
    bound, since = (
        datetime.fromtimestamp(time.time() - past, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for past in (150, 180)
    )
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    for number in range(6):
        bind(cluster, f"begun-{number}", "n0")
        cluster.patch(f"/api/v1/namespaces/default/pods/begun-{number}/status", {"status": {"conditions": [condition]}})
    metadata = {"name": "stromboli", "annotations": {"stromboli.io/unsettled-since": since}}
    cluster.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    await take_over(start)
    await until(lambda: not any(cluster.pods().values()))
    assert told(cluster, "GangIncomplete") >= {"begun"}
    (lease,) = cluster.items(LEASES)
    assert lease["metadata"]["annotations"]["stromboli.io/unsettled-since"] == since
