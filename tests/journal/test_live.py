"""The journal of a service on a cluster: replayed equal, over a restart, and without what no reader needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.extender import Standing
from stromboli.framework.cluster.churn import Churn
from stromboli.framework.cluster.environment import Environment
from stromboli.http.api import api_routes
from stromboli.http.cluster import LiveCluster
from stromboli.http.server import Probes, make_app
from stromboli.journal import Folder, Journal, RecordedSessions, Tape, read, replay, segments
from stromboli.live.service import Service
from stromboli.live.settings import Settings
from stromboli.metrics import Metrics
from stromboli.state.cluster import ClusterState
from tests.live.cluster import SCHEDULING, Cluster
from tests.live.conftest import bare_cluster, cluster, definitions, options, until

__all__ = ["bare_cluster", "cluster", "definitions", "options"]

POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]
metrics: {type: prometheus, address: "http://monitoring", password: hunter2}
"""
GROUPS = f"{SCHEDULING}/namespaces/default/podgroups"
SECRET = "hunter2"


class Recorded:
    """A service with a journal, as `stromboli run` puts them together."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        registry = discover()
        self.state = ClusterState(reads=registry.reads)
        tape = Tape(self.state)
        self.journal = Journal(tape, 1 << 24, Folder(folder, 1 << 24))
        self.sessions = RecordedSessions(self.journal, tape, Engine(POLICY), Environment(churn=Churn()))
        settings = Settings(kubeconfig=kubeconfig, schedule_period=0.25, status_patience=0.05)
        self.service = Service(settings, lambda _: self.sessions, reads=registry.reads, state=self.state)

    async def stop(self) -> None:
        await self.service.stop()
        self.journal.flush()


@pytest.fixture
async def folder(cluster: Cluster, tmp_path: Path) -> Path:
    """The journal of two services, one after the other: pods are placed, evicted for others, and go."""
    folder = tmp_path / "journal"
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    for name in ("one", "other"):
        spec = {"weight": 1, "deserved": {"cpu": "8", "memory": "32Gi"}, "reclaimable": True}
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        cluster.create(f"{SCHEDULING}/queues", kind | {"metadata": {"name": name}, "spec": spec})
    first = Recorded(cluster.kubeconfig, folder)
    await first.service.start()
    cluster.group("low", 1, queue="one")
    for number in range(14):
        secretive(cluster, f"low-{number}", "low")
    await until(lambda: cluster.all_bound(14))
    group(cluster, "urgent", "one", priorityClassName="high")
    for number in range(4):
        cluster.pod(f"urgent-{number}", "urgent", priorityClassName="high")
    await until(lambda: all(cluster.pods().get(f"urgent-{number}") for number in range(4)))
    await first.stop()
    second = Recorded(cluster.kubeconfig, folder)
    await second.service.start()
    group(cluster, "theirs", "other")
    for number in range(6):
        cluster.pod(f"theirs-{number}", "theirs")
    await until(lambda: all(cluster.pods().get(f"theirs-{number}") for number in range(6)))
    cluster.delete("/api/v1/namespaces/default/pods/theirs-0")
    await until(lambda: "theirs-0" not in cluster.pods())
    await second.stop()
    return folder


def group(cluster: Cluster, name: str, queue: str, **spec: Any) -> None:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "volcano.sh/sla-waiting-time": "1h"}
    manifest = {"metadata": {"name": name, "annotations": notes}, "spec": {"minMember": 4, "queue": queue, **spec}}
    cluster.create(GROUPS, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **manifest})


def secretive(cluster: Cluster, name: str, of: str) -> None:
    """A pod with secrets wherever there is room for them."""
    notes = {"scheduling.k8s.io/group-name": of, "kubectl.kubernetes.io/last-applied-configuration": SECRET}
    container = {
        "name": "main",
        "image": "example.com/train:1",
        "resources": {"requests": {"cpu": "1"}},
        "env": [{"name": "TOKEN", "value": SECRET}],
        "command": ["train", SECRET],
        "args": [SECRET],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    }
    template = {"metadata": {"annotations": {"note": SECRET}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    pod = cluster.pod(name, metadata={"annotations": notes}, containers=[container], volumes=volumes)
    bound_claim(cluster, f"{name}-scratch", pod["metadata"])


def bound_claim(cluster: Cluster, name: str, pod: dict[str, Any]) -> None:
    """The claim of a pod's ephemeral volume as its controllers leave it, in the hands of a driver with secrets."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    csi = {"driver": "csi.example.com", "volumeHandle": name, "volumeAttributes": {"token": SECRET}}
    claimed = {"namespace": "default", "name": name}
    volume = {**common, "capacity": {"storage": "1Gi"}, "csi": csi, "claimRef": claimed}
    cluster.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": volume})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"], "controller": True}
    metadata = {
        "name": name,
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        "ownerReferences": [owner],
    }
    claim = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    cluster.create("/api/v1/namespaces/default/persistentvolumeclaims", {"metadata": metadata, "spec": claim})


async def test_it_is_replayed_equal_and_keeps_no_secrets(folder: Path) -> None:
    files = list(segments(folder))
    assert len(files) == 2
    entries = [entry for path in files for entry in read(path.name, path.open("rb"))]
    report = replay(entries, discover())
    assert report.difference is None
    decided = b"".join(entry.decisions for entry in entries if hasattr(entry, "decisions"))
    for what in (b"Bind", b"Evict", b"SetPodGroupStatus"):
        assert what in decided
    content = msgspec.msgpack.encode(entries)
    assert b"low-0" in content
    assert b"sla-waiting-time" in content
    assert SECRET.encode() not in content


async def test_it_is_read_over_http_by_whoever_may_read_pods_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    recorded = Recorded(cluster.kubeconfig, tmp_path)
    routes = api_routes(
        LiveCluster(recorded.service, recorded.sessions, Engine, lambda: None), None, recorded.journal.content
    )
    app = make_app(Standing(lambda: None), Metrics().registry, Probes(), more=[routes])

    def asking(client: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, client=(client, 4711))
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/api/v1")

    async with asking("127.0.0.1") as http:
        missing = await http.get("/journal")
        assert (missing.status_code, "has run none" in missing.text) == (404, True)
        await recorded.service.start()
        cluster.group("train", 1)
        cluster.pod("train-0", "train")
        await until(lambda: cluster.all_bound(1))
        content = (await http.get("/journal")).content
    async with asking("10.0.0.1") as http:
        assert (await http.get("/journal")).status_code == 403
    await recorded.stop()
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        report = replay(read("file", file), discover())
    assert report.difference is None
    assert report.decisions > 0
