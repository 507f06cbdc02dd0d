"""An image for several platforms: each on the base for it, and one name for all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.image.conftest import environment
from tests.image.registry import Registry, registry

pytestmark = pytest.mark.image

#: in place of the image's own, whose programs only a machine of each kind or qemu could run
_DOCKERFILE = """
ARG BASE
FROM ${BASE}
ARG BASE_NAME
ARG BASE_DIGEST
LABEL name="${BASE_NAME}" digest="${BASE_DIGEST}"
COPY LICENSE /LICENSE
"""
PLATFORMS = ["linux/amd64", "linux/arm64"]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    assert shutil.which("docker-registry"), "apt-get install docker-registry"
    with registry(tmp_path_factory.mktemp("registry")) as served, pytest.MonkeyPatch.context() as patch:
        for name, value in served.environment.items():
            patch.setenv(name, value)
        yield served


@pytest.fixture(scope="module")
def base(local: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    return local.push("base", [each.partition("/")[2] for each in PLATFORMS], tmp_path_factory.mktemp("base"))


def needs(engine: str) -> None:
    if shutil.which(engine) is None:
        pytest.skip(f"{engine} is not installed")


def build(repository: Path, engine: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`make image` with what an image of one file is made of."""
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    command = [sys.executable, "deploy/image/build.py", f"--file={folder}/Dockerfile", *words]
    given = {**environment(), "ENGINE": engine}
    return subprocess.run(command, cwd=repository, env=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("engine", ["buildah", "podman"])
def test_a_name_without_a_registry_is_what_kubelets_look_for(
    repository: Path, base: str, tmp_path: Path, engine: str
) -> None:
    needs(engine)
    for given, known in (
        ("named:1", "docker.io/library/named:1"),
        ("team/named:1", "docker.io/team/named:1"),
        ("localhost/named:1", "localhost/named:1"),
        ("example.com/named:1", "example.com/named:1"),
        ("registry:5000/named:1", "registry:5000/named:1"),
    ):
        done = build(repository, engine, tmp_path, "--base", base, "--tag", given)
        assert done.returncode == 0, done.stderr
        listed = subprocess.run(
            [engine, "images", known], env=environment(), capture_output=True, text=True, check=False
        )
        assert known.partition(":1")[0] in listed.stdout


@pytest.mark.parametrize("engine", ["buildah", "podman"])
@pytest.mark.parametrize("wanted", [PLATFORMS[:1], PLATFORMS[1:], PLATFORMS], ids=",".join)
def test_each_platform_has_the_base_for_it(
    repository: Path, base: str, tmp_path: Path, engine: str, wanted: list[str]
) -> None:
    needs(engine)
    archive, tag = tmp_path / "image.tar", f"localhost/platforms-{engine}:1"
    # What had the name before, an image or a list, is no obstacle.
    for platforms in (PLATFORMS[:1], PLATFORMS, wanted):
        words = ("--base", base, "--tag", tag, "--platform", ",".join(platforms), "--archive", str(archive))
        done = build(repository, engine, tmp_path, *words)
        assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as layout:
        (named,) = member(layout, "index.json")["manifests"]
        assert f"{archive}: {named['digest']}" in done.stderr
        content = blob(layout, named["digest"])
        manifests = [blob(layout, each["digest"]) for each in content["manifests"]] if len(wanted) > 1 else [content]
        configs = [blob(layout, each["config"]["digest"]) for each in manifests]
        assert [f"{each['os']}/{each['architecture']}" for each in configs] == wanted
        for manifest, config in zip(manifests, configs, strict=True):
            assert first_layer(layout, manifest) == config["architecture"]
            labels = config["config"]["Labels"]
            assert (labels["name"], labels["digest"][:7]) == (base, "sha256:")


def member(layout: tarfile.TarFile, name: str) -> Any:
    file = layout.extractfile(name)
    assert file is not None
    return json.load(file)


def blob(layout: tarfile.TarFile, digest: str) -> Any:
    return member(layout, f"blobs/{digest.replace(':', '/')}")


def first_layer(layout: tarfile.TarFile, manifest: Any) -> str:
    """For which architecture the base says that it is."""
    file = layout.extractfile(f"blobs/{manifest['layers'][0]['digest'].replace(':', '/')}")
    assert file is not None
    with tarfile.open(fileobj=file) as layer:
        content = layer.extractfile("architecture")
        assert content is not None
        return content.read().decode()
