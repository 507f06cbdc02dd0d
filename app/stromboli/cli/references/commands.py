"""The page about all commands, generated from their help texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from stromboli.cli import make_app
from stromboli.cli.references.tables import code, table

_HEADER = """\
# Commands

`stromboli` is also installed as `kubectl-stromboli`, so `kubectl stromboli why job train` works. The tab key completes
it from kubectl 1.26 on, which asks `kubectl_complete-stromboli` in the `PATH` for completions. Mistakes in the
input are reported in a line on standard error. Exit codes: 0 for success, 1 when the object was not found, something
was found or pods would wait, 2 for wrong input, 70 for an internal error.
"""


def everything() -> Iterator[tuple[str, Any]]:
    """Each command and each group of commands by the words that it is called with, a group before its commands."""
    yield from _from(typer.main.get_command(make_app()), "stromboli")


def commands() -> Iterator[tuple[str, Any]]:
    """Each command by the words that it is called with."""
    return ((words, command) for words, command in everything() if not hasattr(command, "list_commands"))


def _from(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    yield words, command
    if hasattr(command, "list_commands"):
        context = typer.Context(command, info_name=words)
        for name in command.list_commands(context):
            yield from _from(command.get_command(context, name), f"{words} {name}")


def markdown() -> str:
    """The page."""
    found = [(words, each) for words, each in everything() if each.params or not hasattr(each, "list_commands")]
    sections = (_section(words, command) for words, command in found)
    return "\n".join([_HEADER, *(line for section in sections for line in section)])


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    yield f"## {name}\n"
    words = " ".join([name, *(each.metavar or each.name.upper() for each in arguments)])
    yield f"`{words} [options]`\n" if options else f"`{words}`\n"
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        example = text.removeprefix("Example: ")
        yield f"```sh\n{example}\n```\n" if example != text else f"{text}\n"
    rows = (
        (code(*option.opts, *option.secondary_opts), _default(option), getattr(option, "help", "") or "")
        for option in options
    )
    if options:
        yield table(("option", "default", ""), rows)


def _default(option: Any) -> str:
    value = option.default
    if value is None or value is False or value in ("", ()) or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"
