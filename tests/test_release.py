"""`make release`: one version everywhere, and packages that say where they come from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import yaml


@pytest.fixture
def told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where the version is told, by what pattern."""
    monkeypatch.syspath_prepend(str(repository / "deploy"))
    patterns: dict[str, str] = import_module("release").TOLD
    return patterns


def test_every_file_tells_the_version_of_pyproject(repository: Path, told: dict[str, str]) -> None:
    def versions(name: str) -> set[str]:
        return {found[1] for found in re.findall(told[name], (repository / name).read_text(), re.MULTILINE)}

    (version,) = versions("pyproject.toml")
    assert {name: versions(name) for name in told} == {name: {version} for name in told}


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    """A clone with what is committed, and what has changed in the files that a release is made by."""
    place = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--no-tags", str(repository), str(place))
    for name in ("deploy/release.py", "Makefile"):
        (place / name).write_text((repository / name).read_text())
    for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.com")):
        git(place, "config", name, value)
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--allow-empty", "--message", "What is tried")
    return place


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True).stdout.strip()


def release(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "release", f"PYTHON={sys.executable}", *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "says"),
    [("1.0", "MAJOR.MINOR.PATCH"), ("0.0.1", "is older than"), ("9.8.7", "has been released")],
)
def test_a_version_that_cannot_be_released_is_refused(checkout: Path, version: str, says: str) -> None:
    git(checkout, "tag", "v9.8.7")
    done = release(checkout, f"VERSION={version}")
    assert done.returncode != 0
    assert says in done.stderr


def test_what_is_not_committed_is_not_released(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed")
    assert "commit or stash" in release(checkout, "VERSION=9.8.7").stderr


def test_a_changelog_with_nothing_new_is_no_release(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- All.\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "Nothing new")
    assert "nothing that is unreleased" in release(checkout, "VERSION=9.8.7").stderr


@pytest.mark.exhaustive
def test_a_dry_run_makes_the_packages_and_changes_nothing_and_publishing_tags_them(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    done = release(checkout, "VERSION=9.8.7")
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag", "--list")) == (before, "")
    assert git(checkout, "status", "--porcelain") == ""
    is_whole(checkout / "dist/9.8.7")

    done = release(checkout, "VERSION=9.8.7", "PUBLISH=yes")
    assert done.returncode == 0, done.stderr
    assert git(checkout, "log", "-1", "--format=%s") == "Release 9.8.7"
    assert git(checkout, "rev-parse", "v9.8.7^{commit}") == git(checkout, "rev-parse", "HEAD")
    assert "### Added" in git(checkout, "tag", "--list", "--format=%(contents)", "v9.8.7")
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]\n\n## \[9\.8\.7\] - \d{4}-\d\d-\d\d\n\n### Added$", changelog, re.MULTILINE)
    chart = yaml.safe_load((checkout / "charts/stromboli/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("9.8.7", "9.8.7")
    statement = json.loads((checkout / "dist/9.8.7/provenance.json").read_text())
    (source,) = [each for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"] if "uri" in each]
    assert source["digest"] == {"gitCommit": git(checkout, "rev-parse", "HEAD")}


def is_whole(made: Path) -> None:
    """The packages are there, are of their version, and are those that the statement vouches for."""
    wheel, source, chart, bill = (
        made / name
        for name in (
            "stromboli-9.8.7-py3-none-any.whl",
            "stromboli-9.8.7.tar.gz",
            "stromboli-chart-9.8.7.tgz",
            "stromboli-9.8.7.cdx.json",
        )
    )
    with zipfile.ZipFile(wheel) as archive:
        assert "stromboli/engine.py" in archive.namelist()
    with tarfile.open(source) as archive_of_source:
        assert "stromboli-9.8.7/pyproject.toml" in archive_of_source.getnames()
    with tarfile.open(chart) as archive_of_chart:
        member = archive_of_chart.extractfile("stromboli/Chart.yaml")
        assert member is not None
        assert yaml.safe_load(member)["appVersion"] == "9.8.7"
    assert json.loads(bill.read_text())["metadata"]["component"]["version"] == "9.8.7"

    statement = json.loads((made / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    vouched = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert vouched == {path.name: digest(path) for path in (wheel, source, chart, bill)}
    assert "### Added" in (made / "notes.md").read_text()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
