"""`stromboli config`: policies, checked before they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from stromboli.api.errors import MistakesError, PolicyError
from stromboli.api.words import counted
from stromboli.cli.clusters import Address, ask
from stromboli.cli.options import CaFile, Compatible, Output, PluginsDir, Token
from stromboli.cli.output import show as show_answer
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import quit_with
from stromboli.cli.workloads import holds_kinds, kinds_with
from stromboli.discovery import discover
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.shown import document
from stromboli.simulation.files import LARGEST_POLICY, UnreadableFileError, read_text
from stromboli.workloads import known_kinds


def check(
    paths: Annotated[list[Path], typer.Argument(help="Policy files (volcano-scheduler.conf).", metavar="PATH...")],
    plugins_dir: PluginsDir = None,
) -> None:
    """Name every mistake in policy files, and in files of kinds of workloads, with its path and what is allowed.

    Example: stromboli config check volcano-scheduler.conf
    """
    registry = discover(plugins_dir)
    problems: list[str] = []
    for path in paths:
        try:
            if holds_kinds(read_text(path, LARGEST_POLICY)):
                more = len(kinds_with([path])) - len(known_kinds())
                print(f"{path}: good: {counted(more, 'more kind')} of workloads")
                continue
            engine = engine_by(path, registry)
        except (PolicyError, MistakesError) as error:
            problems.extend(error.problems)
        except UnreadableFileError as error:
            problems.append(str(error))
        else:
            plugins = sum(len(tier.plugins) for tier in engine.policy.tiers)
            print(f"{path}: good: actions {', '.join(engine.policy.actions)}; {counted(plugins, 'plugin')}")
            for note in engine.notes:
                print(f"{path}: {note}")
    if problems:
        quit_with(problems)


def show(
    path: Annotated[Path | None, typer.Argument(help="Policy file; the default policy without one.")] = None,
    plugins_dir: PluginsDir = None,
    compatibility: Compatible = None,
    url: Annotated[str, typer.Option(help="A service's port: the policy that is in force there.")] = "",
    token: Token = "",
    certificate_authority: CaFile = None,
) -> None:
    """Print a policy with all its defaults: arguments, rules, limits. The output is itself a policy.

    With --url it is the policy by which a service decides, without secrets, and with what is wrong in the file if the
    file has another one.

    Example: stromboli config show volcano-scheduler.conf --compatibility volcano
    """
    if url:
        show_answer(ask(Address(url, token, certificate_authority), "policy"), Output.yaml, ())
        return
    engine = engine_by(path, discover(plugins_dir), compatibility)
    print(yaml.safe_dump(document(engine.policy, engine.rules), sort_keys=False, allow_unicode=True), end="")


def default() -> None:
    """Print the policy that is used when none is given.

    Example: stromboli config default > policy.conf
    """
    print(DEFAULT_POLICY, end="")
