"""The `stromboli` command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stromboli.cli.problems import open_streams, reporting

#: the module and function of each command; imported when it is called, for the service's libraries take their time
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "stromboli": {
        "run": "run:run",
        "simulate": "simulate:simulate",
        "demo": "demo:demo",
        "why": "why:why",
        "whatif": "whatif:whatif",
    },
    "plugins": {"new": "plugins:new", "check": "plugins:check"},
    "config": {"check": "config:check", "default": "config:default"},
    "bench": {"engine": "bench:engine", "matrix": "matrix:matrix"},
}


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_COMMANDS[str(self.name)], *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = _COMMANDS[str(self.name)].get(cmd_name)
        if found is None:
            return super().get_command(ctx, cmd_name)
        module, _, function = found.partition(":")
        command = getattr(importlib.import_module(f"stromboli.cli.{module}"), function)
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        # The service ends the process itself, and its log tells why.
        app.command(cmd_name)(command if cmd_name == "run" else reporting(command))
        return typer.main.get_command(app)


def make_app() -> typer.Typer:
    """The command with its sub-commands."""
    app = _group("stromboli", "A queue scheduler for Kubernetes.")
    plugins = _group("plugins", "Print what policies can name; begin and check plugins of your own.")
    plugins.callback(invoke_without_command=True, no_args_is_help=False)(_page)
    app.add_typer(plugins)
    app.add_typer(_group("config", "Check policies."))
    app.add_typer(_group("bench", "Benchmarks."))
    return app


def _group(name: str, text: str) -> typer.Typer:
    group = typer.Typer(
        name=name, cls=_LazyGroup, help=text, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
    )
    # A group without a callback would be its only command.
    group.callback()(lambda: None)
    return group


def _page(
    context: typer.Context,
    plugins_dir: Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")] = None,
) -> None:
    if context.invoked_subcommand is None:
        reporting(importlib.import_module("stromboli.cli.plugins").page)(plugins_dir)
    elif plugins_dir is not None:
        raise typer.BadParameter(f"goes after `{context.invoked_subcommand}`", param_hint="--plugins-dir")


def main() -> None:
    """Entry point of the console script."""
    open_streams()
    make_app()()
