"""`stromboli lab generate` and `stromboli lab simulate`: workloads, and what a policy makes of them over time."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from stromboli.api import duration
from stromboli.api.errors import StromboliError
from stromboli.cli.options import AsJson, Compatible, PluginsDir, policy_option
from stromboli.cli.policies import engine_by
from stromboli.cli.problems import quit_with
from stromboli.discovery import discover
from stromboli.framework.registry import Registry
from stromboli.lab.cluster import Cluster, read_cluster
from stromboli.lab.generator import Model
from stromboli.lab.generator import generate as generated
from stromboli.lab.readers.named import Reading, read_workload
from stromboli.lab.readers.swf import write_swf
from stromboli.lab.results import Results, prepare
from stromboli.lab.simulation import Settings
from stromboli.lab.simulation import simulate as simulated
from stromboli.lab.workload import Workload

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


class QueueBy(StrEnum):
    """The column of a log that is the queue."""

    queue = "queue"
    user = "user"
    group = "group"


class Columns(StrEnum):
    """File format of tables."""

    csv = "csv"
    parquet = "parquet"


Log = Annotated[str, typer.Argument(help="A log (SWF, - for standard input), manifests or a journal.")]
Nodes = Annotated[str, typer.Option(help="Such as 100*cpu=32,memory=256Gi, or files of manifests.")]
LabPolicy = Annotated[Path | None, policy_option("")]
Period = Annotated[float, typer.Option(min=0.001, help="Seconds between two sessions at least.")]
Queues = Annotated[QueueBy, typer.Option(help="What of a log is a queue.")]
RunTime = Annotated[str | None, typer.Option(help="Run time of manifests that say none, such as 1h.")]
PerPod = Annotated[int, typer.Option(min=1, max=1_000, help="Processors of the largest pods.")]


def generate(
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of jobs.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is random.")] = 1,
    processors: Annotated[int, typer.Option(min=2, max=10_000_000, help="Processors of the machine.")] = 1_024,
    largest: Annotated[int, typer.Option(min=0, help="Processors of the largest job; 0 for all.")] = 0,
    load: Annotated[float, typer.Option(min=0.01, max=10.0, help="Part of the machine that jobs ask for.")] = 0.7,
    users: Annotated[int, typer.Option(min=1, max=1_000, help="Users, with habits of their own.")] = 8,
) -> None:
    """Print a workload by the model of Lublin and Feitelson, in the Standard Workload Format.

    Jobs arrive by day and week, and say for how long they run as wrongly as people do.

    Example: stromboli lab generate --jobs 1000 --seed 7 > workload.swf
    """
    model = Model(jobs=jobs, processors=processors, largest=largest, load=load, users=users)
    comments = (f"MaxProcs: {processors}", f"Note: Lublin-Feitelson, load {load:g}, seed {seed}")
    write_swf(generated(model, seed), sys.stdout, comments)


def simulate(
    workload: Log,
    nodes: Nodes,
    policy: LabPolicy = None,
    compatibility: Compatible = None,
    plugins_dir: PluginsDir = None,
    period: Period = 60.0,
    queue_by: Queues = QueueBy.user,
    per_pod: PerPod = 32,
    run_time: RunTime = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for tables of all figures.")] = None,
    columns: Annotated[Columns, typer.Option(help="Format of these tables.")] = Columns.csv,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of a workload over time under a policy, and print how long they wait and what queues get.

    Lines and objects that cannot be read are named on standard error, and the others are run.

    Example: stromboli lab simulate workload.swf --nodes '32*cpu=32,memory=256Gi' --output results
    """
    registry = discover(plugins_dir)
    engine = engine_by(policy, registry, compatibility)
    reading = Reading(queue_by.value, per_pod, seconds(run_time))
    jobs, cluster, problems = read_both(workload, nodes, reading, registry)
    if output is not None:
        prepare(output, columns.value)
    results = simulated(jobs, cluster, engine, Settings(period=period))
    if output is not None:
        results.write(output, columns.value)
    if as_json:
        print(json.dumps(_rounded(results)))
    else:
        _print(results)
    for problem in problems:
        print(problem, file=sys.stderr)


def read_both(
    workload: str, nodes: str, reading: Reading, registry: Registry
) -> tuple[Workload, Cluster, Sequence[str]]:
    """A workload and a cluster, and what of them cannot be read. Quits where there are no jobs."""
    jobs = read_workload(workload, reading, sys.stdin.buffer, registry)
    cluster = read_cluster(nodes, sys.stdin.buffer)
    problems = [*jobs.problems, *cluster.problems]
    if not len(jobs):
        quit_with([*problems, f"{workload}: has no jobs"])
    return jobs, cluster, problems


def seconds(run_time: str | None) -> float | None:
    """Raises StromboliError."""
    try:
        return None if run_time is None else duration.parse(run_time)
    except ValueError as error:
        raise StromboliError(f"--run-time: {error}") from None


def _rounded(results: Results) -> dict[str, object]:
    queues = [dict(zip(results.queues, row, strict=True)) for row in zip(*results.queues.values(), strict=True)]
    return {"total": _plain(results.total), "queues": [_plain(queue) for queue in queues]}


def _plain(figures: object) -> dict[str, object]:
    assert isinstance(figures, dict)
    return {
        name: value if isinstance(value, str) else None if math.isnan(value) else round(float(value), 4)
        for name, value in figures.items()
    }


def _print(results: Results) -> None:
    console, total = Console(highlight=False, markup=False), results.total
    heads = ("queue", "jobs", "ended", "share", "wait\n50 %", "\n95 %", "\nlongest", "bounded\nslowdown", "evicted")
    table = Table(*heads, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for column in table.columns:
        column.no_wrap, column.justify = True, "left" if column.header == "queue" else "right"
    columns = results.queues
    for number, name in enumerate(columns["queue"]):
        table.add_row(str(name), *_row({key: float(columns[key][number]) for key in columns if key != "queue"}))
    table.add_row("all", *_row({**total, "share": total["utilization"]}), style="bold")
    console.print(table)
    console.print(
        f"{results.resource}: {total['utilization']:.1%} used in {in_unit(total['makespan'])}; "
        f"{total['fragmentation']:.1%} of what was idle lay where pods did not fit; {total['sessions']:,.0f} sessions"
    )


def _row(figures: dict[str, float]) -> list[str]:
    times = ("waiting_median", "waiting_p95", "waiting_max")
    return [
        f"{figures['jobs']:,.0f}",
        f"{figures['ended']:,.0f}",
        f"{figures['share']:.1%}",
        *(in_unit(figures[name]) for name in times),
        "" if math.isnan(figures["slowdown_mean"]) else f"{figures['slowdown_mean']:,.1f}",
        f"{figures['evictions']:,.0f}",
    ]


def in_unit(seconds: float) -> str:
    """A time in the unit that suits it: `3.4h`."""
    if math.isnan(seconds):
        return ""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds / size:.3g}{unit}"
