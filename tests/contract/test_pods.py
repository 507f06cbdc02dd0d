"""Pods and nodes: defaults, status, binding, eviction, graceful deletion."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.contract.client import MERGE_PATCH, STRATEGIC_PATCH, Answer, Client, Json
from tests.contract.objects import pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def binding(name: str, node: str, **metadata: object) -> Json:
    return {
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def bind(api: Client, namespace: str, name: str, node: str, **metadata: object) -> Answer:
    return await api.post(f"{namespace}/pods/{name}/binding", binding(name, node, **metadata))


async def report(api: Client, namespace: str, name: str, phase: str) -> None:
    """Does what a kubelet does when a pod's state changes."""
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    status = {"status": {"phase": phase, "conditions": [ready]}}
    assert (await api.patch(f"{namespace}/pods/{name}/status", STRATEGIC_PATCH, status)).code == 200


@pytest.fixture
async def priority_class(api: Client) -> AsyncIterator[str]:
    name = f"contract-{uuid.uuid4().hex[:8]}"
    created = await api.post(CLASSES, {"metadata": {"name": name}, "value": 700, "preemptionPolicy": "Never"})
    assert created.code == 201
    yield name
    await api.delete(f"{CLASSES}/{name}")


async def test_defaults_of_a_pod(api: Client, namespace: str) -> None:
    created = await api.post(f"{namespace}/pods", {**pod("a"), "status": {"phase": "Running"}})
    assert created.code == 201
    spec, status = created.body["spec"], created.body["status"]
    assert status["phase"] == "Pending"
    assert status["qosClass"] == "Burstable"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert created.body["metadata"]["generation"] == 1


async def test_limits_are_requests(api: Client, namespace: str) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "2"},
    }
    created = await api.post(f"{namespace}/pods", body)
    assert created.body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert created.body["status"]["qosClass"] == "Guaranteed"


async def test_priority_comes_from_the_class(api: Client, namespace: str, priority_class: str) -> None:
    created = await api.post(f"{namespace}/pods", pod("a", priorityClassName=priority_class))
    assert (created.body["spec"]["priority"], created.body["spec"]["preemptionPolicy"]) == (700, "Never")
    system = await api.post(f"{namespace}/pods", pod("b", priorityClassName="system-node-critical"))
    assert system.body["spec"]["priority"] == 2_000_001_000
    unknown = await api.post(f"{namespace}/pods", pod("c", priorityClassName="no-such-class"))
    assert (unknown.code, unknown.body["reason"]) == (403, "Forbidden")
    contradicting = await api.post(f"{namespace}/pods", pod("d", priorityClassName=priority_class, priority=1))
    assert (contradicting.code, contradicting.body["reason"]) == (403, "Forbidden")


async def test_the_value_of_a_priority_class_is_fixed(api: Client, priority_class: str) -> None:
    changed = await api.patch(f"{CLASSES}/{priority_class}", MERGE_PATCH, {"value": 1})
    assert (changed.code, changed.body["reason"]) == (422, "Invalid")


async def test_a_pod_needs_containers_and_keeps_its_spec(api: Client, namespace: str) -> None:
    empty = await api.post(f"{namespace}/pods", {"metadata": {"name": "a"}, "spec": {"containers": []}})
    assert (empty.code, empty.body["reason"]) == (422, "Invalid")
    await api.post(f"{namespace}/pods", pod("a"))
    placed = await api.patch(f"{namespace}/pods/a", MERGE_PATCH, {"spec": {"nodeName": "n"}})
    assert (placed.code, placed.body["reason"]) == (422, "Invalid")


async def test_status_and_object_are_written_apart(api: Client, namespace: str) -> None:
    created = (await api.post(f"{namespace}/pods", pod("a"))).body
    main = await api.patch(f"{namespace}/pods/a", MERGE_PATCH, {"status": {"phase": "Failed"}})
    assert main.body["status"]["phase"] == "Pending"
    assert main.version == created["metadata"]["resourceVersion"]
    change = {"status": {"nominatedNodeName": "n"}, "spec": {"activeDeadlineSeconds": 9}}
    status = await api.patch(f"{namespace}/pods/a/status", MERGE_PATCH, change)
    assert status.code == 200
    assert status.body["status"]["nominatedNodeName"] == "n"
    assert "activeDeadlineSeconds" not in status.body["spec"]
    assert status.body["metadata"]["generation"] == 1
    put = await api.put(
        f"{namespace}/pods/a/status", {**status.body, "status": {**status.body["status"], "message": "hello"}}
    )
    assert (put.code, put.body["status"]["message"]) == (200, "hello")
    assert (await api.get(f"{namespace}/pods/a/status")).body["status"]["message"] == "hello"


async def test_a_node_keeps_the_status_it_is_created_with(api: Client, node: str) -> None:
    status = (await api.get(f"/api/v1/nodes/{node}")).body["status"]
    assert status["capacity"]["cpu"] == "8"
    assert status["allocatable"]["cpu"] == "8"


async def test_binding_assigns_a_pod_once(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    nominated = {"status": {"nominatedNodeName": "other"}}
    await api.patch(f"{namespace}/pods/a/status", MERGE_PATCH, nominated)
    bound = await bind(api, namespace, "a", node, annotations={"example.com/by": "me"})
    assert (bound.code, bound.body["kind"], bound.body["status"]) == (201, "Status", "Success")
    stored = (await api.get(f"{namespace}/pods/a")).body
    assert stored["spec"]["nodeName"] == node
    assert stored["metadata"]["annotations"] == {"example.com/by": "me"}
    assert "nominatedNodeName" not in stored["status"]
    (condition,) = (c for c in stored["status"]["conditions"] if c["type"] == "PodScheduled")
    assert condition["status"] == "True"
    for target in (node, "another"):
        again = await bind(api, namespace, "a", target)
        assert (again.code, again.body["reason"]) == (409, "Conflict")
        assert f'is already assigned to node "{node}"' in again.body["message"]
        assert again.body["details"] == {"name": "a", "kind": "pods/binding"}


async def test_binding_checks_the_identity_of_the_pod(api: Client, namespace: str, node: str) -> None:
    created = (await api.post(f"{namespace}/pods", pod("a"))).body
    other = await bind(api, namespace, "a", node, uid="00000000-0000-0000-0000-000000000000")
    assert (other.code, other.body["reason"]) == (409, "Conflict")
    stale = await bind(api, namespace, "a", node, resourceVersion="1")
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    missing = await bind(api, namespace, "none", node)
    assert (missing.code, missing.body["reason"]) == (404, "NotFound")
    targetless = await api.post(f"{namespace}/pods/a/binding", {"metadata": {"name": "a"}, "target": {}})
    assert targetless.code == 500
    assert (await bind(api, namespace, "a", node, uid=created["metadata"]["uid"])).code == 201


async def test_a_gated_pod_cannot_be_bound(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    gated = await bind(api, namespace, "a", node)
    assert (gated.code, gated.body["reason"]) == (409, "Conflict")
    opened = await api.patch(f"{namespace}/pods/a", MERGE_PATCH, {"spec": {"schedulingGates": None}})
    assert opened.code == 200
    assert (await bind(api, namespace, "a", node)).code == 201


async def test_a_bound_pod_is_deleted_gracefully(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    await bind(api, namespace, "a", node)
    deleted = await api.delete(f"{namespace}/pods/a")
    assert (deleted.code, deleted.body["kind"]) == (200, "Pod")
    assert deleted.body["metadata"]["deletionGracePeriodSeconds"] == 30
    terminating = (await api.get(f"{namespace}/pods/a")).body
    assert terminating["metadata"]["deletionTimestamp"]
    shortened = await api.delete(f"{namespace}/pods/a", {"gracePeriodSeconds": 5})
    assert shortened.body["metadata"]["deletionGracePeriodSeconds"] == 5
    prolonged = await api.delete(f"{namespace}/pods/a", {"gracePeriodSeconds": 60})
    assert prolonged.body["metadata"]["deletionGracePeriodSeconds"] == 5
    again = await bind(api, namespace, "a", node)
    assert again.code == 409
    await api.delete(f"{namespace}/pods/a", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{namespace}/pods/a")).code == 404


async def test_pods_that_do_not_run_are_deleted_at_once(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("pending"))
    assert (await api.delete(f"{namespace}/pods/pending")).body["kind"] == "Pod"
    assert (await api.get(f"{namespace}/pods/pending")).code == 404
    await api.post(f"{namespace}/pods", pod("finished"))
    await bind(api, namespace, "finished", node)
    await report(api, namespace, "finished", "Succeeded")
    await api.delete(f"{namespace}/pods/finished")
    assert (await api.get(f"{namespace}/pods/finished")).code == 404


async def test_a_terminating_pod_cannot_be_bound(api: Client, namespace: str, node: str) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await api.post(f"{namespace}/pods", body)
    await api.delete(f"{namespace}/pods/a")
    refused = await bind(api, namespace, "a", node)
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    await api.patch(f"{namespace}/pods/a", MERGE_PATCH, {"metadata": {"finalizers": None}})
    assert (await api.get(f"{namespace}/pods/a")).code == 404


async def test_eviction_deletes(api: Client, namespace: str, node: str) -> None:
    await api.post(f"{namespace}/pods", pod("a"))
    await bind(api, namespace, "a", node)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a"},
        "deleteOptions": {"gracePeriodSeconds": 7},
    }
    evicted = await api.post(f"{namespace}/pods/a/eviction", eviction)
    assert (evicted.code, evicted.body["status"]) == (201, "Success")
    stored = (await api.get(f"{namespace}/pods/a")).body
    assert stored["metadata"]["deletionGracePeriodSeconds"] == 7
    missing = await api.post(f"{namespace}/pods/none/eviction", {"metadata": {"name": "none"}})
    assert missing.code == 404


async def test_eviction_respects_budgets(api: Client, namespace: str, node: str) -> None:
    budgets = namespace.replace("/api/v1", "/apis/policy/v1") + "/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "web"}}
    await api.post(budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}})
    body = pod("a")
    body["metadata"]["labels"] = {"app": "web"}
    await api.post(f"{namespace}/pods", body)
    await bind(api, namespace, "a", node)
    await report(api, namespace, "a", "Running")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    refused = await api.post(f"{namespace}/pods/a/eviction", eviction)
    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
