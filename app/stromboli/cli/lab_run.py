"""`stromboli lab run`: how well policies pack the cards of a trace."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.api.words import counted
from stromboli.cli.options import AsJson, PluginsDir
from stromboli.cli.output import columns
from stromboli.cli.problems import quit_with
from stromboli.lab.comparison import Interval
from stromboli.lab.plan import seeds
from stromboli.lab.policies import find_policy
from stromboli.lab.published import AT, Published, PublishedError, agree, allocations, read_published
from stromboli.lab.sweep import Store, cores, on_cores, on_dask
from stromboli.lab.trials import Outcome, Trial, TrialError, distinct, find_lists, problems, with_plugins
from stromboli.simulation.files import LARGEST_POLICY, read_text

#: trials that failed and are named
_MOST_NAMED = 10

Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0 for one on each core.")]
Scheduler = Annotated[str, typer.Option(help="Address of a Dask scheduler, such as tcp://127.0.0.1:8786, to run on.")]


def run(
    trace: Annotated[Path, typer.Argument(help="A list of pods, or a folder with lists and nodes.")],
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy file, or the name of a score of the plugin fgd; may be repeated.")
    ] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Name of a list in the folder; may be repeated.")] = None,
    seed: Annotated[str, typer.Option(help="Seeds, such as 7 or 42..51.")] = "42..51",
    ratio: Annotated[float, typer.Option(min=0.01, max=10, help="Cards that are asked for, as a part of all.")] = 1.3,
    store: Annotated[Path | None, typer.Option(help="File to keep outcomes in, and to take known ones from.")] = None,
    published: Annotated[Path | None, typer.Option(help="Table of means and deviations to compare with.")] = None,
    plugins_dir: PluginsDir = None,
    jobs: Jobs = 0,
    scheduler: Scheduler = "",
    as_json: AsJson = False,
) -> None:
    """Let the pods of an openb trace arrive one by one, and print how much of all cards is allocated.

    Columns are the cards requested so far, in percent of all cards. With several seeds the standard deviation follows
    the mean. Pods never end, and a pod that finds no node is not tried again.

    Example: stromboli lab run traces/ --workload default --policy fgd --seed 42..51
    """
    others = None if published is None else _published(published)
    trials = make_trials(_chosen(trace, workload or []), policy or ["fgd"], seeds(seed), ratio)
    trials = with_plugins(trials, plugins_dir)
    tell_problems(trials)
    outcomes, failed = run_all(trials, store, jobs, scheduler)
    if as_json:
        for outcome in outcomes:
            print(msgspec.json.encode(outcome).decode())
    elif outcomes:
        print("\n".join(columns(_table(outcomes, others))))
    quit_if(failed)


def make_trials(lists: dict[str, Path], policies: Sequence[str], seeds: Sequence[int], ratio: float) -> list[Trial]:
    """The trials of all lists under all policies with all seeds. Raises UnknownPolicyError, UnreadableFileError."""
    found = [find_policy(name) for name in policies]
    return distinct(
        Trial(name, str(path.resolve()), each, seed, ratio)
        for name, path in lists.items()
        for each in found
        for seed in seeds
    )


def tell_problems(trials: Sequence[Trial]) -> None:
    """Name entries of the trials' files that cannot be read, once for each workload. Raises StromboliError."""
    for trial in {(trial.workload, trial.path): trial for trial in trials}.values():
        for problem in problems(trial):
            print(problem, file=sys.stderr)


def run_all(
    trials: Sequence[Trial], path: Path | None, jobs: int, scheduler: str
) -> tuple[list[Outcome], list[TrialError]]:
    """The outcomes of trials, from a file as far as they are there, with a progress bar, and what is wrong with others.

    Raises StromboliError.
    """
    store = None if path is None else Store(path, grows=True)
    missing = trials if store is None else store.missing(trials)
    found: list[Outcome] = []
    failed: list[TrialError] = []
    for each in _progress(missing, _spread(missing, jobs, scheduler)):
        if isinstance(each, TrialError):
            failed.append(each)
        elif store is None:
            found.append(each)
        else:
            store.add(each)
    if store is not None:
        return store.of(trials), failed
    by_key = {outcome.key: outcome for outcome in found}
    return [by_key[key] for trial in trials if (key := trial.key()) in by_key], failed


def quit_if(failed: Sequence[TrialError]) -> None:
    """End the command where something was wrong with trials, which are named, the first of many and of those alike."""
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for each in map(str, failed):
        by_reason[each.partition(": ")[2]].append(each)
    lines = [
        first if not others else f"{first} (the same in {counted(len(others), 'more trial')})"
        for first, *others in by_reason.values()
    ]
    if lines:
        more = sum(map(len, list(by_reason.values())[_MOST_NAMED:]))
        quit_with([*lines[:_MOST_NAMED], *([f"{counted(more, 'more trial')} failed"] if more else [])])


def _spread(trials: Sequence[Trial], jobs: int, scheduler: str) -> Iterator[Outcome | TrialError]:
    return on_dask(trials, scheduler) if scheduler else on_cores(trials, min(jobs or cores(), max(1, len(trials))))


def _progress(trials: Sequence[Trial], outcomes: Iterator[Outcome | TrialError]) -> Iterator[Outcome | TrialError]:
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    left = TextColumn("left:"), TimeRemainingColumn()
    with Progress(*shown, *left, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(outcomes, total=len(trials), description="trials")


def _chosen(trace: Path, names: Sequence[str]) -> dict[str, Path]:
    """The lists of a trace by those names, all without names. Raises TrialError, SeedsError."""
    lists = find_lists(trace)
    unknown = [name for name in names if name not in lists]
    if unknown:
        raise StromboliError(f"{trace}: no list {unknown[0]!r}{did_you_mean(unknown[0], lists)}")
    return {name: lists[name] for name in names} if names else lists


def _published(path: Path) -> Published:
    """The figures of a table. Raises PublishedError, UnreadableFileError."""
    try:
        return read_published(read_text(path, LARGEST_POLICY).splitlines())
    except PublishedError as error:
        raise PublishedError(f"{path}: {error}") from None


def _table(outcomes: Sequence[Outcome], published: Published | None) -> Iterator[tuple[str, ...]]:
    yield ("WORKLOAD", "POLICY", "SEEDS", *(f"{at}%" for at in AT), *([] if published is None else ["AGREES"]))
    for pair, means in allocations(outcomes).items():
        theirs = None if published is None else published.get(pair)
        agrees = theirs and all(at in means and agree(means[at], mean) for at, mean in theirs.items())
        verdict = "" if theirs is None else "yes" if agrees else "no"
        yield (*pair, *_cells(means), *([] if published is None else [verdict]))
        if theirs is not None:
            yield ("", "published", *_cells(theirs), "")


def _cells(means: Mapping[int, Interval]) -> Iterator[str]:
    yield str(max((mean.number for mean in means.values()), default=0))
    for at in AT:
        yield f"{means[at].mean:.2f} ±{means[at].deviation:.2f}" if at in means else ""
