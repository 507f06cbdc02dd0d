"""Printing of answers as text, or as JSON or YAML with the same fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import yaml

from stromboli.cli.options import Output


def columns(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Rows of cells as lines with aligned columns."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def show(answer: Any, form: Output, lines: Iterable[str]) -> None:
    """Print an answer; `lines` are its text."""
    match form:
        case Output.json:
            print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        case Output.yaml:
            print(yaml.safe_dump(msgspec.to_builtins(answer), sort_keys=False, allow_unicode=True), end="")
        case _:
            for line in lines:
                print(line)
