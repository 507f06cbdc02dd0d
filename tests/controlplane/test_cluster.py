"""The harness itself: what the end-to-end tests take for granted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.controlplane.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

NODE = {
    "metadata": {"name": "harness"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
}
POD = {
    "metadata": {"name": "pod"},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "image"}]},
}


def test_kwok_runs_a_bound_pod_and_lets_it_go(api: httpx.Client, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    binding = {"metadata": {"name": "pod"}, "target": {"kind": "Node", "name": "harness"}}
    api.post("/api/v1/nodes", json=NODE).raise_for_status()
    try:
        api.post(pods, json=POD).raise_for_status()
        api.post(f"{pods}/pod/binding", json=binding).raise_for_status()
        eventually(lambda: get(api, f"{pods}/pod")["status"]["phase"] == "Running")
        assert ready(get(api, "/api/v1/nodes/harness"))

        api.delete(f"{pods}/pod").raise_for_status()
        eventually(lambda: api.get(f"{pods}/pod").status_code == 404)
    finally:
        api.delete("/api/v1/nodes/harness").raise_for_status()


def test_kube_scheduler_places_a_pod(cluster: Cluster, api: httpx.Client, namespace: str) -> None:
    cluster.start_scheduler({"profiles": [{"schedulerName": "nobody"}]})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.post("/api/v1/nodes", json=NODE).raise_for_status()
    try:
        api.post(pods, json=POD).raise_for_status()
        eventually(lambda: get(api, f"{pods}/pod")["spec"].get("nodeName") == "harness")
    finally:
        cluster.stop_scheduler()
        api.delete("/api/v1/nodes/harness").raise_for_status()


def test_a_restarted_apiserver_keeps_the_data_and_forgets_old_versions(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster()
    with cluster.client() as api:
        version = get(api, "/api/v1/nodes")["metadata"]["resourceVersion"]
        api.post("/api/v1/nodes", json=NODE).raise_for_status()
        url = cluster.url

        cluster.restart_apiserver()

        assert cluster.url == url
        assert get(api, "/api/v1/nodes/harness")["metadata"]["name"] == "harness"
        watch = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
        assert '"code":410' in api.get("/api/v1/nodes", params=watch).text


def test_a_service_account_may_do_only_what_its_roles_say(cluster: Cluster, namespace: str) -> None:
    with cluster.client() as api:
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        api.post(accounts, json={"metadata": {"name": "robot"}}).raise_for_status()
    path = cluster.service_account_kubeconfig(namespace, "robot")

    token = json.loads(path.read_text())["users"][0]["user"]["token"]
    with cluster.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        answer = client.get("/api/v1/nodes")
    assert answer.status_code == 403
    assert f"system:serviceaccount:{namespace}:robot" in answer.json()["message"]


def get(api: httpx.Client, path: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(path).raise_for_status().json()
    return found


def ready(node: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    return bool(conditions["Ready"] == "True")
