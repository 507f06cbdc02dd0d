"""The service against a real API server: what an emulated one could get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from stromboli.live.service import Service
from stromboli.live.settings import Settings
from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster
from tests.live.conftest import Recorder
from tests.live.first_fit import FirstFit

pytestmark = pytest.mark.e2e

SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Object = dict[str, Any]


@pytest.fixture(scope="module", params=["subresource", "plain"])
def own(binaries: Binaries, repository: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with kwok and our definitions: as they are, and with a PodGroup as Volcano defines it."""
    with Cluster(binaries) as cluster, cluster.client() as api:
        cluster.start_controller_manager()
        cluster.start_kwok()
        for path in sorted((repository / "charts/stromboli/files/crds").glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            if definition["spec"]["names"]["kind"] == "PodGroup" and request.param == "plain":
                definition["spec"]["versions"][0]["subresources"] = {}
            api.post(DEFINITIONS, json=definition).raise_for_status()
        for number in range(2):
            amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
            node = {"metadata": {"name": f"n{number}"}, "status": {"capacity": amounts, "allocatable": amounts}}
            api.post("/api/v1/nodes", json=node).raise_for_status()
        yield cluster


@pytest.fixture
async def running(own: Cluster) -> AsyncIterator[tuple[Service, FirstFit]]:
    """The service on it."""
    decider = FirstFit()
    service = Service(Settings(kubeconfig=own.kubeconfig()), lambda _: decider, Recorder())
    await service.start()
    yield service, decider
    await service.stop()


async def until(condition: Callable[[], bool]) -> None:
    """As the fast tests' one, but a real control plane takes its time, and each question a thread."""
    for _ in range(600):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.1)
    pytest.fail("never came true")


def gang(api: httpx.Client, name: str, pods: int, cpu: str = "1") -> None:
    group = {"metadata": {"name": name}, "spec": {"minMember": pods, "queue": "default"}}
    group |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    api.post(f"{SCHEDULING}/namespaces/default/podgroups", json=group).raise_for_status()
    for number in range(pods):
        pod(api, f"{name}-{number}", {"scheduling.k8s.io/group-name": name}, cpu)


def pod(api: httpx.Client, name: str, annotations: dict[str, str], cpu: str = "1") -> None:
    container = {"name": "main", "image": "image", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "stromboli", "containers": [container]}
    metadata = {"name": name, "annotations": annotations}
    api.post(PODS, json={"metadata": metadata, "spec": spec}).raise_for_status()


def get(api: httpx.Client, path: str) -> Object:
    answer = api.get(path)
    answer.raise_for_status()
    found: Object = answer.json()
    return found


async def test_gangs_queues_bare_pods_and_evictions(own: Cluster, running: tuple[Service, FirstFit]) -> None:
    service, decider = running
    with own.client() as api:

        def phases() -> dict[str, str]:
            return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in get(api, PODS)["items"]}

        def status(kind: str, name: str) -> Object:
            found: Object = get(api, f"{SCHEDULING}/{kind}/{name}").get("status") or {}
            return found

        gang(api, "train", 4)
        gang(api, "large", 2, cpu="9")
        pod(api, "bare", {})
        await until(lambda: list(phases().values()).count("Running") == 5)
        group = "namespaces/default/podgroups"
        await until(lambda: status(group, "train").get("running") == 4)
        await until(lambda: status(group, "large").get("phase") == "Inqueue")
        await until(lambda: "conditions" in status(group, "large"))
        assert status(group, "large")["conditions"][0]["reason"] == "NotEnoughResources"
        await until(lambda: status("queues", "default").get("allocated") == {"pods": "5"})
        assert status("queues", "default")["state"] == "Open"
        await until(lambda: status("queues", "default").get("inqueue") == 1)
        reasons = {event["reason"] for event in get(api, "/api/v1/namespaces/default/events")["items"]}
        assert "Scheduled" in reasons

        decider.victims = {"default/train-0"}
        gang(api, "wake", 1)
        await until(lambda: "train-0" not in phases())
        assert isinstance(service.observer, Recorder)
        assert service.observer.evictions == ["evicted"]


async def test_a_restart_of_the_api_server(own: Cluster, running: tuple[Service, FirstFit]) -> None:
    service, _ = running
    with own.client() as api:

        def bound(name: str) -> int:
            pods = get(api, PODS)["items"]
            return sum(pod["metadata"]["name"].startswith(name) and "nodeName" in pod["spec"] for pod in pods)

        gang(api, "before", 2)
        await until(lambda: bound("before") == 2)
        await asyncio.to_thread(own.restart_apiserver)
        gang(api, "after", 2)
        await until(lambda: bound("after") == 2)
    assert not service.stuck()
