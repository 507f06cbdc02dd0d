"""`stromboli lab generate` and `stromboli lab simulate`: workloads, and what a policy makes of them over time."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stromboli.lab.generator import Model
from stromboli.lab.generator import generate as generated
from stromboli.lab.processors import Processors
from stromboli.lab.readers.swf import write_swf

Jobs = Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of jobs.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is random.")]


def generate(
    jobs: Jobs = 10_000,
    seed: Seed = 1,
    processors: Annotated[int, typer.Option(min=2, max=10_000_000, help="Processors of the machine.")] = 1_024,
    largest: Annotated[int, typer.Option(min=0, help="Processors of the largest job; 0 for all.")] = 0,
    load: Annotated[float, typer.Option(min=0.01, max=10.0, help="Part of the machine that jobs ask for.")] = 0.7,
    users: Annotated[int, typer.Option(min=1, max=1_000, help="Users, with habits of their own.")] = 8,
    per_pod: Annotated[int, typer.Option(min=1, max=1_000, help="Processors of the largest pods.")] = 32,
) -> None:
    """Print a workload by the model of Lublin and Feitelson, in the Standard Workload Format.

    Jobs arrive by day and week, and say for how long they run as wrongly as people do.

    Example: stromboli lab generate --jobs 1000 --seed 7 > workload.swf
    """
    model = Model(jobs=jobs, processors=processors, largest=largest, load=load, users=users, shape=Processors(per_pod))
    comments = (f"MaxProcs: {processors}", f"Note: Lublin-Feitelson, load {load:g}, seed {seed}")
    write_swf(generated(model, seed), sys.stdout, comments)
