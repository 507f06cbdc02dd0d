"""`stromboli whatif`: the effects of a change, before it is made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stromboli.cli.options import Format, Output
from stromboli.cli.output import show
from stromboli.cli.problems import quit_with
from stromboli.cli.sources import joined, opened
from stromboli.cli.which import Which, about_a_cluster
from stromboli.explain.whatif import lines
from stromboli.simulation.files import LARGEST_FILE, bounded_text, files, read_text

#: the exit code when pods of the change would wait and that is not wanted
PENDING = 1


_ON = Annotated[list[str] | None, typer.Option("--on", help="Files or folders with the cluster, instead of a service.")]


@partial(about_a_cluster, files=_ON)
def whatif(
    change: Annotated[
        list[Path], typer.Option("-f", "--filename", help="Objects to add, change or remove, or a policy; - for stdin.")
    ],
    which: Which,
    output: Format = Output.text,
    fail_on_pending: Annotated[
        bool, typer.Option("--fail-on-pending", help="Exit with 1 when pods wait that do not wait without the change.")
    ] = False,
) -> None:
    """Tell what a change would bind and evict, and how shares move, as a diff. Nothing is written.

    An object is merged into the one of the same name; with `$patch: delete` that one is removed. An existing workload
    is replaced, and its running pods stay as they are. A document with actions and tiers is a policy to try.

    Parts of the change that cannot be used are named on standard error, with exit code 2.

    Example: stromboli whatif -f queue.yaml --fail-on-pending
    """
    texts = dict(each for path in change for each in _texts(path))
    # Unreadable changes are reported before a service is looked for.
    joined(texts)
    answer = opened(which).whatif(texts)
    show(answer, output, lines(answer))
    if answer.problems:
        quit_with(answer.problems)
    if fail_on_pending and answer.waiting:
        raise typer.Exit(PENDING)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Where changes are from, and the changes."""
    if str(path) == "-":
        yield "standard input", bounded_text("standard input", sys.stdin.buffer, LARGEST_FILE)
        return
    for file in files(path):
        yield str(file), read_text(file)
