"""`stromboli config`: policies, checked before they are used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stromboli.api.errors import PolicyError
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.policy.document import DEFAULT_POLICY


def check(
    paths: Annotated[list[Path], typer.Argument(help="Policy files (volcano-scheduler.conf).", metavar="PATH...")],
    plugins_dir: Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")] = None,
) -> None:
    """Name every mistake in policy files, with its path and what is allowed."""
    problems: list[str] = []
    for path in paths:
        try:
            engine = Engine(path.read_text(), registry=discover(plugins_dir), source=str(path))
        except PolicyError as error:
            problems.extend(error.problems)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        else:
            plugins = sum(len(tier.plugins) for tier in engine.policy.tiers)
            print(f"{path}: good: actions {', '.join(engine.policy.actions)}; {plugins} plugins")
    for line in problems:
        print(line, file=sys.stderr)
    if problems:
        raise typer.Exit(2)


def default() -> None:
    """Print the policy that is used when none is given."""
    print(DEFAULT_POLICY, end="")
