"""The guides of CONTRIBUTING.md and of docs/write-a-plugin.md: their code is run, and their commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

GUIDE = "docs/write-a-plugin.md"


def blocks(text: str, fence: str) -> list[str]:
    """All blocks of code that begin with a fence."""
    return re.findall(rf"^```{re.escape(fence)}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(command: Sequence[str], folder: Path) -> str:
    """What a command prints; it has to succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_the_code_of_the_guides_passes_its_own_tests(repository: Path, tmp_path: Path) -> None:
    source = "\n\n".join(blocks((repository / "CONTRIBUTING.md").read_text(), "python"))
    (tmp_path / "test_guides.py").write_text(source)
    printed = run([sys.executable, "-m", "pytest", "-q", "test_guides.py"], tmp_path)
    assert f"{source.count('def test_')} passed" in printed


@pytest.mark.exhaustive
def test_a_plugin_is_written_as_its_guide_says(repository: Path, tmp_path: Path) -> None:
    text = (repository / GUIDE).read_text()
    begin, check = blocks(text, "sh")
    assert "3 passed" in run(["sh", "-ec", begin], tmp_path)
    package = tmp_path / "stromboli-team"
    (plugin,) = blocks(text, 'python title="stromboli_team.py"')
    (package / "stromboli_team.py").write_text(plugin)
    (test,) = blocks(text, 'python title="tests/test_team.py"')
    tests = package / "tests" / "test_team.py"
    before = tests.read_text().count("def test_")
    tests.write_text(f"{tests.read_text()}\n\n{test}")
    printed = run(["sh", "-ec", check], package)
    assert f"{before + 1} passed" in printed
    (policy,) = blocks(text, "yaml")
    (tmp_path / "policy.conf").write_text(policy)
    checked = ["stromboli", "config", "check", str(tmp_path / "policy.conf"), "--plugins-dir", "."]
    run(checked, package)


@pytest.mark.exhaustive
def test_a_plugin_remembers_as_the_guide_says(repository: Path, tmp_path: Path) -> None:
    (source,) = blocks((repository / GUIDE).read_text(), "python")
    (tmp_path / "patient.py").write_text(source)
    run(["stromboli", "plugins", "check", "patient", "--plugins-dir", "."], tmp_path)


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


def test_the_folders_of_the_framework_are_described_with_their_modules(repository: Path) -> None:
    _, _, text = (repository / "docs" / "architecture.md").read_text().partition("| folder | what belongs there")
    table = {row.split("`")[1]: row for row in text.partition("\n\n")[0].splitlines()[2:]}
    folder = repository / "app" / "stromboli" / "framework"
    modules = [path for path in folder.glob("*/*.py") if path.stem != "__init__"]
    assert {f"{path.parent.name}/" for path in modules} == table.keys()
    assert [path.name for path in modules if f"`{path.stem}`" not in table[f"{path.parent.name}/"]] == []
