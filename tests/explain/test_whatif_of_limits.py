"""What would be if queues, labels and policies said otherwise: levels, run times, lending and time-outs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stromboli.engine import Engine
from stromboli.explain.rehearsal import Rehearsal
from stromboli.explain.whatif import WhatIf, what_if
from stromboli.framework.cluster.environment import OFFLINE
from tests.builders import NOON, gang, node, pod, pod_group, policy, queue, state
from tests.plugins.queues import holds, wants


def changed(by: str, *objects: Any, to: Any = None, policy: str = "") -> WhatIf:
    """What changes when an object is another one, or the policy is."""

    def change(cluster: Any) -> None:
        for each in [] if to is None else [to]:
            cluster.upsert(type(each).__name__, each)

    rehearsal = Rehearsal(Engine(by), state(*objects), OFFLINE, NOON)
    return what_if(rehearsal, change, engine=Engine(policy) if policy else None)


def names(moved: list[Any]) -> set[str]:
    """The pods that are bound, evicted or neither."""
    return {each.pod.partition("/")[2] for each in moved}


LEVELS = "topology: {levels: [{nodeLabel: rack}]}\n" + policy("gang", "predicates network-topology-aware")


def test_a_node_that_is_labelled_makes_a_rack_large_enough() -> None:
    nodes = [node("a", cpu="1", labels={"rack": "1"}), node("b", cpu="1", labels={"rack": "2"})]
    job = pod_group("job", 2, networkTopology={"mode": "hard", "highestTierName": "rack"})
    moved = node("b", cpu="1", labels={"rack": "1"})
    assert names(changed(LEVELS, nodes, queue("default"), job, gang("job", 2), to=moved).bound) == {"job-0", "job-1"}
    wider = LEVELS.replace("nodeLabel: rack", "nodeLabel: kubernetes.io/os")
    assert names(changed(LEVELS, nodes, queue("default"), job, gang("job", 2), policy=wider).bound) == set()


def test_a_minimum_run_time_keeps_what_would_be_evicted() -> None:
    by = policy("priority gang", "predicates capacity minruntime", actions="allocate, reclaim")
    began = datetime.fromtimestamp(NOON - 60, UTC).isoformat()
    old = [pod_group("old", 1, queue="a", phase="Running"), pod("old-0", "old", node="n", status={"startTime": began})]
    cluster = [node("n", cpu="1"), queue("a"), queue("b", deserved={"cpu": "1"}), old, wants("b", 1)]
    found = changed(by, *cluster, to=queue("a", reclaimMinRuntime="10m"))
    assert (names(found.no_longer_evicted), names(found.no_longer_bound)) == ({"old-0"}, {"b-0"})
    assert not changed(by, *cluster, to=queue("a", reclaimMinRuntime="30s")).no_longer_evicted


def test_limits_on_borrowing_and_lending_change_who_gets_how_much() -> None:
    by = policy("gang", "predicates capacity")
    cluster = [node("n", cpu="4"), queue("a"), queue("b", deserved={"cpu": "2"}), holds("b", 0), wants("a", 4)]
    found = changed(by, *cluster, to=queue("b", deserved={"cpu": "2"}, lendingLimit={"cpu": "1"}))
    assert len(found.no_longer_bound) == 1
    found = changed(by, *cluster, to=queue("a", borrowingLimit={"cpu": "3"}))
    assert len(found.no_longer_bound) == 1


def test_shares_of_a_pool_and_the_pools_of_a_job() -> None:
    by = policy("gang", "predicates nodepools").replace(
        "  - name: nodepools", "  - {name: nodepools, arguments: {pools: [{name: a, nodeSelector: {pool: a}}]}}"
    )
    cluster = [node("n", cpu="4", labels={"pool": "a"}), node("m", cpu="4"), queue("team"), wants("team", 6)]
    found = changed(by, *cluster, to=queue("team", pools=[{"name": "a", "capability": {"cpu": "1"}}]))
    assert len(found.no_longer_bound) == 1
    job = pod_group("one", queue="team")
    job.metadata.annotations["stromboli.io/pools"] = "a"
    group = pod_group("one", queue="team")
    taken = [pod_group("old", queue="team", phase="Running"), *(pod(f"old-{at}", "old", node="n") for at in range(4))]
    found = changed(by, *cluster[:3], taken, group, gang("one", 1), to=job)
    assert names(found.no_longer_bound) == {"one-0"}


def test_a_time_out_gives_places_to_others() -> None:
    since = datetime.fromtimestamp(NOON - 600, UTC).isoformat()
    said = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]}
    stuck = [pod_group("stuck", 1, phase="Running"), pod("stuck-0", "stuck", node="n", status=said)]
    by = policy("gang", "predicates", actions="timeouts, allocate")
    timed = f"{by}\nconfigurations: [{{name: timeouts, arguments: {{podsReadyTimeout: 5m}}}}]"
    cluster = [node("n", cpu="1"), queue("default"), stuck, pod_group("next"), gang("next", 1)]
    found = changed(by, *cluster, policy=timed)
    assert (names(found.evicted), names(found.bound)) == ({"stuck-0"}, {"next-0"})


def test_what_is_wrong_anyway_is_no_finding_of_a_change() -> None:
    by = policy("gang", "predicates capacity")
    queues = [queue(name, deserved={"cpu": "4"}) for name in "abc"]
    cards = [pod_group("cards", 1), pod("cards-0", "cards", resources={"nvidia.com/gpus": "1"})]
    cluster = [node("n", cpu="4", resources={"nvidia.com/gpu": "4"}), queues, queue("default"), cards]
    assert changed(by, *cluster, to=queue("c", deserved={"cpu": "1"})).findings == []
    assert changed(by, *cluster, to=pod("cards-0", "cards")).findings == []
    (found,) = changed(by, *cluster, to=queue("d", deserved={"memory": "1Ti"})).findings
    assert found.cause == "queues are promised more memory by spec.deserved than the cluster has"
    found, _ = changed(by, *cluster, to=pod("more", "cards", resources={"nvidia.com/gpus": "1"})).findings
    assert set(found.objects) == {"default/cards-0", "default/more"}
