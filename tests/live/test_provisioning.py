"""Nodes of whole gangs are asked for by ProvisioningRequests, and the answers are heeded."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from tests.live.cluster import SCHEDULING, Cluster, Fault
from tests.live.conftest import StartService, until
from tests.live.test_workloads import define
from tests.plugins.sessions import policy

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def engine(text: str | None) -> Successive:
    by = f"{policy('drf')}provisioning: {{class: {ATOMIC}, parameters: {{zone: a}}, retry: 1h}}\n"
    return Successive(Engine(by), Environment())


@pytest.fixture
async def cluster(bare_cluster: Cluster, definitions: list[Path], start: StartService) -> Cluster:
    """A cluster with a gang that waits for a second node."""
    bare_cluster.define(*definitions)
    define(bare_cluster, "autoscaling.x-k8s.io", "v1", "ProvisioningRequest")
    bare_cluster.node("n1", cpu="2")
    await start(engine)
    bare_cluster.group("train", 4)
    for number in range(4):
        bare_cluster.pod(f"train-{number}", "train")
    await until(lambda: len(requests(bare_cluster)) == 1)
    return bare_cluster


def requests(cluster: Cluster) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in cluster.items(REQUESTS)}


def answer(cluster: Cluster, name: str, type: str, message: str = "", ago: timedelta = timedelta()) -> None:
    at = (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"type": type, "status": "True", "reason": "Said", "message": message, "lastTransitionTime": at}
    cluster.patch(f"{REQUESTS}/{name}", {"status": {"conditions": [said]}})


def told(cluster: Cluster, reason: str) -> Callable[[], bool]:
    return lambda: any(each["reason"] == reason for each in cluster.items("/apis/events.k8s.io/v1/events"))


async def test_a_gang_asks_once_and_its_request_goes_when_it_runs(cluster: Cluster) -> None:
    (request,) = requests(cluster).values()
    assert request["spec"]["provisioningClassName"] == ATOMIC
    assert request["spec"]["parameters"] == {"zone": "a"}
    (asked,) = request["spec"]["podSets"]
    assert asked["count"] == 4
    (template,) = cluster.items(TEMPLATES)
    assert template["metadata"]["name"] == asked["podTemplateRef"]["name"]
    container = template["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"]["cpu"] == "1"
    for owned in (request, template):
        assert owned["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    await until(lambda: {reason(cluster, f"train-{number}") for number in range(4)} == {"NodesRequested"})
    answer(cluster, "train-1", "Provisioned")
    await until(told(cluster, "NodesProvisioned"))
    cluster.node("n2", cpu="2")
    await until(lambda: cluster.all_bound(4))
    await until(lambda: requests(cluster) == {} and cluster.items(TEMPLATES) == [])


async def test_one_that_is_refused_is_made_again_after_a_while(cluster: Cluster) -> None:
    answer(cluster, "train-1", "Failed", "no such machines")
    await until(told(cluster, "NodesRefused"))
    assert list(requests(cluster)) == ["train-1"]
    answer(cluster, "train-1", "Failed", "no such machines", ago=timedelta(hours=2))
    await until(lambda: list(requests(cluster)) == ["train-2"])


@pytest.mark.parametrize("said", ["BookingExpired", "CapacityRevoked"])
async def test_one_that_was_answered_is_made_again_when_its_capacity_is_gone(cluster: Cluster, said: str) -> None:
    answer(cluster, "train-1", "Accepted")
    answer(cluster, "train-1", "Provisioned")
    await until(told(cluster, "NodesProvisioned"))
    assert list(requests(cluster)) == ["train-1"]
    answer(cluster, "train-1", said, ago=timedelta(hours=2))
    await until(lambda: list(requests(cluster)) == ["train-2"])


@pytest.mark.parametrize("said", ["", "Accepted", "Failed", "BookingExpired"])
async def test_one_for_other_pods_takes_its_place(cluster: Cluster, said: str) -> None:
    if said:
        answer(cluster, "train-1", said)
    cluster.patch(f"{SCHEDULING}/namespaces/default/podgroups/train", {"spec": {"minMember": 3}})
    await until(lambda: [each["spec"]["podSets"][0]["count"] for each in requests(cluster).values()] == [3])
    assert list(requests(cluster)) == ["train-2"]


async def test_one_that_brought_nodes_for_fewer_pods_gives_way_to_one_for_all(cluster: Cluster) -> None:
    answer(cluster, "train-1", "Provisioned")
    await until(told(cluster, "NodesProvisioned"))
    group = f"{SCHEDULING}/namespaces/default/podgroups/train"
    cluster.patch(group, {"spec": {"minMember": 3}})
    cluster.pod("train-4", "train")
    cluster.patch(group, {"spec": {"minMember": 5}})
    await until(lambda: list(requests(cluster)) == ["train-2"])
    (request,) = requests(cluster).values()
    assert request["spec"]["podSets"][0]["count"] == 5


async def test_a_request_that_the_api_server_does_not_take_is_told(cluster: Cluster) -> None:
    denied = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no provisioningrequests for you"}
    told_so = json.dumps(denied).encode()
    cluster.proxy.faults.append(Fault("POST", "/provisioningrequests", status=403, content=told_so))
    cluster.delete(f"{REQUESTS}/train-1")
    await until(told(cluster, "NodesNotRequested"))
    await until(lambda: len(requests(cluster)) == 1)


async def test_an_autoscaler_that_goes_on_looking_for_nodes_is_told(cluster: Cluster) -> None:
    looks = {"type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound", "message": "will try later"}
    cluster.patch(f"{REQUESTS}/train-1", {"status": {"conditions": [looks]}})
    await until(told(cluster, "NodesNotFound"))
    assert list(requests(cluster)) == ["train-1"]
    answer(cluster, "train-1", "Provisioned")
    await until(told(cluster, "NodesProvisioned"))


async def test_nothing_is_asked_for_pods_that_are_gone(cluster: Cluster) -> None:
    for number in range(4):
        cluster.delete(f"/api/v1/namespaces/default/pods/train-{number}")
    await until(lambda: requests(cluster) == {} and cluster.items(TEMPLATES) == [])
    for number in range(4):
        cluster.pod(f"train-{number}", "train")
    await until(lambda: len(requests(cluster)) == 1)


@pytest.mark.parametrize("left", [True, False])
async def test_a_request_that_a_service_left_behind_goes(
    bare_cluster: Cluster, definitions: list[Path], start: StartService, *, left: bool
) -> None:
    """The gang ran, or its pods were gone, before anyone took its request away."""
    bare_cluster.define(*definitions)
    define(bare_cluster, "autoscaling.x-k8s.io", "v1", "ProvisioningRequest")
    bare_cluster.node("n1", cpu="2")
    bare_cluster.group("train", 2)
    group = bare_cluster.get(f"{SCHEDULING}/namespaces/default/podgroups/train")
    keys = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": "train"}
    sets = [{"podTemplateRef": {"name": "train-1-0"}, "count": 2}]
    meta = {"name": "train-1", "ownerReferences": [{**keys, "uid": group["metadata"]["uid"]}]}
    named = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": meta}
    bare_cluster.create(REQUESTS, {**named, "spec": {"provisioningClassName": ATOMIC, "podSets": sets}})
    for number in range(2 if left else 0):
        bare_cluster.pod(f"train-{number}", "train")
    await start(engine)
    await until(lambda: requests(bare_cluster) == {})


async def test_a_group_of_kubernetes_owns_its_request(
    bare_cluster: Cluster, definitions: list[Path], start: StartService
) -> None:
    bare_cluster.define(*definitions)
    define(bare_cluster, "autoscaling.x-k8s.io", "v1", "ProvisioningRequest")
    define(bare_cluster, "scheduling.k8s.io", "v1alpha3", "PodGroup")
    bare_cluster.node("n1", cpu="1")
    await start(engine)
    native = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/podgroups"
    manifest = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": {"name": "g"}}
    made = bare_cluster.create(native, {**manifest, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    for number in range(2):
        bare_cluster.pod(f"p-{number}", schedulingGroup={"podGroupName": "g"})
    await until(lambda: len(requests(bare_cluster)) == 1)
    (request,) = requests(bare_cluster).values()
    (owner,) = request["metadata"]["ownerReferences"]
    of = {key: manifest[key] for key in ("apiVersion", "kind")}
    assert owner == {**of, "name": "g", "uid": made["metadata"]["uid"]}
    answer(bare_cluster, request["metadata"]["name"], "Failed", "no such machines")
    await until(told(bare_cluster, "NodesRefused"))
    bare_cluster.node("n2", cpu="1")
    await until(lambda: bare_cluster.all_bound(2) and requests(bare_cluster) == {})


def reason(cluster: Cluster, pod: str) -> str:
    conditions = cluster.get(f"/api/v1/namespaces/default/pods/{pod}").get("status", {}).get("conditions") or [{}]
    return str(conditions[0].get("reason", ""))
