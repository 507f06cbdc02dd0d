"""`stromboli whatif`: what would be otherwise after a change, before it is made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, StromboliError
from stromboli.cli import clusters
from stromboli.cli.options import (
    DEFAULT_URL,
    CaFile,
    Context,
    Format,
    Kubeconfig,
    Output,
    PolicyFile,
    SchedulerNames,
    Token,
    Url,
)
from stromboli.cli.output import show
from stromboli.cli.problems import quit_with
from stromboli.engine import Engine
from stromboli.explain.whatif import WhatIf, lines
from stromboli.simulation.changes import Texts, try_changes
from stromboli.simulation.files import LARGEST_FILE, bounded_text, files, read_text

#: the exit code when pods of the change would wait and that is not wanted
PENDING = 1


def whatif(
    change: Annotated[
        list[Path], typer.Option("-f", "--filename", help="Objects to add, change or remove, or a policy; - for stdin.")
    ],
    output: Format = Output.text,
    on: Annotated[
        list[str] | None, typer.Option("--on", help="Files or folders with the cluster, instead of a service.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    certificate_authority: CaFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    policy: PolicyFile = None,
    scheduler_name: SchedulerNames = None,
    fail_on_pending: Annotated[
        bool, typer.Option("--fail-on-pending", help="Exit with 1 when pods wait that do not wait without the change.")
    ] = False,
) -> None:
    """Tell what a change would bind and evict, and how shares move, as a diff. Nothing is written.

    An object is laid over the one of its name; with `$patch: delete` that is removed. A document with actions and
    tiers is a policy to try.

    What of the change cannot be used is told on standard error, with exit code 2.

    Example: stromboli whatif -f queue.yaml --fail-on-pending
    """
    texts = dict(each for path in change for each in _texts(path))
    known = clusters.known_from(on, kubeconfig, context, policy, scheduler_name)
    if known is None:
        answer = msgspec.convert(
            clusters.ask(url, "whatif", token=token, ca_file=certificate_authority, body=_joined(texts)), WhatIf
        )
    else:
        engine_of = partial(Engine, registry=known.engine.registry, source=", ".join(texts))
        answer = try_changes(texts, known.rehearsal(), engine_of)
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


def _joined(texts: Texts) -> bytes:
    """What is in several texts as one. Raises StromboliError for what cannot be read, while it is known where it is."""
    documents: list[Any] = []
    for source, text in texts.items():
        try:
            documents += read_either(text, json=source.endswith(".json"))
        except DocumentError as error:
            raise StromboliError(f"{source}: {error}") from None
    return b"\n---\n".join(msgspec.json.encode(each) for each in documents if each is not None)
