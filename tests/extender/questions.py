"""Questions as kube-scheduler sends them, and an application that answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import msgspec
from prometheus_client import CollectorRegistry

from stromboli.api import objects
from stromboli.extender import Published, Standing
from stromboli.http.server import Probes, make_app
from stromboli.state.cluster import ClusterState
from tests import builders


def published(cluster: ClusterState, policy: str, **options: Any) -> Published:
    """What one session leaves."""
    return Published(builders.decide(cluster, policy, **options).session, cluster.pods.by_key)


def client(source: Published | Callable[[], Published | None] | None, **options: Any) -> httpx.AsyncClient:
    """A client of an application that answers from what a session left."""
    read = source if callable(source) else lambda: source
    app = make_app(Standing(read), CollectorRegistry(), Probes(), **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stromboli")


def by_name(pod: objects.Pod, nodes: list[str]) -> bytes:
    """A question of a scheduler whose extender knows the nodes."""
    return msgspec.json.encode({"Pod": msgspec.to_builtins(pod), "Nodes": None, "NodeNames": nodes})


def in_full(pod: objects.Pod, nodes: list[str]) -> bytes:
    """A question of a scheduler whose extender is sent whole nodes."""
    items = [whole_node(name) for name in nodes]
    return msgspec.json.encode(
        {"Pod": msgspec.to_builtins(pod), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    )


def whole_node(name: str) -> dict[str, Any]:
    """A node as an API server has it, with fields that are not read here."""
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "195",
            "labels": {"kubernetes.io/hostname": name},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"architecture": "amd64"}},
    }


async def ask(source: Any, verb: str, body: bytes, **options: Any) -> Any:
    """The decoded answer, which has to be 200."""
    async with client(source, **options) as http:
        response = await http.post(f"/{verb}", content=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()
