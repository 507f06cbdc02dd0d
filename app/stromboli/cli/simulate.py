"""`stromboli simulate`: sessions on objects from files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from stromboli.api import readers
from stromboli.api.errors import PolicyError, StromboliError
from stromboli.api.validation import shown
from stromboli.cli.clusters import note
from stromboli.cli.known import scheduler_names, taken_for_ours
from stromboli.cli.options import Compatible, Now, PluginsDir, SchedulerNames, policy_option
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import quit_with
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework.runtime.failures import summaries
from stromboli.policy.rules import Compatibility
from stromboli.simulation import summary
from stromboli.simulation.admission import admit, astray, unserved
from stromboli.simulation.files import LARGEST_FILE
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.outcome import explanation, outcome
from stromboli.simulation.run import Run, SessionFailedError, feed, run
from stromboli.simulation.scenario import MOST_CYCLES, Scenario
from stromboli.state.cluster import ClusterState

_MEBIBYTE = 1 << 20


class Format(StrEnum):
    """Output format of the result."""

    table = "table"
    outcome = "outcome"


def simulate(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, or - for standard input.", metavar="PATH...")],
    policy: Annotated[Path | None, policy_option(" for plain manifests")] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="Table for reading, outcome for programs.")
    ] = Format.table,
    compatibility: Compatible = None,
    plugins_dir: PluginsDir = None,
    cycles: Annotated[int | None, typer.Option(min=1, max=MOST_CYCLES, help="Number of sessions in a row.")] = None,
    now: Now = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why pods have no place or do not run, and what would help.")
    ] = False,
    scheduler_name: SchedulerNames = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Accept unknown fields and kinds, as in dumps of clusters.")
    ] = False,
    max_file_size: Annotated[int, typer.Option(min=1, max=65_536, help="Largest file that is read, in MiB.")] = (
        LARGEST_FILE // _MEBIBYTE
    ),
) -> None:
    """Run the scheduler on objects from files and print what it would decide.

    PATHs hold Kubernetes manifests, or scenarios that bring their own policy. A folder is read with all below it.

    Example: stromboli simulate cluster.yaml jobs/ --policy volcano-scheduler.conf --explain
    """
    loaded = load(paths, sys.stdin.buffer, lenient=lenient, largest=max_file_size * _MEBIBYTE)
    problems = loaded.problems
    if not (loaded.objects or loaded.scenarios or problems):
        problems.append(f"{', '.join(paths)}: nothing to simulate")
    mode: Compatibility | None = compatibility.value if compatibility else None
    registry = discover(plugins_dir)
    if loaded.objects:
        if not lenient:
            problems.extend(astray(loaded))
        if not scheduler_name:
            problems.extend(unserved(loaded))
        try:
            engine = engine_by(policy, registry, compatibility)
            result = _run_plain(engine, loaded, cycles or 1, scheduler_name, _moment(now))
            _print("", result, format_, explain, (loaded.without_pods() if explain else loaded.empty).values())
            problems.extend(_failures(result))
        except PolicyError as error:
            problems.extend(error.problems)
        except StromboliError as error:
            problems.append(str(error))
    for document in loaded.scenarios:
        try:
            scenario = Scenario.parse(document, lenient=lenient)
            result = scenario.run(mode, cycles, registry)
            _print(scenario.name, result, format_, explain)
            problems.extend(f"{document['source']}: {line}" for line in _failures(result))
        except PolicyError as error:
            problems.extend(f"{document['source']}: config: {line}" for line in error.problems)
        except SessionFailedError as error:
            problems.append(f"{document['source']}: {error}")
        except StromboliError as error:
            problems.append(str(error))
    if problems:
        quit_with(problems)


def _moment(written: str | None) -> float | None:
    """Seconds since the epoch, None for now. Raises StromboliError."""
    moment = None if written is None else readers.seconds(written)
    if written is not None and moment is None:
        raise StromboliError(f"--now: {shown(written)} is not a time such as 2026-11-23T20:38:00Z")
    return moment


def _run_plain(engine: Engine, loaded: Loaded, cycles: int, names: list[str] | None, now: float | None) -> Run:
    scheduled = names or scheduler_names(loaded)
    for line in () if names else taken_for_ours(scheduled):
        note(line)
    state = ClusterState(scheduled, reads=engine.registry.reads)
    feed(state, admit(loaded, scheduled, rules=engine.policy.queue_rules))
    return run(engine, state, cycles=cycles, now=now)


def _failures(result: Run) -> list[str]:
    """A line for each way in which a plugin failed."""
    return list(summaries(result.failures, result.session.view.jobs).values())


def _print(name: str, result: Run, format_: Format, explain: bool, more: Iterable[str] = ()) -> None:
    if format_ is Format.outcome:
        line: dict[str, object] = {"name": name, "outcome": outcome(result)}
        if explain:
            line["explain"] = explanation(result.session)
        print(msgspec.json.encode(line).decode())
        return
    console = Console(highlight=False, markup=False)
    console.print(summary.queues(name, result))
    if explain and any("fair_share" in gauges.amounts for gauges in result.session.report.gauges.values()):
        console.print(summary.fair_shares(result.session))
    console.print(summary.pod_groups(result))
    told = summary.explanations(result.session, result.rehearsal) if explain else ()
    warnings = summary.told_warnings(result.session) if explain else ()
    for paragraph in (*told, *more, *warnings):
        console.print(paragraph)
