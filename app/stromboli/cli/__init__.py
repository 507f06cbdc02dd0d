"""The `stromboli` command."""

from __future__ import annotations

import ast
import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from stromboli.api.validation import did_you_mean
from stromboli.api.version import version
from stromboli.cli.options import PluginsDir
from stromboli.cli.problems import mistyped, open_streams, reporting

#: the module and function of each command; imported when it is called, for the service's libraries take their time
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "stromboli": {
        "run": "run:run",
        "simulate": "simulate:simulate",
        "demo": "demo:demo",
        "why": "why:why",
        "whatif": "whatif:whatif",
        "top": "top:top",
        "ui": "ui:ui",
        "record": "record:record",
        "replay": "replay:replay",
        "doctor": "doctor:doctor",
        "support-bundle": "support_bundle:support_bundle",
    },
    "queue": {
        "list": "queue:list_",
        "tree": "queue:tree",
        "open": "queue_state:open_",
        "close": "queue_state:close",
        "create": "queue_edit:create",
        "set": "queue_edit:set_",
        "delete": "queue_edit:delete",
    },
    "job": {
        "list": "job:list_",
        "suspend": "job_edit:suspend",
        "resume": "job_edit:resume",
        "delete": "job_edit:delete",
    },
    "plugins": {"new": "plugins:new", "check": "plugins:check"},
    "crds": {"print": "crds:print_", "diff": "crds:diff", "apply": "crds:apply"},
    "config": {"check": "config:check", "show": "config:show", "default": "config:default"},
    "lab": {
        "generate": "lab:generate",
        "simulate": "lab:simulate",
        "starts": "lab_starts:starts",
        "run": "lab_run:run",
        "sweep": "lab_sweep:sweep",
        "recommend": "lab_sweep:recommend",
    },
    "bench": {"engine": "bench:engine", "matrix": "matrix:matrix"},
}


class _Listing(TyperGroup):
    """A group to be printed: what its commands are for is read from their source, for to import all takes seconds."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*_COMMANDS[str(self.name)], *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module, _, function = _COMMANDS[str(self.name)].get(cmd_name, "").partition(":")
        if not module:
            return super().get_command(ctx, cmd_name)
        source = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
        defined = {each.name: each for each in source.body if isinstance(each, ast.FunctionDef)}
        return TyperCommand(cmd_name, help=ast.get_docstring(defined[function]))


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for, and which says in a line what is typed wrong."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run what was typed; ends the process unless it is not to stand alone."""
        run = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            ended = run()
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            mistyped(error)
        sys.exit(ended if isinstance(ended, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was typed, or the one that is most like it in an error."""
        # Shell completion parses leniently, and asks about words that are incomplete.
        typed = bool(args) and not ctx.resilient_parsing and not args[0].startswith("-")
        if typed and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"no such command {args[0]!r}{did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self._listing().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        listing = self._listing()
        return listing.shell_complete(typer.Context(listing, parent=ctx), incomplete)

    def _listing(self) -> _Listing:
        return _Listing(name=self.name, commands=dict(self.commands), params=self.params)

    def list_commands(self, ctx: Any) -> list[str]:
        return self._listing().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = _COMMANDS[str(self.name)].get(cmd_name)
        if found is None and self.name == "plugins":
            return _command(cmd_name, importlib.import_module("stromboli.cli.plugins").showing(cmd_name))
        if found is None:
            return super().get_command(ctx, cmd_name)
        module, _, function = found.partition(":")
        command = getattr(importlib.import_module(f"stromboli.cli.{module}"), function)
        return _command(cmd_name, command)


class _Command(TyperCommand):
    """A command whose options name an invalid value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)
            if errors is not None:
                # Its libraries take their time as well.
                error.message = importlib.import_module("stromboli.api.validation").problem(errors()[0])
            raise


@cache
def _command(name: str, function: Callable[..., None]) -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    # The service ends the process itself, and its log tells why.
    app.command(name, cls=_Command)(function if function.__module__ == "stromboli.cli.run" else reporting(function))
    return typer.main.get_command(app)


def make_app() -> typer.Typer:
    """The command with its sub-commands."""
    app = _group("stromboli", "A queue scheduler for Kubernetes.", "stromboli demo --serve", completed=True)
    app.callback()(_root)
    text = "Print what policies can name, all or by NAME; begin and check plugins of your own."
    plugins = _group("plugins", text, "stromboli plugins gang")
    plugins.callback(invoke_without_command=True, no_args_is_help=False)(_page)
    app.add_typer(plugins)
    app.add_typer(_group("queue", "The queues of a cluster.", "stromboli queue tree"))
    app.add_typer(_group("job", "The jobs (PodGroups) of a cluster.", "stromboli job list -A"))
    app.add_typer(_group("config", "Check and print policies.", "stromboli config check volcano-scheduler.conf"))
    app.add_typer(
        _group("lab", "Policies on workloads over time.", "stromboli lab generate --jobs 1000 > workload.swf")
    )
    text = "The definitions of Queue, PodGroup and HyperNode."
    app.add_typer(_group("crds", text, "stromboli crds diff"))
    app.add_typer(_group("bench", "Benchmarks.", "stromboli bench engine --nodes 1000"))
    return app


def _group(name: str, text: str, example: str, *, completed: bool = False) -> typer.Typer:
    group = typer.Typer(
        name=name,
        cls=_LazyGroup,
        help=f"{text}\n\nExample: {example}",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=completed,
    )
    # A group without a callback would be its only command.
    group.callback()(lambda: None)
    return group


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"stromboli {version()}")
        raise typer.Exit


def _root(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options that all commands share; the help text is that of the group."""


def _page(
    context: typer.Context,
    plugins_dir: PluginsDir = None,
) -> None:
    if context.invoked_subcommand is None:
        reporting(importlib.import_module("stromboli.cli.plugins").page)(plugins_dir)
    elif plugins_dir is not None:
        raise typer.BadParameter(f"goes after `{context.invoked_subcommand}`", param_hint="--plugins-dir")


def main() -> None:
    """Entry point of the console script."""
    # Modules stay: to look through them for garbage while they are imported takes a tenth of the start.
    gc.set_threshold(50_000, 20, 20)
    open_streams()
    make_app()()
