"""`stromboli simulate`: what would be scheduled, from files."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from stromboli.api.crds import QueueState
from stromboli.api.errors import InvalidObjectError, PolicyError
from stromboli.api.reasons import Reason
from stromboli.api.resources import CPU, Vector
from stromboli.discovery import discover
from stromboli.engine import Engine
from stromboli.framework import closing
from stromboli.framework.session import Session
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.policy.rules import Compatibility
from stromboli.simulation.manifests import Loaded, load
from stromboli.simulation.outcome import explanation, outcome
from stromboli.simulation.run import Run, feed, run
from stromboli.simulation.scenario import Scenario
from stromboli.state.cluster import ClusterState


class Format(StrEnum):
    """How the result is printed."""

    table = "table"
    outcome = "outcome"


class Mode(StrEnum):
    """Compatibility modes."""

    volcano = "volcano"
    strict = "strict"


def simulate(
    paths: Annotated[list[str], typer.Argument(help="Files, folders, or - for standard input.", metavar="PATH...")],
    policy: Annotated[Path | None, typer.Option(help="Policy file, for plain manifests.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Table for people, outcome for programs.")] = Format.table,
    compatibility: Annotated[Mode | None, typer.Option(help="Overrides what the policy says.")] = None,
    plugins_dir: Annotated[Path | None, typer.Option(help="Folder of Python files with more plugins.")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Number of sessions in a row.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each unplaced pod is not placed.")] = False,
    scheduler_name: Annotated[
        list[str] | None, typer.Option(help="Names in spec.schedulerName of plain manifests to schedule.")
    ] = None,
) -> None:
    """Run the scheduler on objects from files and print what it would decide.

    PATHs hold Kubernetes manifests, or scenarios that bring their own policy.
    """
    loaded = load(paths, sys.stdin)
    problems = loaded.problems
    mode: Compatibility | None = compatibility.value if compatibility else None
    try:
        registry = discover(plugins_dir)
    except PolicyError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    if loaded.objects:
        try:
            text = policy.read_text() if policy else DEFAULT_POLICY
            engine = Engine(text, registry=registry, compatibility=mode, source=str(policy or "default policy"))
            result = _run_plain(engine, loaded, cycles or 1, scheduler_name or _scheduler_names(loaded))
            _print("", result, format_, explain)
        except OSError as error:
            problems.append(f"{policy}: {error.strerror}")
        except PolicyError as error:
            problems.extend(error.problems)
    for document in loaded.scenarios:
        try:
            scenario = Scenario.parse(document)
            _print(scenario.name, scenario.run(mode, cycles, registry), format_, explain)
        except InvalidObjectError as error:
            problems.append(str(error))
        except PolicyError as error:
            problems.extend(f"{document['source']}: config: {line}" for line in error.problems)
    for line in problems:
        print(line, file=sys.stderr)
    if problems:
        raise typer.Exit(2)


def _run_plain(engine: Engine, loaded: Loaded, cycles: int, names: list[str]) -> Run:
    for queue in (obj for kind, obj in loaded.objects if kind == "Queue" and not obj.status.state):
        # The service opens a new queue before a session sees it.
        queue.status.state = QueueState.Open
    state = ClusterState(names)
    feed(state, loaded.objects)
    return run(engine, state, cycles=cycles)


def _scheduler_names(loaded: Loaded) -> list[str]:
    """Manifests are simulated whoever is to schedule them: all names that occur, but kube-scheduler's only alone."""
    names = {obj.spec.scheduler_name or "" for kind, obj in loaded.objects if kind == "Pod"}
    return sorted(names - {"default-scheduler"}) or sorted(names)


def _print(name: str, result: Run, format_: Format, explain: bool) -> None:
    if format_ is Format.outcome:
        line: dict[str, object] = {"name": name, "outcome": outcome(result)}
        if explain:
            line["explain"] = explanation(result.session)
        print(msgspec.json.encode(line).decode())
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(_queue_table(name, result))
    console.print(_group_table(result, explain))


def _queue_table(name: str, result: Run) -> Table:
    session = result.session
    table = Table(title=name or None, title_justify="left")
    for column in ("queue", "state", "weight", "cpu held", "deserved", "share", "PodGroups"):
        table.add_column(column, justify="right" if column not in ("queue", "state") else "left")
    for queue in session.queues.values():
        gauges = session.gauge(queue.name)
        table.add_row(
            queue.name,
            queue.state or "-",
            str(queue.spec.weight),
            _cpu(gauges.amounts.get("allocated")),
            _cpu(gauges.amounts.get("deserved")),
            "-" if gauges.share is None else f"{gauges.share:.2f}",
            str(len(queue.jobs)),
        )
    return table


def _cpu(vector: Vector | None) -> str:
    return "-" if vector is None else f"{vector[CPU] / 1000:g}"


def _group_table(result: Run, explain: bool) -> Table:
    """A row for each PodGroup: how many of its pods have a place, where, and why the others have none."""
    session = result.session
    table = Table()
    columns = ("PodGroup", "queue", "phase", "pods", "nodes", "evicted", *(("why the others wait",) if explain else ()))
    for column in columns:
        table.add_column(column, justify="right" if column in ("pods", "evicted") else "left")
    members: defaultdict[str, list[str]] = defaultdict(list)
    for record in session.pods.records:
        if record is not None and (record.job or not record.node_name):
            members[record.job].append(record.key)
    reasons = closing.explain(session)
    placed = result.bindings | _running(session)
    for key, pods in sorted(members.items()):
        job = session.jobs.get(key)
        table.add_row(
            key or "(none)",
            job.queue.name if job else "-",
            (job.phase if job else "") or "-",
            f"{sum(pod in placed for pod in pods)}/{len(pods)}",
            _counted(placed[pod] for pod in pods if pod in placed),
            str(sum(pod in result.evicted for pod in pods) or ""),
            *([_reasons(reasons[pod] for pod in pods if pod in reasons)] if explain else []),
        )
    return table


def _running(session: Session) -> dict[str, str]:
    """Pods that had a node before, by key -> node."""
    return {r.key: r.node_name for r in session.pods.records if r is not None and r.node_name}


def _counted(names: Iterable[str], most: int = 3) -> str:
    """`node-0 x4, node-1 x2, ...`"""
    counts = Counter(names)
    shown = [name if count == 1 else f"{name} x{count}" for name, count in sorted(counts.items())]
    return ", ".join(shown[:most]) + (f", {len(shown) - most} more" if len(shown) > most else "")


def _reasons(reasons: Iterable[Reason]) -> str:
    """Each reason once, with the number of pods that it stops."""
    counts = Counter(
        f"{reason.stage.name}: {reason.message}" + (f" ({reason.detail})" if reason.detail else "")
        for reason in reasons
    )
    return "\n".join(f"{count} x {text}" for text, count in counts.items())
