"""The image: it says what it is, and has nothing that it does not need."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.image.conftest import STAND_IN, Image

pytestmark = pytest.mark.image


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
