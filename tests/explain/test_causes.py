"""What keeps pods from nodes or from running is told with who, what and how many."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.workloads import known_kinds
from stromboli.workloads.gangs import suspended
from stromboli.workloads.misspelt import meant
from tests.builders import gang, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said, why

JOB = "job default/train"
CARD = "nvidia.com/gpu"


def waits(count: int = 1, **pods: Any) -> list[Any]:
    return [queue("default"), pod_group("train", count), *gang("train", count, **pods)]


@pytest.mark.parametrize(
    "key",
    [
        "node.cilium.io/agent-not-ready",
        "ebs.csi.aws.com/agent-not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/drivers",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
    ],
)
def test_a_taint_that_says_how_a_node_is_is_not_to_be_tolerated(key: str) -> None:
    tainted = node("n", taints=[{"key": key, "effect": "NoSchedule"}])
    found = why(state(tainted, *waits()), JOB)
    assert (found.reason, found.who) == ("NoMatchingNode", "admin")
    assert [each.change for each in found.remedies] == [f"bring back node n ({key})"]


@pytest.mark.parametrize(("each", "told"), [("4", "asks for 12, the cluster has 10"), ("3", "it fits 2 of them")])
def test_a_gang_that_asks_for_more_cards_than_there_are_is_told_how_many(each: str, told: str) -> None:
    cards = [node(name, cpu="64", resources={CARD: "5"}) for name in "ab"]
    found = why(state(*cards, *waits(3, resources={CARD: each})), JOB)
    assert found.reason == "NeverFits"
    assert told in f"{found.message} {found.detail}"


def test_what_a_workload_asks_for_follows_its_pods_when_less_is_tried() -> None:
    group = pod_group("podgroup-4f509877-1111-2222-3333-444455556666", 1, phase="Pending", minResources={"cpu": "3"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "4f509877-1111-2222-3333-444455556666"}
    group.metadata.owner_references.append({**owner, "controller": True})
    found = why(state(node("n", cpu="2"), queue("default"), group, pod("p", group.metadata.name, cpu="3")), JOB)
    assert {each.change: each.effect for each in found.remedies}["ask for no more than 2 cpu a pod"] == "1 pod bound"


def test_who_holds_devices_is_named_and_waited_for() -> None:
    cluster = state(node("n"), queue("default"), queue("research"), pod_group("old", 2, "research", phase="Running"))
    cluster.upsert("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
    spec = {"driver": "x", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    devices = [{"name": name} for name in ("d0", "d1")]
    cluster.upsert("ResourceSlice", {"metadata": {"name": "n"}, "spec": {**spec, "devices": devices}})
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    for name in ("old-0", "old-1", "train-0"):
        result = {"request": "r", "driver": "x", "pool": "n", "device": f"d{name[-1]}"}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        }
        manifest = {"metadata": {"name": name, "namespace": "default"}, "spec": wanted}
        cluster.upsert("ResourceClaim", manifest | ({} if name == "train-0" else {"status": status}))
        claims = [{"name": "gpu", "resourceClaimName": name}]
        of, on = ("train", "") if name == "train-0" else ("old", "n")
        cluster.upsert("Pod", pod(name, of, node=on, resourceClaims=claims))
    cluster.upsert("PodGroup", pod_group("train"))
    found = why(cluster, JOB)
    (holder,) = found.holders
    assert (holder.name, holder.queue, holder.pods, holder.amounts) == ("old", "research", 2, {"devices of gpu": "2"})
    assert found.who == "wait"
    assert "wait until default/old ends" in [each.change for each in found.remedies]


def test_a_resize_that_has_to_wait_is_told_of_a_pod_that_runs() -> None:
    resize = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "not enough cpu"}
    runs = pod("train-0", "train", node="n", status={"conditions": [resize]})
    text = said(state(node("n"), queue("default"), pod_group("train"), runs), "pod default/train-0")
    assert text.splitlines()[0].endswith("Running on n, but its resize is deferred: not enough cpu")


@pytest.mark.parametrize("label", [{}, {"kueue.x-k8s.io/queue-name": "team"}])
def test_who_resumes_a_job_that_is_suspended(label: dict[str, str]) -> None:
    owner = {"kind": "Job", "metadata": {"name": "train", "labels": label}, "spec": {"suspend": True}}
    kind = known_kinds().get("batch/v1", "Job")
    assert kind is not None
    told = suspended(owner, kind.row)
    assert "stromboli job resume train -n default" in told
    assert ("Kueue" in told) is bool(label)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("scheduling.volcano.sh/network-topology-mode", "volcano.sh/network-topology-mode"),
        ("volcano.sh/group-name", "scheduling.k8s.io/group-name"),
        ("example.com/group-name", ""),
    ],
)
def test_a_key_in_another_domain_of_volcano_is_a_mistake(written: str, read: str) -> None:
    assert meant(written) == read


def test_queues_whose_shares_are_those_of_pools_are_not_said_to_have_none() -> None:
    by = policy("gang", "predicates nodepools").replace(
        "- name: nodepools", "- {name: nodepools, arguments: {pools: [{name: a, nodeSelector: {pool: a}}]}}"
    )
    team = queue("default", pools=[{"name": "a", "deserved": {"cpu": "4"}}])
    assert "its shares are those of node pools" in said(
        state(node("n", labels={"pool": "a"}), *waits()[1:], team), "queue default", by
    )


@pytest.mark.parametrize(
    ("hard", "told"), [({"pods": "3"}, "of 3 pods 1 left"), ({"requests.cpu": "2"}, "of 2 cpu 0 left")]
)
def test_a_quota_that_keeps_a_controller_from_making_pods_is_named(hard: dict[str, str], told: str) -> None:
    cluster = state(node("n"), queue("default"), pod_group("train", 4), *gang("train", 2))
    used = {"pods": "2", "requests.cpu": "2"}
    status = {"hard": hard, "used": {name: used[name] for name in hard}}
    cluster.upsert("ResourceQuota", {"metadata": {"name": "team", "namespace": "default"}, "status": status})
    found = why(cluster, JOB)
    changes = {each.change: each.who for each in found.remedies}
    assert (
        changes[f"raise ResourceQuota default/team ({told}), and create 2 more pods of PodGroup default/train"]
        == "admin"
    )


def test_what_a_queue_above_may_hold_is_said_of_that_queue() -> None:
    tree = policy("gang", "predicates capacity").replace(
        "- name: capacity", "- {name: capacity, enableHierarchy: true}"
    )
    queues = [queue("root"), queue("org", capability={"cpu": "2"}), queue("team", parent="org")]
    found = why(state(node("n"), *queues, pod_group("train", 4, "team"), *gang("train", 4)), JOB, tree)
    assert (
        found.message == "PodGroup default/train starts with more than queue org above queue team may ever hold in cpu"
    )
