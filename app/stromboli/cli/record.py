"""`stromboli record`: the sessions that a service has run, as a file to be replayed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from stromboli.api.errors import StromboliError
from stromboli.cli import clusters
from stromboli.cli.clusters import Address
from stromboli.cli.options import DEFAULT_URL, CaFile, Token, Url
from stromboli.journal import private, segments


def record(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write; - for standard output.")],
    folder: Annotated[
        Path | None, typer.Option("-f", "--filename", help="A --journal-dir to read instead of asking the service.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    certificate_authority: CaFile = None,
) -> None:
    """Write the newest sessions of a service to a file: what they saw, what they decided, and why.

    Environments, commands and arguments of containers are not in it.

    Example: stromboli record -o monday.journal && stromboli replay monday.journal
    """
    if folder is not None:
        files = files_of(folder)
        with opened(output) as out:
            for path in files:
                with path.open("rb") as file:
                    shutil.copyfileobj(file, out)
        return
    asked = clusters.fetched(Address(url, token, certificate_authority), "journal")
    with clusters.looking_for(), asked as answer, opened(output) as out:
        shutil.copyfileobj(answer, out)


def files_of(folder: Path) -> list[Path]:
    """The files of a --journal-dir, the oldest first. Raises StromboliError when there are none."""
    files = list(segments(folder))
    if not files:
        raise StromboliError(f"{folder}: no journals are in this folder")
    return files


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which is there when it is whole."""
    if str(path) == "-":
        yield sys.stdout.buffer
        return
    new = path.with_name(f".{path.name}.new")
    try:
        with open(new, "wb", opener=private) as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
