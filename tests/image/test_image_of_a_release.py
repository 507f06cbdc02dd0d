"""`make release` with a program at hand that builds images."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.image.conftest import STAND_IN, Image, buildah, environment
from tests.test_release import clone, release

pytestmark = pytest.mark.image


def test_a_release_has_the_image_as_an_archive_and_vouches_for_it(
    image: Image, volumes: list[str], repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    checkout = clone(repository, tmp_path / "checkout")
    words = ("VERSION=9.8.7", f"BASE={STAND_IN}", f"ARGS={' '.join(volumes)}")
    done = release(checkout, *words, engine="buildah")
    assert done.returncode == 0, done.stdout + done.stderr
    made = checkout / "dist/9.8.7"
    archive = made / "stromboli-image-9.8.7.tar"
    with tarfile.open(archive) as layout:
        (manifest,) = _json(layout, "index.json")["manifests"]
        blob = f"blobs/{manifest['digest'].replace(':', '/')}"
        config = _json(layout, f"blobs/{_json(layout, blob)['config']['digest'].replace(':', '/')}")["config"]
    assert config["Labels"]["org.opencontainers.image.version"] == "9.8.7"
    assert config["User"] == image.config["User"]
    assert f"stromboli:9.8.7 is {manifest['digest']}" in done.stdout
    subjects = json.loads((made / "provenance.json").read_text())["subject"]
    vouched = {each["name"]: each["digest"]["sha256"] for each in subjects}
    assert vouched["stromboli:9.8.7"] == manifest["digest"].removeprefix("sha256:")
    assert vouched[archive.name] == hashlib.sha256(archive.read_bytes()).hexdigest()
    # It is an image like any other where it is loaded.
    loaded = buildah("pull", "--quiet", f"oci-archive:{archive}")
    assert buildah("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", loaded) == manifest["digest"]
    buildah("rmi", "--force", loaded)


def _json(layout: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = layout.extractfile(name)
    assert file is not None
    found: dict[str, Any] = json.load(file)
    return found
