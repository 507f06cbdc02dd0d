"""`stromboli lab starts`: how good expected starts are on a workload."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from stromboli.cli.lab import (
    LabPolicy,
    Log,
    Nodes,
    Period,
    PerPod,
    QueueBy,
    Queues,
    RunTime,
    in_unit,
    read_both,
    seconds,
)
from stromboli.cli.options import AsJson, Compatible, PluginsDir
from stromboli.cli.policies import engine_by
from stromboli.discovery import discover
from stromboli.lab.readers.named import Reading
from stromboli.lab.starts import Quality, foretold


def starts(
    workload: Log,
    nodes: Nodes,
    policy: LabPolicy = None,
    compatibility: Compatible = None,
    plugins_dir: PluginsDir = None,
    period: Period = 60.0,
    queue_by: Queues = QueueBy.user,
    per_pod: PerPod = 32,
    run_time: RunTime = None,
    every: Annotated[int, typer.Option(min=1, help="Ask about one in this many waiting jobs.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Measure on a workload how good the start times are that `stromboli why job` predicts.

    For each job that is not placed on arrival the prediction at its arrival is compared with its actual start. Run
    times are known from what jobs declare and from jobs that have finished by then.

    Example: stromboli lab starts workload.swf --nodes '32*cpu=32,memory=256Gi'
    """
    registry = discover(plugins_dir)
    engine = engine_by(policy, registry, compatibility)
    reading = Reading(queue_by.value, per_pod, seconds(run_time))
    jobs, cluster, problems = read_both(workload, nodes, reading, registry)
    found = Quality.of(foretold(jobs, cluster, engine, period=period, every=every), period)
    for problem in problems:
        print(problem, file=sys.stderr)
    if as_json:
        print(json.dumps({name: value if math.isfinite(value) else None for name, value in asdict(found).items()}))
        return
    print(f"{found.asked:,} waiting jobs were asked about; a start was predicted for {found.told:,}")
    if math.isfinite(found.within):
        wide = f", half of which are {in_unit(found.width)} wide" if math.isfinite(found.width) else ""
        print(f"{found.within:.0%} of these started within the range{wide}")
        print(f"error: {in_unit(found.error)} in the median, {in_unit(found.error_p90)} at 90 %")
        print(f"they waited {in_unit(found.waited)} in the median")
