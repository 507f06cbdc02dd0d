"""How the CPU time of a session grows with nodes, pods, queues and jobs, one at a time over two decades.

    python -m tests.perf.growth [--runs N] [--svg FILE]

A Markdown table goes to standard output. The exponent is the slope of the line through the points in the plot, whose
axes are both logarithmic: 1 is growth in proportion. That of the last decade is steeper where fixed costs hide it.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stromboli.cli.bench import measurements
from stromboli.engine import Engine
from stromboli.simulation import synthetic
from stromboli.simulation.synthetic import Shape
from stromboli.state.cluster import ClusterState
from tests.perf.plot import Line, log_log

TIMES = (1, 3, 10, 30, 100)


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows, and what stays meanwhile."""

    name: str
    base: int
    fixed: str
    shape: Shape
    cluster: Callable[[int], ClusterState]


AXES = (
    Axis(
        "nodes",
        50,
        "1,000 pods in 10 jobs",
        Shape.gang,
        lambda nodes: synthetic.cluster(nodes, 1_000, 10, Shape.gang),
    ),
    Axis(
        "pods",
        1_000,
        "100 jobs, 5,000 nodes",
        Shape.gang,
        lambda pods: synthetic.cluster(5_000, pods, 100, Shape.gang),
    ),
    Axis(
        "queues",
        10,
        "10,000 pods in 1,000 jobs, 5,000 nodes",
        Shape.queues,
        lambda queues: synthetic.cluster(5_000, 10_000, 1_000, Shape.queues, leaves=queues),
    ),
    Axis(
        "jobs",
        10,
        "10,000 pods, 5,000 nodes",
        Shape.gang,
        lambda jobs: synthetic.cluster(5_000, 10_000, jobs, Shape.gang),
    ),
)


def sweep(axis: Axis, runs: int) -> list[float]:
    """CPU milliseconds of the best session at each size."""
    engine = Engine(synthetic.policy(axis.shape))
    out = []
    for times in TIMES:
        state = axis.cluster(times * axis.base)
        out.append(min(1e3 * each["session_cpu_s"] for each in measurements(engine, state, runs)))
        print(f"{axis.name} {times * axis.base}: {out[-1]:.1f} ms", file=sys.stderr, flush=True)
    return out


def exponent(times: tuple[int, ...], spent: list[float]) -> float:
    """The power of the size with which the time grows, by least squares of the logarithms."""
    return float(np.polyfit(np.log(times), np.log(spent), 1)[0])


def last_decade(spent: list[float]) -> float:
    """The power with which the time grows between ten and a hundred times the smallest size."""
    first = TIMES.index(10)
    return exponent(TIMES[first:], spent[first:])


def table(results: dict[Axis, list[float]]) -> str:
    """The figures in Markdown."""
    lines = [
        "| what grows | from | " + " | ".join(f"{times}×" for times in TIMES) + " | exponent | last decade | fixed |",
        "|---|---|" + "---|" * len(TIMES) + "---|---|---|",
    ]
    for axis, spent in results.items():
        cells = " | ".join(f"{ms:.3g} ms" if ms < 100 else f"{ms:,.0f} ms" for ms in spent)
        slopes = f"{exponent(TIMES, spent):.2f} | {last_decade(spent):.2f}"
        lines.append(f"| {axis.name} | {axis.base:,} | {cells} | {slopes} | {axis.fixed} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="sessions of each size; the best counts")
    parser.add_argument("--svg", type=Path, help="where to draw the plot")
    options = parser.parse_args()
    results = {axis: sweep(axis, options.runs) for axis in AXES}
    print(f"Python {platform.python_version()}, {platform.machine()}\n\n{table(results)}")
    if options.svg:
        lines = [
            Line(f"{axis.name} from {axis.base:,} to {TIMES[-1] * axis.base:,}", spent)
            for axis, spent in results.items()
        ]
        options.svg.write_text(log_log("CPU time of a session", "times as many", "ms", TIMES, lines))


if __name__ == "__main__":
    main()
