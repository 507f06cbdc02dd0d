"""What is watched goes away, or the API server does: the service says so, waits, and goes on."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.conftest import Start
from tests.e2e.service import Service
from tests.e2e.test_workloads import group_of, job, jobs, patch, reference
from tests.e2e.world import Object, World, define, pod
from tests.live.test_queue_states import COMMANDS

pytestmark = pytest.mark.e2e

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: what is away for some seconds is told, and not only after half a minute
SOON = {"contact_timeout": 6.0}


@pytest.fixture(scope="module")
def breakable(binaries: Binaries) -> Iterator[Cluster]:
    """A cluster of which each of these tests takes something away and gives it back."""
    with Cluster(binaries) as cluster:
        cluster.start_kwok()
        yield cluster


@pytest.fixture(scope="module")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def own(breakable: Cluster, _numbers: Iterator[int], definitions: list[Object]) -> Iterator[World]:
    """That cluster with our definitions, empty, and a namespace in it."""
    world = World(breakable, f"outage-{next(_numbers)}")
    define(world.api, definitions)
    world.begin()
    yield world
    # No controller deletes what a namespace has left.
    world.api.delete(jobs(world)).raise_for_status()
    world.clear()


@contextmanager
def away(cluster: Cluster, program: str, how: signal.Signals) -> Iterator[None]:
    """Stop a program of the cluster, and have it go on."""
    stop, begin = {
        "kube-apiserver": (cluster.stop_apiserver, cluster.start_apiserver),
        "etcd": (cluster.stop_etcd, cluster.start_etcd),
    }[program]
    pid = cluster.pid(program)
    os.kill(pid, signal.SIGSTOP) if how == signal.SIGSTOP else stop(how)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT) if how == signal.SIGSTOP else begin()


def unready(service: Service) -> list[str]:
    """What `/readyz` names, nothing when it is ready."""
    answer = service.http.get("/readyz")
    return [] if answer.is_success else answer.text.splitlines()


def kinds(service: Service) -> set[str]:
    return {line.partition(":")[0] for line in unready(service)}


def state_of(world: World, queue: str) -> str:
    answer = world.api.get(f"{QUEUES}/{queue}")
    return str(answer.json().get("status", {}).get("state")) if answer.is_success else ""


def test_definitions_are_deleted_and_come_back(own: World, start: Start, definitions: list[Object]) -> None:
    own.nodes(3, cpu="10")
    service = start(kubeconfig=own.cluster.kubeconfig(), settings=SOON)
    own.gang("before", 3)
    eventually(lambda: own.bound()["before"] == 3)
    with own.cluster.client() as api:
        for definition in definitions:
            api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}").raise_for_status()
        eventually(lambda: {"Queue", "PodGroup"} <= kinds(service), timeout=90)
        assert service.running
        assert service.http.get("/healthz").is_success
        define(api, definitions)
    eventually(lambda: unready(service) == [], timeout=60)
    eventually(lambda: "default" in own.queues(), timeout=120)
    own.gang("after", 3)
    eventually(lambda: own.bound()["after"] == 3, timeout=60)
    assert "Traceback" not in service.text
    assert service.end() == 0


@pytest.mark.parametrize(
    ("program", "how", "settings"),
    [
        ("kube-apiserver", signal.SIGSTOP, SOON),
        ("kube-apiserver", signal.SIGKILL, {}),
        ("etcd", signal.SIGSTOP, SOON),
        ("etcd", signal.SIGKILL, SOON),
    ],
)
def test_the_api_server_or_what_it_keeps_is_away(
    own: World, start: Start, program: str, how: signal.Signals, settings: dict[str, float]
) -> None:
    own.nodes(3, cpu="10")
    service = start(kubeconfig=own.cluster.kubeconfig(), settings=settings)
    before = len(service.text.splitlines())
    with away(own.cluster, program, how):
        eventually(lambda: "API server" in kinds(service), timeout=90)
        assert service.http.get("/healthz").is_success
        # Some thirty kinds and parts notice, without settings for half a minute and more.
        said = service.text.splitlines()[before:]
        assert len(said) < 40, said
    eventually(lambda: unready(service) == [], timeout=60)
    own.gang("after", 3)
    eventually(lambda: own.bound()["after"] == 3, timeout=60)


def test_what_the_operator_follows_goes_on_after_the_api_server_was_away(own: World, start: Start) -> None:
    """Queues, Commands and workloads, each by a change that only a watch tells of."""
    with own.cluster.client() as api:
        define(api, [COMMANDS])
    own.nodes(1, cpu="10")
    start(kubeconfig=own.cluster.kubeconfig())
    own.queue("before")
    eventually(lambda: state_of(own, "before") == "Open")
    made = own.create(jobs(own), job("train", 2))
    submitted = pod("train-by-hand")
    submitted["metadata"]["ownerReferences"] = [reference({"apiVersion": "batch/v1", "kind": "Job", **made})]
    own.pods([submitted])
    eventually(lambda: group_of(own, made)["spec"].get("minMember") == 2)
    with away(own.cluster, "kube-apiserver", signal.SIGKILL):
        time.sleep(5)
    patch(own, f"{jobs(own)}/train", {"spec": {"parallelism": 1, "completions": 1, "completionMode": "Indexed"}})
    eventually(lambda: group_of(own, made)["spec"]["minMember"] == 1, timeout=120)
    aim = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "before"}
    close = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"name": "close"}}
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{own.namespace}/commands"
    own.create(commands, {**close, "action": "CloseQueue", "target": aim})
    eventually(lambda: state_of(own, "before") == "Closed", timeout=60)
    # The operator may not watch queues yet, and is not told of what was deleted before; then it takes a minute.
    for seconds in (90, 30):
        own.api.delete(f"{QUEUES}/default").raise_for_status()
        eventually(lambda: state_of(own, "default") == "Open", timeout=seconds)


def test_sigterm_while_the_api_server_hangs(own: World, start: Start) -> None:
    service = start(kubeconfig=own.cluster.kubeconfig())
    with away(own.cluster, "kube-apiserver", signal.SIGSTOP):
        assert service.end() == 0
    assert "Traceback" not in service.text
