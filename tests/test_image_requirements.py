"""What the image installs is what `make venv` and CI install, each by its hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pinned(text: str) -> dict[str, str]:
    """Versions by name, as package indexes spell it."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize("name", ["build", "runtime"])
def test_versions_are_those_of_the_constraints(repository: Path, name: str) -> None:
    text = (repository / f"deploy/image/{name}.txt").read_text()
    of_image, all_pinned = pinned(text), pinned((repository / "constraints.txt").read_text())
    assert of_image
    assert of_image == {package: all_pinned.get(package) for package in of_image}, "run `make image-requirements`"
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)] == []


def test_what_the_package_needs_is_installed(repository: Path) -> None:
    project = (repository / "pyproject.toml").read_text()
    needed = re.findall(r'^ *"([a-z0-9-]+)>=', project.partition("[project.optional-dependencies]")[0], re.MULTILINE)
    assert len(needed) > 10
    of_image = pinned((repository / "deploy/image/runtime.txt").read_text())
    assert [name for name in (*needed, "jinja2", "opentelemetry-sdk") if name not in of_image] == []
