"""The image: it starts as a pod starts it, and has nothing that it does not need."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import Binaries
from tests.controlplane.cluster import Cluster, eventually, free_port
from tests.e2e.world import define
from tests.image.conftest import STAND_IN, Image

pytestmark = pytest.mark.image


def test_the_service_is_ready_as_its_user_on_a_root_that_cannot_be_written(
    image: Image, binaries: Binaries, tmp_path: Path
) -> None:
    definitions = [yaml.safe_load(text) for text in crd_schema.files().values()]
    port = free_port()
    with Cluster(binaries) as cluster:
        with cluster.client() as api:
            define(api, definitions)
        tmp_path.chmod(0o755)
        _own_kubeconfig(cluster, tmp_path / "kubeconfig")
        words = ["run", "--kubeconfig", "/tmp/volume/kubeconfig", "--listen", f"127.0.0.1:{port}"]
        command = image.command(*image.config["Entrypoint"], *words)
        given = {**os.environ, "VOLUME": str(tmp_path)}
        process = subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)
        try:
            eventually(lambda: process.poll() is not None or _answers(port) == httpx.codes.OK, 60)
            assert process.poll() is None, process.communicate()[1]
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "Uid:\t65532\t65532" in status
            assert "Gid:\t65532\t65532" in status
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert process.returncode == 0


def _answers(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code
    except httpx.TransportError:
        return 0


def _own_kubeconfig(cluster: Cluster, path: Path) -> None:
    """A kubeconfig that needs no other file."""
    config = yaml.safe_load(cluster.kubeconfig().read_text())
    of_cluster = config["clusters"][0]["cluster"]
    authority = Path(of_cluster.pop("certificate-authority")).read_bytes()
    of_cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    path.write_text(json.dumps(config))
    path.chmod(0o644)


def test_its_root_cannot_be_written(image: Image) -> None:
    assert "Read-only file system" in image.run("touch", "/opt/stromboli/x").stderr
    assert image.run("touch", "/tmp/x").returncode == 0


def test_it_is_this_version_and_says_so(image: Image) -> None:
    told = image.run("stromboli", "--version").stdout
    labels = image.config["Labels"]
    assert told.split()[-1] == labels["org.opencontainers.image.version"]
    assert labels["org.opencontainers.image.base.name"] == STAND_IN
    assert re.fullmatch("sha256:[0-9a-f]{64}", labels["org.opencontainers.image.base.digest"])
    assert datetime.fromisoformat(labels["org.opencontainers.image.created"]) < datetime.now(UTC)
    assert labels["org.opencontainers.image.revision"] not in ("", "unknown")
    assert image.config["User"] == "65532:65532"


def test_nothing_in_it_installs_anything(image: Image) -> None:
    for python in ("/opt/stromboli/bin/python", "/usr/bin/python"):
        for module in ("pip", "ensurepip"):
            assert f"No module named {module}" in image.run(python, "-m", module).stderr
    assert not list((image.root / "opt").rglob("pip"))


def test_its_bill_of_materials_names_what_is_installed(image: Image, repository: Path) -> None:
    document = json.loads((image.root / "opt/stromboli/sbom.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert document["metadata"]["component"]["name"] == "stromboli"
    named = {f"{each['name']}=={each['version']}" for each in document["components"]}
    pinned = (repository / "deploy/image/runtime.txt").read_text().splitlines()
    wanted = {line.split()[0] for line in pinned if "==" in line and "sys_platform == 'win32'" not in line}
    assert named == wanted
    assert f"numpy=={version('numpy')}" in named


def test_the_dockerfile_is_as_hadolint_would_have_it(repository: Path) -> None:
    done = subprocess.run(["hadolint", "Dockerfile"], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
