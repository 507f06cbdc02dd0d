"""docs/fair-shares.md shows what `stromboli simulate` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stromboli.cli import make_app
from stromboli.engine import Engine

PLUGINS = ("proportion", "capacity", "fairshare")


def printed(repository: Path, folder: Path, plugin: str) -> str:
    """What is said of queues in the worked example under a plugin."""
    policy = folder / "policy.yaml"
    policy.write_text(
        f"actions: allocate\ntiers: [{{plugins: [{{name: gang}}, {{name: predicates}}, {{name: {plugin}}}]}}]"
    )
    arguments = ["simulate", "--policy", str(policy), "--explain", str(repository / "examples/three-queues.yaml")]
    output = CliRunner().invoke(make_app(), arguments).output
    lines = [line.rstrip() for line in output.partition(" PodGroup")[0].splitlines()]
    return "\n".join(line for line in lines if line)


def test_the_policy_of_the_page_is_one(repository: Path) -> None:
    page = (repository / "docs/fair-shares.md").read_text()
    [policy] = re.findall(r"```yaml\n(actions:.*?)```", page, re.DOTALL)
    assert "stalegangeviction" in Engine(policy).policy.actions


@pytest.mark.one_in(3)
@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_worked_example_is_what_is_printed(repository: Path, tmp_path: Path, plugin: str) -> None:
    page = (repository / "docs/fair-shares.md").read_text()
    assert printed(repository, tmp_path, plugin) in page
