"""The package that authors begin with: its test passes, and policies find what is in it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stromboli.discovery import discover
from stromboli.plugin_kit.package import PackageError, write_package


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "action", "group", "entry"),
    [
        ("plugin", False, "plugins", "stromboli_plugin:PluginPlugin"),
        ("job", True, "actions", "stromboli_job:JobAction"),
    ],
)
def test_what_was_written_passes_its_own_test(tmp_path: Path, name: str, action: bool, group: str, entry: str) -> None:
    package = write_package(name, tmp_path, action=action)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=package, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {f"stromboli.{group}": {name: entry}}
    found = discover(package)
    assert name in (found.actions if action else found.plugins)


def test_a_name_of_several_words_is_one_in_camel_case(tmp_path: Path) -> None:
    # The guide in CONTRIBUTING.md, whose commands are run, passes the test of this one.
    package = write_package("team-nodes", tmp_path, action=False)
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"stromboli.plugins": {"team-nodes": "stromboli_team_nodes:TeamNodesPlugin"}}
    assert "team-nodes" in discover(package).plugins


@pytest.mark.parametrize("name", ["", "Team", "team_nodes", "1st", "-team", "team-", "a b", "../team", "tëam"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="is not a valid name"):
        write_package(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="'gang' is taken"):
        write_package("gang", tmp_path)
    assert write_package("gang", tmp_path, action=True).is_dir()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "stromboli-mine").mkdir()
    with pytest.raises(PackageError, match="stromboli-mine: File exists"):
        write_package("mine", tmp_path)
