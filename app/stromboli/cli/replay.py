"""`stromboli replay`: whether recorded sessions decide again what they decided, and what another policy would have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from stromboli.api.validation import shown
from stromboli.api.version import version
from stromboli.cli.memory import in_proportion
from stromboli.cli.options import Format, Output, PluginsDir, policy_option
from stromboli.cli.output import columns, show
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import quit_with
from stromboli.cli.record import files_of
from stromboli.discovery import discover
from stromboli.framework.registry import Registry
from stromboli.journal import JournalError, Report, read
from stromboli.journal import replay as run_again
from stromboli.journal.counterfactual import Comparison, Figures, compare
from stromboli.journal.history import history_of
from stromboli.journal.replay import Engines
from stromboli.journal.wire import Began, Entry

#: the exit code when something is decided otherwise
DIFFERENT = 1


def replay(
    journal: Annotated[Path, typer.Argument(help="What `stromboli record` wrote, or a --journal-dir; - for stdin.")],
    policy: Annotated[Path | None, policy_option(" to try instead: how queues would have fared under it")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="With --policy: beside the recorded policy.")] = False,
    output: Format = Output.text,
    plugins_dir: PluginsDir = None,
) -> None:
    """Run recorded sessions again, and compare what they decide and why, byte for byte.

    The first difference is shown, with exit code 1. With --policy the recorded work is given to another policy: it
    arrives as recorded, is scheduled by that policy, and runs for as long as it did.

    Example: stromboli replay monday.journal --policy volcano-scheduler.conf --diff
    """
    if diff and policy is None:
        quit_with(["--diff: needs a --policy to compare with"])
    registry = discover(plugins_dir)
    try:
        with in_proportion() as progress:
            _replay(_told(_entries(journal, progress)), registry, journal, policy, diff, output)
    except MemoryError:
        raise JournalError(f"{_named(journal)}: takes far more memory than a journal of its size does") from None


def _replay(
    entries: Iterator[Entry], registry: Registry, journal: Path, policy: Path | None, diff: bool, output: Format
) -> None:
    if policy is not None:
        engines, other = Engines(registry), engine_by(policy, registry)
        answer = compare(history_of(entries, engines), engines, other, with_recorded=diff)
        _remark(answer.remarks)
        show(answer, output, _compared(answer))
        return
    report = run_again(entries, registry)
    if not report.sessions:
        raise JournalError(f"{_named(journal)}: no session is in it")
    _remark(report.remarks)
    show(report, output, _lines(report))
    if report.difference is not None:
        raise typer.Exit(DIFFERENT)


def _remark(remarks: list[str]) -> None:
    for remark in remarks:
        _warn(remark)


def _warn(remark: str) -> None:
    print(remark, file=sys.stderr)


def _entries(journal: Path, progress: Callable[[int], None]) -> Iterator[Entry]:
    """Entries of a journal. Raises StromboliError."""
    if str(journal) == "-":
        yield from read(_named(journal), sys.stdin.buffer, _warn, progress)
        return
    for path in files_of(journal) if journal.is_dir() else [journal]:
        with path.open("rb") as file:
            yield from read(str(path), file, _warn, progress)


def _named(journal: Path) -> str:
    return "standard input" if str(journal) == "-" else str(journal)


def _told(entries: Iterator[Entry]) -> Iterator[Entry]:
    """The entries; a line on standard error tells of each other version that recorded them."""
    told = {version()}
    for entry in entries:
        if isinstance(entry, Began) and entry.version not in told:
            told.add(entry.version)
            print(f"recorded by stromboli {shown(entry.version)}, this is {version()!r}", file=sys.stderr)
        yield entry


def _lines(report: Report) -> Iterator[str]:
    found = report.difference
    yield (
        f"{_span(report.sessions, report.since, report.until)}: "
        f"{report.changes:,} changes, {report.decisions:,} decisions{'' if found else ', all as recorded'}"
    )
    if found is not None:
        yield f"session {found.session} at {_time(found.at)} ends differently ({found.what}: - recorded, + now)"
        yield from found.lines


def _compared(answer: Comparison) -> Iterator[str]:
    """Figures of each queue, as `recorded → other`; equal ones are printed once."""
    yield _span(answer.sessions, answer.since, answer.until)
    for name, figures in answer.policy.items():
        before = figures if answer.recorded is None else answer.recorded.get(name, Figures())
        rows = zip(_figures(before, figures), _figures(figures, before), strict=True)
        yield f"queue {name}"
        yield from columns((f"  {what}", now if was == now else f"{was} → {now}") for (what, was), (_, now) in rows)


def _figures(figures: Figures, other: Figures) -> Iterator[tuple[str, str]]:
    """The figures of a queue in words, with each resource that it held in one of two runs."""
    yield "pods started", str(figures.started)
    yield "mean wait", _duration(figures.mean_wait)
    yield "longest wait", _duration(figures.longest_wait)
    yield "still waiting", str(figures.still_waiting)
    yield "evicted", str(figures.evicted)
    for resource in sorted({*figures.held, *other.held}):
        yield f"{resource} held", f"{100 * figures.held.get(resource, 0.0):.1f} %"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{rest:02}s" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"


def _span(sessions: int, since: float, until: float) -> str:
    return f"{sessions:,} sessions from {_time(since)} to {_time(until)}"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise JournalError(f"{seconds} is no time") from None
