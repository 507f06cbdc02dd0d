"""The wheel, installed as a user installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

#: what a wheel is made of
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "app/stromboli", "charts/stromboli/files/crds", "examples")


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree, made = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in _SOURCES:
        source, target = repository / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(made), str(tree)
    )
    (found,) = made.iterdir()
    return found


def run(*words: str, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_it_has_the_definitions_the_examples_and_the_readme(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(metadata).decode())
        for folder, share in (("charts/stromboli/files/crds", "crds"), ("examples", "examples")):
            for path in (repository / folder).glob("*.yaml"):
                (name,) = [each for each in names if each.endswith(f"/share/stromboli/{share}/{path.name}")]
                assert archive.read(name) == path.read_bytes()
    assert told["Description-Content-Type"] == "text/markdown"
    assert str(told.get_payload()).strip() == (repository / "README.md").read_text().strip()


def test_a_fresh_environment_runs_the_demo(wheel: Path, repository: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", str(tmp_path / "fresh"))
    programs = tmp_path / "fresh" / "bin"
    constraints = str(repository / "constraints.txt")
    pip = (str(programs / "python"), "-m", "pip", "install", "--quiet", "--no-compile")
    run(*pip, "--constraint", constraints, str(wheel))
    assert run(str(programs / "stromboli"), "--version", cwd=tmp_path).split()[-1] in wheel.name
    assert "every queue has what it deserves" in run(str(programs / "stromboli"), "demo", cwd=tmp_path)
    examples = tmp_path / "fresh/share/stromboli/examples"
    assert run(str(programs / "stromboli"), "simulate", str(examples / "two-gangs.yaml"), cwd=tmp_path)
