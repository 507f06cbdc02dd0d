"""The image, built by buildah on a stand-in for its base, and its files as a folder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.build import cached

#: what `make image` takes from a registry: a Debian with Python, made of Debian's packages
STAND_IN = "localhost/stand-in-base:latest"
IMAGE = "localhost/stromboli-test:latest"
_SUITE, _MIRROR = "bookworm", "http://deb.debian.org/debian"
_PACKAGES = "python3,python3-venv,ca-certificates"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

#: volumes of a pod: a folder by where it is mounted, None for one that is empty
Volumes = Mapping[str, Path | None]
NOTHING_BUT_TMP: Volumes = {"/tmp": None}


class Image:
    """An image in buildah's storage."""

    def __init__(self, name: str, root: Path) -> None:
        #: its files
        self.root = root
        told = json.loads(buildah("inspect", "--type", "image", name))
        self.config: dict[str, Any] = told["OCIv1"]["config"]

    def run(
        self, *words: str, volumes: Volumes = NOTHING_BUT_TMP, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the image to its end."""
        command = self.command(*words, volumes=volumes, env=env)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def command(
        self, *words: str, volumes: Volumes = NOTHING_BUT_TMP, env: Mapping[str, str] | None = None
    ) -> list[str]:
        """A program as the image says: as its user, with its environment, on a root that cannot be written."""
        root, given = str(self.root), [*self.config["Env"], *(f"{name}={value}" for name, value in (env or {}).items())]
        steps = [
            # As for a container its runtime makes what volumes are mounted on.
            *(f"mkdir -p {root}{at}" for at in volumes),
            f"mount --bind {root} {root}",
            f"mount -o remount,bind,ro {root}",
            *(f"mount --rbind {part} {root}{part}" for part in ("/proc", "/dev")),
            *(
                f"mount -t tmpfs -o mode=1777 tmpfs {root}{at}"
                if folder is None
                else f"mount --bind {folder} {root}{at}"
                for at, folder in volumes.items()
            ),
            f'exec chroot --userspec={self.config["User"]} {root} env -i {shlex.join(given)} "$@"',
        ]
        return ["unshare", "--mount", "sh", "-ec", "\n".join(steps), "sh", *words]


def buildah(*words: str) -> str:
    """Run buildah where there are neither user namespaces nor overlays, and return what it prints."""
    done = subprocess.run(["buildah", *words], capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, f"buildah {' '.join(words)}: {done.stderr[-4000:]}"
    return done.stdout.strip()


def environment() -> dict[str, str]:
    return {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a build: where a proxy stands before the registry, pip trusts what it trusts here."""
    pip = tmp_path_factory.mktemp("pip") / "pip.conf"
    pip.write_text(f"[global]\ncert = {_CERTIFICATES}\n")
    return [f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro", f"--volume={pip}:/etc/pip.conf:ro"]


@pytest.fixture(scope="session")
def image(repository: Path, volumes: list[str]) -> Iterator[Image]:
    for program in ("buildah", "debootstrap"):
        assert shutil.which(program), f"apt-get install {program}"
    if STAND_IN.partition(":")[0] not in buildah("images", "--format", "{{.Name}}"):
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, str(cached(f"stand-in-base-{_SUITE}", _bootstrap) / "root"), "/")
        buildah("commit", "--quiet", "--rm", container, STAND_IN)
    build = [sys.executable, "deploy/image/build.py", "--base", STAND_IN, "--tag", IMAGE, *volumes]
    done = subprocess.run(
        build, cwd=repository, capture_output=True, text=True, check=False, env={**environment(), "ENGINE": "buildah"}
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    container = buildah("from", IMAGE)
    yield Image(IMAGE, Path(buildah("mount", container)))
    buildah("rm", container)
    buildah("rmi", IMAGE)


def _bootstrap(directory: Path) -> None:
    root = directory / "root"
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root), _MIRROR]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (root / "usr/bin/python").symlink_to("python3")
