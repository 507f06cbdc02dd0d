"""`kubectl stromboli <TAB>`: what kubectl reads from the program that it looks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stromboli.cli.completion import completed
from tests.cli.conftest import stromboli

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def candidates(*words: str) -> list[str]:
    """What may stand for the last word, without what is said about it, and whether files may."""
    return [line.partition("\t")[0] for line in completed(words)]


def test_commands_values_and_options_are_completed() -> None:
    assert "queue\tThe queues of a cluster." in completed([""])
    assert candidates() == candidates("")
    assert candidates("queue", "") == ["list", "tree", "open", "close", "create", "set", "delete", ":4"]
    assert candidates("queue", "tr") == ["tree", ":4"]
    assert candidates("why", "") == ["pod", "job", "queue", ":4"]
    assert candidates("why", "job", "train", "--names") == ["--namespace", ":4"]
    assert candidates("why", "job", "-n", "a b", "train", "-o", "") == ["text", "wide", "json", "yaml", ":4"]


def test_what_is_no_command_yet_is_no_error() -> None:
    assert "queue" in candidates("queu", "")
    assert stromboli("queu").exit_code == 2


@pytest.mark.parametrize("words", [["simulate", ""], ["why", "-f", "clu"], ["run", "--journal-dir", ""]])
def test_where_nothing_is_known_the_shell_may_complete_files(words: list[str]) -> None:
    assert candidates(*words) == [":0"]


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_finds_it(tmp_path: Path) -> None:
    """With the console scripts as an installer writes them."""
    for name, entry in tomllib.loads(PROJECT.read_text())["project"]["scripts"].items():
        module, _, function = entry.partition(":")
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    asked = ["kubectl", "__complete", "stromboli", "queue", "o"]
    answer = subprocess.run(asked, capture_output=True, text=True, env=environment, check=True, timeout=60)
    first, *rest = answer.stdout.splitlines()
    assert first.startswith("open\t")
    assert rest == [":4"]
