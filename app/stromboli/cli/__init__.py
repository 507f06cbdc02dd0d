"""The `stromboli` command."""

from __future__ import annotations

import typer

from stromboli.cli import bench, config
from stromboli.cli.demo import demo
from stromboli.cli.plugins import plugins
from stromboli.cli.run import run
from stromboli.cli.simulate import simulate


def make_app() -> typer.Typer:
    """The command with its sub-commands."""
    app = typer.Typer(
        name="stromboli",
        help="A queue scheduler for Kubernetes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for command in (run, simulate, demo, plugins):
        app.command()(command)
    policies = typer.Typer(help="Check policies.", no_args_is_help=True)
    policies.command()(config.check)
    policies.command()(config.default)
    app.add_typer(policies, name="config")
    benchmarks = typer.Typer(help="Benchmarks.", no_args_is_help=True)
    benchmarks.command()(bench.engine)
    # A group of one command would be the command itself.
    benchmarks.callback()(lambda: None)
    app.add_typer(benchmarks, name="bench")
    return app


def main() -> None:
    """Entry point of the console script."""
    make_app()()
