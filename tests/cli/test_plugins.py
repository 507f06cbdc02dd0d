"""`stromboli plugins`: the page, a package to begin with, and the trial."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import make_app
from tests.cli.conftest import stromboli
from tests.lab.traces import write_trace

SOURCE = '''
import numpy as np
from stromboli.framework import Action, Arguments, Plugin
from pydantic import Field

class Named(Arguments):
    least: int = Field(0, description="this | that")

class Mine(Plugin):
    """mine: what it does."""
    name = "mine"
    Arguments = Named

    def node_order(self, pod, nodes):
        return np.zeros(max(self.arguments.least, len(nodes)))

class Sweep(Action):
    name = "sweep"

class Silent(Plugin):
    name = "silent"
'''
POLICY = """
actions: allocate
tiers:
- plugins:
  - name: gang
- plugins:
  - name: mine
    arguments: {least: 1000}
"""


def plugins(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(make_app(), ["plugins", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "policy.conf").write_text(POLICY)
    return tmp_path


def test_the_page_has_plugins_and_actions_of_a_folder(folder: Path) -> None:
    page = plugins("--plugins-dir", str(folder)).output
    assert "## mine\n\nWhat it does.\n\nExtension points: `node_order`.\n" in page
    assert "| `least` | int | `0` | this \\| that |" in page
    assert "## silent\n\n\n\nExtension points: none.\n" in page
    assert "# Actions\n" in page
    assert "## sweep\n" in page.partition("# Actions\n")[2]


def test_one_of_a_folder_is_shown_by_name(folder: Path) -> None:
    result = plugins("mine", "--plugins-dir", str(folder))
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "## mine")


def test_a_folder_that_cannot_be_loaded_is_named(folder: Path) -> None:
    (folder / "mine.py").write_text(SOURCE.replace("node_order", "node_ordre"))
    for arguments in (["--plugins-dir", str(folder)], ["check", "mine", "--plugins-dir", str(folder)]):
        result = plugins(*arguments)
        assert result.exit_code == 2
        assert "did you mean 'node_order'?" in result.stderr


def test_check_says_what_is_good(folder: Path) -> None:
    result = plugins("check", "mine", "--plugins-dir", str(folder), "--clusters", "1", "--nodes", "20")
    assert result.exit_code == 0, result.output
    assert [line.partition(":")[0] for line in result.output.splitlines()] == [
        "ok      answers have the right type and shape",
        "ok      keys compare with each other",
        "ok      only declared keys are read",
        "ok      arguments are not modified",
        "ok      two runs are equal",
        "ok      pods are placed in batches as one by one",
        "ok      cost at 20 nodes",
    ]


def test_check_fails_with_the_arguments_of_a_policy(folder: Path) -> None:
    options = ["--plugins-dir", str(folder), "--policy", str(folder / "policy.conf")]
    result = plugins("check", "mine", "--clusters", "1", "--nodes", "0", *options)
    assert result.exit_code == 1
    assert "failed  answers have the right type and shape" in result.output
    assert "- node_order() should return scores of shape (" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "gnag"], "unknown plugin 'gnag', did you mean 'gang'?"),
        (["check", "gang", "--policy", "{folder}/none.conf"], "none.conf: No such file or directory"),
        (["check", "drf", "--policy", "{folder}/other.conf"], "other.conf: does not use plugin 'drf'"),
        (["check", "drf", "--policy", "{folder}/policy.conf"], "unknown plugin 'mine'"),
        (["new", "Mine"], "'Mine' is not a valid name"),
        (["new", "gang"], "the name 'gang' is taken"),
        (["--plugins-dir", "{folder}", "check", "mine"], "goes after `check`"),
    ],
)
def test_what_cannot_be_done_is_named(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "other.conf").write_text("actions: allocate\ntiers: [{plugins: [{name: gang}]}]\n")
    result = plugins(*(argument.format(folder=folder) for argument in arguments))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", "").split())


def test_a_plugin_that_is_not_found_says_where_it_was_looked_for_and_what_to_do(folder: Path) -> None:
    source = "from stromboli.framework import Plugin\n\n\nclass Forgotten(Plugin):\n    pass\n"
    (folder / "nameless.py").write_text(source)
    alone = plugins("check", "team").stderr
    assert "no folder was looked at: --plugins-dir DIR names that of its Python file" in alone
    assert f"{sys.prefix}: looked at the entry points stromboli.plugins of installed packages (" in alone
    assert "`pip install -e .`" in alone
    beside = plugins("check", "team", "--plugins-dir", str(folder)).stderr
    assert f"{folder}: looked at its Python files (" in beside
    assert "nameless.py" in beside
    assert "class Forgotten has no name: give it `name = 'team'`" in beside
    assert "'allocate' is an action" in plugins("check", "allocate").stderr


def test_new_says_where_the_package_is(tmp_path: Path) -> None:
    result = plugins("new", "team-nodes", "--dir", str(tmp_path / "made"))
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{tmp_path / 'made' / 'stromboli-team-nodes'}: in it, try it with `pytest`")


TEAM = """
actions: allocate
tiers: [{plugins: [{name: gang}, {name: predicates}, {name: fgd}, {name: mine}]}]
"""


@pytest.mark.exhaustive
def test_the_laboratory_and_the_benchmark_decide_by_plugins_of_a_folder(folder: Path) -> None:
    """Also in processes of their own; what a changed plugin does is tried anew."""
    (folder / "trace").mkdir()
    write_trace(folder / "trace")
    (folder / "team.conf").write_text(TEAM)
    plan = folder / "plan.yaml"
    plan.write_text("{trace: trace, policies: [team.conf], seeds: 1..2}")
    more = ("--plugins-dir", folder)

    assert "unknown plugin 'mine'" in stromboli("lab", "sweep", plan, "--jobs", 1).stderr
    for command in ("sweep", "recommend"):
        told = stromboli("lab", command, plan, *more, *(["--jobs", 2] if command == "sweep" else []))
        assert told.exit_code == 0, told.output
        assert "team" in told.stdout
    (folder / "changed").mkdir()
    (folder / "changed/mine.py").write_text(f"{SOURCE}\n#: changed\n")
    assert "no trial is done" in stromboli("lab", "recommend", plan, "--plugins-dir", folder / "changed").stderr

    told = stromboli("lab", "run", folder / "trace", "--policy", folder / "team.conf", "--seed", 1, "--jobs", 1, *more)
    assert told.exit_code == 0, told.output
    few = ("--nodes", 2, "--pods", 4, "--gangs", 1, "--runs", 1)
    assert stromboli("bench", "engine", "--policy", folder / "team.conf", *few, *more).exit_code == 0
