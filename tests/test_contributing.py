"""The guides in CONTRIBUTING.md: their code is run in one module, their commands in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


def blocks(repository: Path, language: str) -> str:
    """All blocks of a language."""
    text = (repository / "CONTRIBUTING.md").read_text()
    return "\n\n".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


@pytest.mark.exhaustive
def test_the_code_of_the_guides_passes_its_own_tests(repository: Path, tmp_path: Path) -> None:
    source = blocks(repository, "python")
    (tmp_path / "test_guides.py").write_text(source)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_guides.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert f"{source.count('def test_')} passed" in run.stdout


@pytest.mark.exhaustive
def test_the_commands_of_the_guides_succeed(repository: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["sh", "-ec", blocks(repository, "sh")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_layers_are_those_that_are_enforced(repository: Path) -> None:
    contracts = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = [set(layer.split(" | ")) for layer in contracts[0]["layers"]]
    drawn = re.search(r"## The layers\n\n((?:    .*\n)+)", (repository / "CONTRIBUTING.md").read_text())
    assert drawn is not None
    rows = [re.split(r"\s{2,}", line.strip())[0] for line in drawn.group(1).splitlines()]
    assert [set(part.split(", ")) for row in rows for part in row.split(" > ")] == enforced


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "README.md"])
def test_the_files_that_a_page_names_are_there(repository: Path, page: str) -> None:
    text = (repository / page).read_text()
    named = re.findall(
        r"`((?:app|api|state|policy|framework|kube|eviction|placement|fairness|plugins|actions|simulation|live|metrics"
        r"|extender|devserver|cli|plugin_kit|tests|docs|deploy|examples|charts)/[\w./-]+)`",
        text,
    )
    assert named
    roots = (repository, repository / "app" / "stromboli")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
