"""`stromboli lab sweep` and `stromboli lab recommend`: many trials, their report, and which policies to choose from."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from stromboli.api.errors import StromboliError
from stromboli.cli.config import check
from stromboli.cli.lab_run import Jobs, Scheduler, quit_if, run_all, tell_problems
from stromboli.cli.options import PluginsDir
from stromboli.cli.output import columns
from stromboli.lab.comparison import Comparison, Line, compare
from stromboli.lab.plan import read_plan
from stromboli.lab.report import page
from stromboli.lab.sweep import Store
from stromboli.lab.trials import Outcome, Trial, with_plugins

PlanFile = Annotated[Path, typer.Argument(help="The plan: workloads, policies and seeds.")]
StoreFile = Annotated[
    Path | None, typer.Option("--store", help="File of the outcomes; by default beside the plan.", show_default=False)
]


class NothingKnownError(StromboliError):
    """No trial of a plan is done."""


def sweep(
    plan: PlanFile,
    store: StoreFile = None,
    report: Annotated[Path | None, typer.Option(help="File of HTML to write the report to.")] = None,
    plugins_dir: PluginsDir = None,
    jobs: Jobs = 0,
    scheduler: Scheduler = "",
) -> None:
    """Run the trials of a plan, policies on workloads with seeds, and report on them.

    Outcomes are saved as they arrive: an interrupted sweep continues where it stopped, and finished trials are not
    repeated. Failed trials are listed at the end, and do not stop the others.

    Example: stromboli lab sweep plan.yaml --report report.html
    """
    trials = with_plugins(read_plan(plan), plugins_dir)
    tell_problems(trials)
    if report is not None:
        # One that cannot be written is not found out hours later.
        report.open("a").close()
    outcomes, failed = run_all(trials, _store(plan, store), jobs, scheduler)
    _write_report(report, plan, trials, outcomes)
    for comparison in compare(outcomes):
        print("\n".join(columns(_table(comparison))))
    quit_if(failed)


def recommend(
    plan: PlanFile,
    store: StoreFile = None,
    write: Annotated[Path | None, typer.Option(help="Folder to write the policies on the front to.")] = None,
    plugins_dir: PluginsDir = None,
) -> None:
    """Print the policies that no other outdoes, by workload, and what each costs whom.

    A policy is outdone by another one that is better by one objective and no worse by the other.

    Example: stromboli lab recommend plan.yaml --write policies
    """
    trials = with_plugins(read_plan(plan), plugins_dir)
    outcomes = Store(_store(plan, store)).of(trials)
    if not outcomes:
        raise NothingKnownError(f"{plan}: no trial is done: run stromboli lab sweep {plan}")
    for line in _untried(trials, outcomes):
        print(line, file=sys.stderr)
    comparisons = compare(outcomes)
    for comparison in comparisons:
        print("\n".join(_recommended(comparison)))
    if write is not None:
        texts = {trial.policy.name: trial.policy.text for trial in trials}
        write.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(line.policy for each in comparisons for line in each.front)
        paths = {name: write / f"{name}.yaml" for name in names}
        for name, path in paths.items():
            path.write_text(texts[name])
        check(list(paths.values()), plugins_dir)


def _untried(trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Trials of a plan without an outcome, by workload and policy: the summary leaves them out."""
    planned = Counter((trial.workload, trial.policy.name) for trial in trials)
    known = Counter((outcome.workload, outcome.policy) for outcome in outcomes)
    for pair, count in planned.items():
        if known[pair] < count:
            yield f"{', '.join(pair)}: {count - known[pair]} of {count} trials are not done"


def _store(plan: Path, store: Path | None) -> Path:
    return store or plan.with_suffix(".jsonl")


def _write_report(report: Path | None, plan: Path, trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> None:
    if report is not None:
        report.write_text(page(f"Sweep {plan.stem}", compare(outcomes), len(outcomes), len(trials)))


def _table(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    yield (comparison.workload.upper(), *(each.words.upper() for each in comparison.objectives), "OUTDONE BY")
    for line in comparison.lines:
        figures = (str(line.figures.get(each.figure, "")) for each in comparison.objectives)
        yield (line.policy, *figures, ", ".join(line.outdone_by) or "none")


def _recommended(comparison: Comparison) -> Iterator[str]:
    front = comparison.front
    yield f"{comparison.workload}: {', '.join(line.policy for line in front)}"
    for line in front:
        said = {each.words: line.figures.get(each.figure) for each in comparison.objectives}
        yield f"  {line.policy}: {'; '.join(f'{words} {figure}' for words, figure in said.items() if figure)}"
        yield from _costs(line, comparison)


def _costs(line: Line, comparison: Comparison) -> Iterator[str]:
    """Whom a policy serves worse than another one does, and by how much."""
    for queue, figures in line.queues.items():
        for figure, sign in (("waiting_mean", -1.0), ("placed", 1.0)):
            if figure not in figures:
                continue
            others = [
                (sign * (other.queues[queue][figure].mean - figures[figure].mean), other.policy)
                for other in comparison.lines
                if figure in other.queues.get(queue, {})
            ]
            worse, by = max(others)
            words = f"{figure.removesuffix('_mean')} {figures[figure]}"
            yield f"    {queue}: {words}" + (f", {worse:,.2f} worse than under {by}" if worse > 0 else ", the best")
