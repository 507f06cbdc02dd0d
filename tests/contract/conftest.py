"""The servers that the contract holds for: the embedded one, and a real one."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from stromboli.devserver import DevServer, Options
from tests.contract.client import Client, Endpoint, Json, read_kubeconfig
from tests.contract.objects import ferry_definition
from tests.controlplane.cluster import Cluster

REAL_KUBECONFIG = "STROMBOLI_REAL_API_KUBECONFIG"


@pytest.fixture(scope="package")
def real_endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """A real API server: the one that the environment names, or one of our own without any controllers.

    It ends with the tests that ask for it, and takes no time of those that follow.
    """
    if kubeconfig := os.environ.get(REAL_KUBECONFIG):
        yield read_kubeconfig(Path(kubeconfig))
        return
    with Cluster(request.getfixturevalue("binaries")) as cluster:
        yield read_kubeconfig(cluster.kubeconfig())


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of the server under test."""
    async with aiohttp.ClientSession() as session:
        if request.param == "real":
            yield Client(request.getfixturevalue("real_endpoint"), session)
        else:
            async with DevServer(Options(kubelet=False)) as server:
                yield Client(Endpoint(server.url), session)


@pytest.fixture
async def namespace(api: Client) -> AsyncIterator[str]:
    """A fresh namespace, as its path; deleted afterwards."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    created = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert created.code == 201, created.body
    yield f"/api/v1/namespaces/{name}"
    await api.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def node(api: Client) -> AsyncIterator[str]:
    """The name of a fresh node of 8 cores."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    status = {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
    created = await api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
    assert created.code == 201, created.body
    yield name
    await api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
async def definition(api: Client) -> AsyncIterator[Json]:
    """A registered CustomResourceDefinition, in a group of its own."""
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    body = ferry_definition(group)
    created = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert created.code == 201, created.body
    await until_served(api, group)
    yield body
    await api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ferries.{group}")


async def until_served(api: Client, group: str) -> None:
    """A real server serves a new resource a moment after it accepted the definition."""
    for _ in range(200):
        if (await api.get(f"/apis/{group}/v1/ferries")).code == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"ferries.{group} is not served")
