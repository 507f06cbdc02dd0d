from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from stromboli.devserver import Options
from stromboli.live.loop import Decider
from stromboli.live.observer import Observer
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from tests import builders
from tests.live.cluster import Cluster
from tests.live.first_fit import FirstFit


class Recorder(Observer):
    """Keeps what the service tells."""

    def __init__(self) -> None:
        self.relists: list[tuple[str, str]] = []
        self.malformed_keys: list[tuple[str, str]] = []
        self.bindings: list[str] = []
        self.evictions: list[str] = []
        #: queue and reason of each pod that was evicted
        self.evicted_of: list[tuple[str, str]] = []
        #: kind and result of each write of a status
        self.statuses: list[tuple[str, str]] = []
        self.problems: list[str | None] = []
        self.failures: list[BaseException] = []
        #: pods and nodes that each session saw
        self.seen: list[tuple[int, int]] = []

    def relist(self, kind: str, why: str) -> None:
        self.relists.append((kind, why))

    def malformed(self, kind: str, key: str) -> None:
        self.malformed_keys.append((kind, key))

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        pods = sum(record is not None for record in snapshot.pods.records)
        self.seen.append((pods, len(snapshot.nodes.facts)))

    def session_failed(self, error: BaseException) -> None:
        self.failures.append(error)

    def bind_result(self, result: str, seconds: float) -> None:
        self.bindings.append(result)

    def evict_result(self, result: str, seconds: float) -> None:
        self.evictions.append(result)

    def evicted(self, queue: str, reason: str) -> None:
        self.evicted_of.append((queue, reason))

    def status_result(self, kind: str, result: str) -> None:
        self.statuses.append((kind, result))

    def policy(self, error: str | None) -> None:
        self.problems.append(error)


class StartService(Protocol):
    async def __call__(
        self, load: Callable[[str | None], Decider] = FirstFit, *, wait: bool = True, **settings: Any
    ) -> Service: ...


@pytest.fixture
def definitions(repository: Path) -> list[Path]:
    """Our custom resource definitions."""
    return sorted((repository / "charts/stromboli/files/crds").glob("*.yaml"))


@pytest.fixture
def options() -> Options:
    """Options of the API server, for tests to override."""
    return Options(start_delay=0.01, stop_delay=0.01)


@pytest.fixture
def bare_cluster(options: Options, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without custom resources."""
    cluster = Cluster(options, tmp_path / "kubeconfig")
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(bare_cluster: Cluster, definitions: list[Path]) -> Cluster:
    """A cluster with our custom resources and two nodes of 8 cpu."""
    bare_cluster.define(*definitions)
    bare_cluster.node("n0")
    bare_cluster.node("n1")
    return bare_cluster


@pytest.fixture
async def start(bare_cluster: Cluster) -> AsyncIterator[StartService]:
    """Start services; they end with the test."""
    services: list[Service] = []

    async def start(load: Callable[[str | None], Decider] = FirstFit, *, wait: bool = True, **settings: Any) -> Service:
        # Sessions that only a period would begin come too late for any test.
        defaults = {"kubeconfig": bare_cluster.kubeconfig, "schedule_period": 0.25}
        service = Service(Settings(**{**defaults, **settings}), load, Recorder(), reads=builders.READS)
        services.append(service)
        if wait:
            await service.start()
        else:
            service.begin()
        return service

    yield start
    for service in services:
        await service.stop()


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Return when a condition holds; fails when it does not within a time that only a failure needs.

    The condition has to stay true once it is: what holds for milliseconds only may pass between two looks, which are
    rarer the longer it takes, as each asks the API server.
    """
    pause, waited = 0.01, 0.0
    while waited < 60:
        if condition():
            return
        await asyncio.sleep(pause)
        pause, waited = min(1.25 * pause, 0.1), waited + pause
    pytest.fail(f"never came true: {what or condition.__name__}")
