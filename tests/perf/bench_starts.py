"""How good expected starts are, on workloads that no constant was chosen by: the table in docs/concepts.md.

    python -m tests.perf.bench_starts [--trace openb_pod_list_default.csv] [--only NAME]

Jobs that find no place at once are asked about, one in so many. `chosen` is the part of them that started within the
range that is told before any is learned, `learned` within ranges from the jobs that were told a start before.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from stromboli.engine import Engine
from stromboli.explain.answers import Start
from stromboli.explain.told_starts import MEASURED
from stromboli.lab.cluster import Cluster, equal_nodes
from stromboli.lab.generator import Model, generate
from stromboli.lab.starts import Quality, Told, foretold
from stromboli.lab.workload import Gang, Job, Task, Workload, in_order
from stromboli.policy.document import DEFAULT_POLICY

_PERIOD, _ASKED = 60.0, 60
#: seeds of workloads by the model of Lublin and Feitelson, and which part of the cluster they ask for
_GENERATED = ((21, 0.7), (22, 0.8), (23, 0.9))
#: pods of the trace with cards, in the order in which they came: the first, and how many
_FIRST, _PODS = 3_000, 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trace", type=Path, help="list of pods of openb, for jobs that say no run time")
    parser.add_argument("--only", help="one workload")
    options = parser.parse_args()
    print("| workload | asked | chosen | learned | error, median | waited, median |\n|---|---|---|---|---|---|")
    for name, jobs, cluster in _workloads(options.trace):
        if options.only in (None, name):
            # As many of those that wait as are enough.
            every = max(1, len(jobs) // (3 * _ASKED))
            asked = foretold(jobs, cluster, Engine(DEFAULT_POLICY), period=_PERIOD, every=every)
            print(_row(name, asked), flush=True)


def _workloads(trace: Path | None) -> Iterator[tuple[str, Workload, Cluster]]:
    cluster = equal_nodes(4, {"cpu": "32", "memory": "256Gi"})
    for seed, load in _GENERATED:
        yield f"seed {seed}, load {load}", generate(Model(jobs=400, processors=128, load=load), seed), cluster
    if trace is not None:
        cards = equal_nodes(2, {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "8"})
        yield "openb", _pods_with_cards(trace), cards


def _pods_with_cards(trace: Path) -> Workload:
    """Pods as jobs that say no run time; one with a part of a card has the whole."""
    with trace.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"])]
    rows.sort(key=lambda row: int(row["creation_time"]))
    chosen = rows[_FIRST : _FIRST + _PODS]
    return in_order(
        Job(
            arrival=float(row["creation_time"]),
            run_time=float(row["deletion_time"]) - float(row["creation_time"]),
            gang=Gang.of(Task.requesting(1, {"cpu": f"{row['cpu_milli']}m", "nvidia.com/gpu": row["num_gpu"]})),
            queue=row["qos"].lower(),
        )
        for row in chosen
        if float(row["deletion_time"] or 0) > float(row["creation_time"])
    )


def _row(name: str, asked: list[Told]) -> str:
    learned = Quality.of(asked, _PERIOD)
    chosen = Quality.of([Told(_as_chosen(each.start), each.after) for each in asked], _PERIOD)
    hours = (f"{seconds / 3600:.1f} h" for seconds in (learned.error, learned.waited))
    parts = (f"{100 * each.within:.0f} %" for each in (chosen, learned))
    return f"| {name} | {learned.told} | {' | '.join(parts)} | {' | '.join(hours)} |"


def _as_chosen(start: Start) -> Start:
    """A start with the range that it has before anything is learned."""
    if start.first is None:
        return start
    latest = None if start.last is None else MEASURED.later * start.last
    return replace(start, earliest=MEASURED.sooner * start.first, latest=latest)


if __name__ == "__main__":
    main()
