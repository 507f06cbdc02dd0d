"""Whatever is typed, a command says in a line what is wrong, and never shows a traceback."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.references.commands import commands, everything
from tests.cli.conftest import CLUSTER, stromboli
from tests.fuzz import tried

#: those that go on until they are stopped, or that take their time
LONG = {"stromboli demo", "stromboli bench engine", "stromboli bench matrix", "stromboli plugins check", "stromboli ui"}
VALUES = [
    *("cluster.yaml", "none.yaml", ".", "-", "/dev/null", "policy.conf", "binary", "", " ", "-1", "0", "1e9", "json"),
    *("pod", "job", "queue", "team", "train", "default/train", "a/b/c", "/", "..", "gang", "volcano", "\u202e", "a\nb"),
    *("http://127.0.0.1:1", "http://[::1", "ftp://x", "http://user:x@127.0.0.1:1/?#", "https://127.0.0.1:1", "nowhere"),
]
WORD = st.sampled_from(VALUES) | st.text(max_size=8)


@cache
def quick() -> Mapping[str, Any]:
    """The others, by the words that they are called with; to ask for them imports all of the package."""
    return {words: command for words, command in commands() if words not in LONG}


def line(words: str) -> st.SearchStrategy[list[str]]:
    """A command with options of its own and others, in any order, and with any values."""
    own = {name for each in quick()[words].params for name in each.opts if name.startswith("-")}
    option = st.sampled_from(sorted(own | {"--help", "-x"}))
    part = st.tuples(option, WORD) | st.tuples(option) | st.tuples(WORD)
    return st.lists(part, max_size=5).map(lambda parts: words.split()[1:] + [each for part in parts for each in part])


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a few files, from where no cluster and no service is reached."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "policy.conf").write_text("actions: alocate\n")
    (folder / "binary").write_bytes(bytes(range(256)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        patch.setenv("KUBECONFIG", str(folder / "none"))
        patch.setenv("STROMBOLI_URL", "http://127.0.0.1:1")
        yield folder


@pytest.mark.usefixtures("elsewhere")
@tried(25)
@given(typed=st.deferred(lambda: st.sampled_from(sorted(quick())).flatmap(line)))
def test_no_command_line_ends_in_a_traceback(typed: list[str]) -> None:
    told = stromboli(*typed, stdin=CLUSTER)
    assert told.exit_code in (0, 1, 2), told.output
    assert told.exception is None or isinstance(told.exception, SystemExit), told.output
    assert "Traceback" not in told.output
    if told.exit_code == 2:
        assert told.stderr.strip()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("wyh job train", "stromboli: no such command 'wyh', did you mean 'why'? (see stromboli --help)"),
        (
            "config chek x",
            "stromboli config: no such command 'chek', did you mean 'check'? (see stromboli config --help)",
        ),
        ("why jobb x", "stromboli why: invalid value for 'pod|job|queue': 'jobb' is not one of 'pod', 'job', 'queue'"),
        ("why job x --nmespace y", "stromboli why: no such option: --nmespace (Possible options: --namespace)"),
        ("why job", "stromboli why: missing argument 'name' (see stromboli why --help)"),
        ("queue list -o xml", "stromboli queue list: invalid value for '-o' / '--output': 'xml' is not one of 'text'"),
        ("simulate x --cycles 0", "stromboli simulate: invalid value for '--cycles': input should be greater than"),
        ("plugins gagn", "unknown plugin 'gagn', did you mean 'gang'?"),
        ("config check policy.conf", "policy.conf: actions: unknown action 'alocate', did you mean 'allocate'?"),
    ],
)
def test_what_is_mistyped_is_said_in_a_line(line: str, says: str) -> None:
    told = stromboli(*line.split())
    assert told.exit_code == 2
    assert told.stderr.splitlines()[0].startswith(says)
    assert told.stdout == ""


def test_every_command_has_the_habits_of_kubectl() -> None:
    """What reads a cluster takes its flags, what lists jobs takes namespaces, and what answers has forms of output."""
    flags = {words: {name for each in command.params for name in each.opts} for words, command in commands()}
    for words, known in flags.items():
        assert ("--kubeconfig" in known) == ("--context" in known), words
        assert ("-n" in known) == ("--namespace" in known), words
        assert ("-o" in known) == ("--output" in known), words
    answering = {f"stromboli {each}" for each in ("why", "whatif", "doctor", "queue list", "queue tree", "job list")}
    assert {words for words in answering if not {"--kubeconfig", "-o", "-f"} <= flags[words]} == set()
    assert {"-n", "-A"} <= flags["stromboli job list"]


#: commands that take no plugins of a folder, and why they need none
WITHOUT_PLUGINS = {
    "stromboli demo": "decides by a policy of its own",
    "stromboli bench matrix": "decides by a policy for each feature",
    "stromboli ui": "asks the service",
    "stromboli record": "asks the service",
    "stromboli queue open": "writes a state that no policy changes",
    "stromboli queue close": "writes a state that no policy changes",
    "stromboli plugins new": "writes a package",
    "stromboli config default": "prints a text",
    "stromboli lab generate": "makes a workload",
    "stromboli crds print": "is about definitions",
    "stromboli crds diff": "is about definitions",
    "stromboli crds apply": "is about definitions",
}


def test_every_command_that_decides_or_reads_a_policy_takes_plugins_of_a_folder() -> None:
    flags = {words: {name for each in command.params for name in each.opts} for words, command in commands()}
    assert {words for words, known in flags.items() if "--plugins-dir" not in known} == WITHOUT_PLUGINS.keys() | (
        {words for words in flags if words.count(" ") == 0}
    )
    assert {words for words in WITHOUT_PLUGINS if "--policy" in flags[words]} == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("typed", "at", "offered"), [("stromboli wh", 1, "why"), ("stromboli queue ", 2, "tree")])
def test_the_shell_completes_commands(typed: str, at: int, offered: str) -> None:
    asked = {"_STROMBOLI_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(at)}
    program = "from stromboli.cli import main; import sys; sys.argv = ['stromboli']; main()"
    command, environment = [sys.executable, "-c", program], {**os.environ, **asked}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert offered in done.stdout.split()


def test_every_help_text_fits_a_terminal() -> None:
    told = {words: command.get_help(typer.Context(command, info_name=words)) for words, command in everything()}
    assert {words for words, text in told.items() if max(map(len, text.splitlines())) > 80} == set()


def test_options_that_several_commands_have_are_defined_once(repository: Path) -> None:
    """An option of two modules is an alias or a function of `options`; those that mean something else are listed."""
    own = {"nodes", "runs", "listen", "output", "seed"}
    inline: defaultdict[str, set[str]] = defaultdict(set)
    for path in (repository / "app/stromboli/cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.annotation and "typer.Option(" in ast.unparse(node.annotation):
                inline[node.arg].add(path.stem)
    assert {name: sorted(found) for name, found in inline.items() if len(found) > 1 and name not in own} == {}
