"""One control plane for all of these tests, with a record of its bindings; nodes, queues and pods for each."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster
from tests.e2e.audit import Audit
from tests.e2e.disks import Disks
from tests.e2e.provisioner import PROVISIONER, Provisioner
from tests.e2e.service import Certificate, ForkedService, Service
from tests.e2e.world import Object, World, define

#: starts the service with more arguments, and returns it when it is ready
Start = Callable[..., Service]
Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def definitions() -> list[Object]:
    return [yaml.safe_load(text) for text in crd_schema.files().values()]


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="session")
def plane(binaries: Binaries, audit: Audit, definitions: list[Object]) -> Iterator[Cluster]:
    """API server, controller-manager, kwok and our definitions."""
    with Cluster(binaries, apiserver_args=audit.apiserver_args) as cluster:
        cluster.start_controller_manager()
        cluster.start_kwok()
        with cluster.client() as api:
            define(api, definitions)
        yield cluster


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def world(plane: Cluster, _numbers: Iterator[int]) -> Iterator[World]:
    """An empty cluster, and a namespace in it."""
    world = World(plane, f"e2e-{next(_numbers)}")
    world.begin()
    yield world
    world.clear()


@pytest.fixture
def start(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start the service on the world's cluster; what it logged is shown when the test fails."""
    services: list[Service] = []

    def run(
        *args: str,
        kubeconfig: Path | None = None,
        wait: bool = True,
        certificate: Certificate | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Service:
        log = tmp_path / f"stromboli-{len(services)}.log"
        config = kubeconfig or world.cluster.kubeconfig()
        service = ForkedService(config, log, *args, certificate=certificate, settings=settings)
        services.append(service)
        return service.wait_ready() if wait else service

    yield run
    for service in services:
        service.end()
        request.node.add_report_section("teardown", service.log.name, service.text[-20_000:])


@pytest.fixture
def disks(world: World) -> Iterator[Disks]:
    """Two nodes, a class of local volumes, and one of those that the provisioner makes."""
    found = Disks(world)
    world.nodes(2, cpu="32")
    found.storage_class("local")
    found.storage_class("made", PROVISIONER)
    yield found
    found.clear()


@pytest.fixture
def provisioner(disks: Disks) -> Iterator[Provisioner]:
    with Provisioner(disks.world.cluster, disks.world.namespace) as found:
        yield found


@pytest.fixture
def kubectl(world: World) -> Kubectl:
    """kubectl in the namespace of the world; returns what it prints."""

    def run(*args: str) -> str:
        program = str(Path(sys.executable).with_name("kubectl"))
        place = ("--kubeconfig", str(world.cluster.kubeconfig()), "--namespace", world.namespace)
        done = subprocess.run([program, *place, *args], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
