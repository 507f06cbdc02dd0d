"""`stromboli support-bundle`: what is in it, and what is not."""

from __future__ import annotations

import io
import json
import tarfile
from datetime import datetime
from pathlib import Path

import pytest

from tests.builders import gang, node, pod_group, queue, state
from tests.cli.conftest import stromboli
from tests.controlplane.cluster import eventually
from tests.live.cluster import Cluster
from tests.live.conftest import bare_cluster, cluster, definitions, options
from tests.ui.cluster import Ran, served

__all__ = ["bare_cluster", "cluster", "definitions", "options"]

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
LOG = f"""policy loaded
metrics not read: http://prometheus:hunter2@example.com/ answered 401
request failed: Authorization: Bearer {TOKEN}
{{"event": "login failed", "token": "s3cr3t-value", "kind": "Node"}}
{{"event": "answered 401: {{\\"clientSecret\\": \\"swordfish, twice\\"}}", "kind": "Node"}}
-----BEGIN RSA PRIVATE KEY-----
MIIEowIBAAKCAQEA
-----END RSA PRIVATE KEY-----
"""
SECRETS = ("hunter2", TOKEN, "s3cr3t-value", "swordfish", "twice", "MIIEowIBAAKCAQEA")


def unpacked(archive: bytes) -> dict[str, bytes]:
    """The files of an archive by name."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for entry in files:
            content = files.extractfile(entry)
            assert content is not None
            found[entry.name.removeprefix("stromboli-support/")] = content.read()
    return found


def test_it_has_what_the_service_tells_and_nothing_secret(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "service.log").write_text(LOG)
    known = state(node("n0"), queue("a"), pod_group("waits", 9, queue="a"), *gang("waits", 9))
    bundle = tmp_path / "bundle.tar.gz"
    with served(Ran(known).app()) as url:
        told = stromboli(
            *("support-bundle", "-o", bundle, "--url", url, "--log", tmp_path / "service.log"),
            *("--kubeconfig", cluster.kubeconfig),
        )
    assert (told.exit_code, told.output) == (0, "")
    assert bundle.stat().st_mode & 0o077 == 0
    files = unpacked(bundle.read_bytes())
    asked = {"policy.json", "overview.json", "queues.json", "queues.txt", "sessions.json", "freshness.json"}
    assert {*asked, "versions.json", "definitions.json", "doctor.txt"} <= set(files)
    assert json.loads(files["versions.json"])["kubernetes"].startswith("v1.")
    made = datetime.fromisoformat(json.loads(files["versions.json"])["made"])
    assert abs(made.timestamp() - bundle.stat().st_mtime) < 600
    with tarfile.open(bundle) as archive:
        assert {entry.mtime for entry in archive} == {made.timestamp()}
    assert b"\na " in files["queues.txt"]
    assert b"leases, replicas and logs: no service was found in the cluster" in files["missing.txt"]
    assert files["logs/service.log"].startswith(b"policy loaded\n")
    assert b'"kind": "Node"' in files["logs/service.log"]
    everything = b"".join(files.values()).decode(errors="replace")
    assert [secret for secret in SECRETS if secret in everything] == []


def test_how_the_replicas_are_is_in_it_with_their_logs(tmp_path: Path, cluster: Cluster) -> None:
    """Of a release of another name, beside a sidecar, one restarted and one of another release."""
    pods = "/api/v1/namespaces/default/pods"
    service, sidecar = {"name": "ours", "image": "stromboli:1", "args": ["run"]}, {"name": "mesh", "image": "mesh:1"}
    for name, chart in (("leads", "batch"), ("waits", "batch"), ("others", "stromboli")):
        labels = {"app.kubernetes.io/name": chart} | ({"stromboli.io/leads": "true"} if name == "leads" else {})
        spec = {"containers": [sidecar, service], "nodeName": "n0"}
        cluster.create(pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    # The kubelet of this API server says once that they run.
    eventually(lambda: {each["status"].get("phase") for each in cluster.items(pods)} == {"Running"})
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status = {"name": "ours", "restartCount": 2, "imageID": "stromboli@sha256:1", "lastState": ended}
    cluster.patch(f"{pods}/waits/status", {"status": {"containerStatuses": [status]}})
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    cluster.create(leases, {"metadata": {"name": "batch"}, "spec": {"holderIdentity": "leads"}})
    cluster.answer("/pods/waits/log?container=ours&tailLines=20000&previous=true", b"killed\n")
    for name in ("leads", "waits", "others"):
        cluster.answer(f"/pods/{name}/log?container=ours", LOG.encode())
    bundle = tmp_path / "bundle.tar.gz"
    told = stromboli("support-bundle", "-o", bundle, "--kubeconfig", cluster.kubeconfig)
    assert told.exit_code == 0, told.output
    files = unpacked(bundle.read_bytes())
    logs = {name.removeprefix("logs/") for name in files if name.startswith("logs/")}
    assert logs == {"leads.log", "waits.log", "waits.before.log", "others.log"}
    assert files["logs/waits.before.log"] == b"killed\n"
    assert files["logs/leads.log"].startswith(b"policy loaded\n")
    assert [secret for secret in SECRETS if secret.encode() in files["logs/leads.log"]] == []
    replicas = json.loads(files["replicas.json"])
    assert {name: each["node"] for name, each in replicas.items()} == dict.fromkeys(("leads", "others", "waits"), "n0")
    assert replicas["waits"]["containerStatuses"] == [status]
    assert json.loads(files["leases.json"])["batch"]["holderIdentity"] == "leads"
    assert b"no service was asked" in files["missing.txt"]
    assert "queues.json" in files


def test_one_is_written_though_nothing_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr("stromboli.cli.sources.DEFAULT_URL", "http://127.0.0.1:1")
    bundle = tmp_path / "bundle.tar.gz"
    assert stromboli("support-bundle", "-o", bundle).exit_code == 0
    files = unpacked(bundle.read_bytes())
    assert set(files) == {"versions.json", "missing.txt"}
    assert files["missing.txt"].decode().startswith("a service: http://127.0.0.1:1: no service answers")
