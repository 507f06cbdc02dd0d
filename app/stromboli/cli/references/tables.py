"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, its cells in one line each; empty without rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(header), "|" + "---|" * len(header), *lines, ""]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    shown = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "".join(f"| {cell} " if cell else "| " for cell in shown) + "|"


def code(*words: object) -> str:
    """Words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)
