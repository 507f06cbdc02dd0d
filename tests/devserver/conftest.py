"""A server in a process of its own, as the demo runs it, and kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stromboli.devserver import DevServer, Options


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a fresh server with a fake kubelet."""
    path = tmp_path / "kubeconfig"
    with DevServer.spawn(Options(), kubeconfig=path):
        yield path


def _kubectl_binaries() -> list[str | None]:
    """kubectl from this environment and from the system, whichever there are."""
    beside_python = Path(sys.executable).with_name("kubectl")
    found: list[str | None] = [str(beside_python)] if beside_python.exists() else []
    system = shutil.which("kubectl", path="/usr/local/bin:/usr/bin:/bin")
    return found + ([system] if system else [])


_PROGRAMS = [
    pytest.param(path, marks=pytest.mark.exhaustive if number else [])
    for number, path in enumerate(_kubectl_binaries() or [None])
]


@pytest.fixture(params=_PROGRAMS)
def kubectl(request: pytest.FixtureRequest, kubeconfig: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs kubectl and returns what it printed; a failure of kubectl fails the test."""
    return _runs(request.param, kubeconfig, tmp_path)


@pytest.fixture(scope="module", params=_PROGRAMS)
def shared_kubectl(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., str]]:
    """kubectl before a server for all tests of a module that leave each other alone."""
    home = tmp_path_factory.mktemp("kubectl")
    with DevServer.spawn(Options(), kubeconfig=home / "kubeconfig"):
        yield _runs(request.param, home / "kubeconfig", home)


def _runs(program: str | None, kubeconfig: Path, home: Path) -> Callable[..., str]:
    if program is None:
        pytest.skip("no kubectl is installed")
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [program, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout + done.stderr

    return run
