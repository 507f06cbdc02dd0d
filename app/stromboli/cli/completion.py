"""Completion of `kubectl stromboli`.

kubectl runs `kubectl_complete-stromboli` with the words behind the plugin's name, the last of which is to be completed
and may be empty. It reads candidates from standard output, one a line with a tab before what is said about it, and from
the last line a number that tells the shell what to do with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import typer
from typer._completion_classes import FishComplete

from stromboli.cli import make_app
from stromboli.cli.problems import open_streams

#: the candidates are all there are, or the shell may go on with files
_ALL, _FILES = ":4", ":0"


def completed(words: Sequence[str]) -> Iterator[str]:
    """The lines for words of which the last is to be completed."""
    *typed, last = words or [""]
    # The shell only says how answers are written, and that is done here.
    shell = FishComplete(typer.main.get_command(make_app()), {}, "stromboli", "")
    found = [item for item in shell.get_completions(typed, last) if item.type == "plain"]
    for item in found:
        about = " ".join((item.help or "").split())
        yield f"{item.value}\t{about}" if about else item.value
    yield _ALL if found else _FILES


def main() -> None:
    """Entry point of the console script."""
    open_streams()
    for line in completed(sys.argv[1:]):
        print(line)
