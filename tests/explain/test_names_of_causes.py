"""What keeps jobs waiting is named with its numbers, and what is advised is enough: of one class of situations each."""

from __future__ import annotations

from typing import Any

import pytest

from stromboli.state.cluster import ClusterState
from tests.builders import gang, node, pod, pod_group, policy, queue, state
from tests.explain.asking import said, why

_GPU = "nvidia.com/gpu"
_DRIVER = "gpu.example.com"


def daemon(name: str, on: str, cpu: str) -> Any:
    """A pod of a DaemonSet, as its controller makes it."""
    only = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": only}}}
    return pod(name, cpu=cpu, node=on, namespace="kube-system", scheduler="default-scheduler", affinity=affinity)


def with_daemons(count: int, asks: str) -> ClusterState:
    nodes = [node(f"n{number}", cpu="16") for number in range(count)]
    agents = [daemon(f"agent-{number}", f"n{number}", "1") for number in range(count)]
    return state(queue("default"), *nodes, *agents, pod_group("job", 4), gang("job", 4, cpu=asks))


@pytest.mark.parametrize(
    ("count", "asks", "changes"),
    [
        # Of a new node its own pods of DaemonSets take a part, so that two pods of 8 cpu do not fit on it.
        (2, "8", ["add 2 nodes like n0"]),
        (3, "15", ["add 1 node like n0"]),
        (
            4,
            "16",
            [
                "ask for no more than 15 cpu a pod, which pods of DaemonSets leave on a node",
                "add 4 nodes like n0 with 17 cpu for it and 1 pod of DaemonSets",
            ],
        ),
    ],
)
def test_nodes_that_are_added_carry_pods_of_daemonsets(count: int, asks: str, changes: list[str]) -> None:
    told = [remedy.change for remedy in why(with_daemons(count, asks), "job default/job").remedies]
    assert set(changes) <= set(told)


def test_the_largest_number_that_fits_is_told_of_roles_of_which_one_may_go_anywhere() -> None:
    pods = [
        pod("head", "ray", cpu="4"),
        *(pod(f"worker-{number}", "ray", cpu="8", resources={_GPU: "1"}) for number in range(3)),
    ]
    nodes = [node("g", cpu="16", resources={_GPU: "2"}), node("n", cpu="16")]
    group = pod_group("ray", 4, minResources={"cpu": "28", _GPU: "3"})
    answer = why(state(queue("default"), *nodes, group, pods), "job default/ray")
    assert answer.would_fit == 3
    assert answer.request[_GPU] == "1"
    assert "set minMember: 3 in PodGroup default/ray, and minResources to match" in [
        each.change for each in answer.remedies
    ]


def test_roles_are_dropped_with_the_number_that_they_add_up_to() -> None:
    group = pod_group("mpi", 3, minTaskMember={"launcher": 1, "worker": 2})
    role = {name: {"volcano.sh/task-spec": name} for name in ("launcher", "worker")}
    pods = [pod("launcher", "mpi", annotations=role["launcher"])]
    pods += [pod(f"worker-{n}", "mpi", resources={_GPU: "4"}, annotations=role["worker"]) for n in range(2)]
    nodes = [node("n"), node("g", resources={_GPU: "4"})]
    changes = [each.change for each in why(state(queue("default"), *nodes, group, pods), "job default/mpi").remedies]
    assert "set minMember: 2 in PodGroup default/mpi, and minTaskMember to match" in changes


def test_a_cluster_whose_pods_terminate_is_full_and_no_quota_is_in_the_way() -> None:
    old = [pod_group("old", phase="Running"), pod("old-0", "old", cpu="8", node="n", deleted=True)]
    waiting = [each for name in ("first", "next") for each in (pod_group(name), pod(f"{name}-0", name, cpu="8"))]
    cluster = state(queue("default"), node("n", cpu="8"), *old, *waiting)
    first, after = why(cluster, "job default/first"), why(cluster, "job default/next")
    assert (first.reason, [each.name for each in first.holders]) == ("WaitingForRelease", ["old"])
    assert (after.reason, {each.name for each in after.holders}) == ("ClusterFull", {"old", "first"})


def test_a_job_to_which_a_node_is_promised_holds_it() -> None:
    cluster = state(
        *(queue("default"), node("n", cpu="8"), pod_group("old", phase="Running")),
        *(pod("old-0", "old", cpu="8", node="n", deleted=True), pod_group("urgent", priorityClassName="high")),
        *(pod("urgent-0", "urgent", cpu="8", nominated="n", priority=1000), pod_group("small", created=5)),
        pod("small-0", "small", cpu="4"),
    )
    answer = why(cluster, "job default/small")
    assert "urgent" in [each.name for each in answer.holders]
    assert "wait until default/urgent ends" in [each.change for each in answer.remedies]


def test_a_quota_is_raised_to_what_it_lacks_in_what_it_limits() -> None:
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "status": {"hard": {"requests.cpu": "8", "pods": "10"}, "used": {"requests.cpu": "6", "pods": "1"}},
    }
    group = pod_group("job", 4, phase="Pending", minResources={"cpu": "4", "memory": "4Gi"})
    cluster = state(queue("default"), node("n"), group, quota)
    rules = policy("gang resourcequota", "predicates", actions="enqueue, allocate")
    assert [each.change for each in why(cluster, "job default/job", rules).remedies] == [
        "raise ResourceQuota default/team to 10 requests.cpu"
    ]


def with_claim(of_class: str, selector: str = "") -> ClusterState:
    device = {
        "attributes": {"model": {"string": "h100"}},
        "capacity": {"memory": {"value": "80Gi"}},
    }
    exactly = {"deviceClassName": of_class} | ({"selectors": [{"cel": {"expression": selector}}]} if selector else {})
    objects: list[dict[str, Any]] = [
        {
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": _DRIVER,
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0", **device}],
            },
        },
        {"kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}, "spec": {}},
        {
            "kind": "ResourceClaim",
            "metadata": {"name": "one", "namespace": "default", "uid": "uid-one"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        },
    ]
    waiting = pod("job-0", "job", resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
    return state(queue("default"), node("n"), *objects, pod_group("job"), waiting)


def test_a_device_class_that_is_misspelt_is_the_users_to_correct() -> None:
    answer = why(with_claim("gpu.exmaple.com"), "job default/job")
    assert answer.who == "user"
    assert "did you mean 'gpu.example.com'?" in answer.message
    assert answer.remedies[0].change == "set deviceClassName: gpu.example.com in ResourceClaim default/one"


@pytest.mark.parametrize(
    ("selector", "has"),
    [
        (f"device.attributes['{_DRIVER}'].model == 'b200'", "devices have model h100"),
        (
            f"device.capacity['{_DRIVER}'].memory.compareTo(quantity('141Gi')) >= 0",
            "devices have memory 80Gi",
        ),
    ],
)
def test_what_devices_have_is_told_beside_a_selector_that_none_meets(selector: str, has: str) -> None:
    answer = why(with_claim("gpu.example.com", selector), "job default/job")
    assert has in answer.detail
    changes = [each.change for each in answer.remedies]
    assert "have the selector of ResourceClaim default/one choose devices that there are" in changes


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ([], "the autoscaler has not answered yet"),
        (
            [{"type": "Provisioned", "status": "False", "reason": "NotFound", "message": "waits for capacity"}],
            "no nodes yet: waits for capacity",
        ),
        ([{"type": "Failed", "status": "True", "message": "no capacity in eu-1b"}], "Failed: no capacity in eu-1b"),
    ],
)
def test_what_became_of_the_nodes_that_were_asked_for_is_told(conditions: list[dict[str, str]], told: str) -> None:
    owner = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": "job", "uid": "u"}
    request = {
        "kind": "ProvisioningRequest",
        "metadata": {"name": "job-1", "namespace": "default", "ownerReferences": [owner]},
        "status": {"conditions": conditions},
    }
    cluster = state(queue("default"), node("n", cpu="4"), pod_group("job", 2), gang("job", 2, cpu="4"), request)
    assert f"ProvisioningRequest job-1: {told}" in said(cluster, "job default/job")


def test_a_resize_for_which_the_node_is_too_small_says_what_to_do() -> None:
    resize = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "not enough cpu"}
    running = pod("srv-0", "srv", node="n", status={"conditions": [resize]})
    cluster = state(queue("default"), node("n"), pod_group("srv", phase="Running"), running)
    assert "not enough cpu (lower it, or recreate the pod for a larger node)" in said(cluster, "pod default/srv-0")
