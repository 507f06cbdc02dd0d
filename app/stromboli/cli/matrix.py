"""`stromboli bench matrix`: the cost of each feature on a large cluster."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Annotated

import typer

from stromboli.api.errors import StromboliError
from stromboli.api.validation import did_you_mean
from stromboli.bench import FEATURES, Figures, measure
from stromboli.cli.options import AsJson

#: the figures of the table: field, head, and unit
_COLUMNS = (
    ("success", "a pod"),
    ("vain", "in vain"),
    ("again", "again"),
    ("tick", "tick"),
    ("idle", "idle"),
)


class UnknownFeatureError(StromboliError):
    """There is no trial of that name."""


def matrix(
    feature: Annotated[
        list[str] | None, typer.Option(help="Part of the names of features; may be repeated; all by default.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes of 32 CPUs, 256 Gi and 110 pods.")] = 5_000,
    runs: Annotated[int, typer.Option(min=1, max=1_000, help="Sessions of each kind; the best is reported.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Print a Markdown table of CPU milliseconds, and peak memory, a process for each feature.

    `a pod` is of a session that places new pods, for each of them; `in vain` of one in which none finds a place, and
    `again` when that is tried once more; `tick` is a whole session with one new pod, `idle` with none. `MiB` is the
    peak of the process, command and cluster included. Bars, the most that it may take on 5,000 nodes, stand behind the
    figures.

    Example: stromboli bench matrix
    """
    names = _chosen(feature or [])
    if not as_json:
        heads = [head for _, head in _COLUMNS]
        print(f"| {nodes:,} nodes | " + " | ".join(heads) + " | bound, evicted | MiB |")
        print("|---|" + "---|" * (len(heads) + 2), flush=True)
    for name, figures in _measured(names, nodes, runs):
        print(json.dumps({"feature": name, "nodes": nodes, **asdict(figures)}) if as_json else _row(name, figures))


def _chosen(parts: list[str]) -> list[str]:
    """The features whose names contain a part. Raises UnknownFeatureError."""
    for part in parts:
        if not any(part in name for name in FEATURES):
            raise UnknownFeatureError(f"--feature {part!r}: no such feature{did_you_mean(part, FEATURES)}")
    return [name for name in FEATURES if not parts or any(part in name for part in parts)]


def _measured(names: list[str], nodes: int, runs: int) -> Iterator[tuple[str, Figures]]:
    """The figures of each feature, from a process of its own: memory is the peak of a process."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as pool:
        for name in names:
            yield name, pool.submit(_figures, name, nodes, runs).result()


def _figures(name: str, nodes: int, runs: int) -> Figures:
    return measure(FEATURES[name].trial, nodes, runs)


def _row(name: str, figures: Figures) -> str:
    cells = [_cell(name, field, figures) for field, _ in _COLUMNS]
    memory = _cell(name, "mebibytes", figures)
    return f"| {name} | {' | '.join(cells)} | {figures.bound}, {figures.evicted} | {memory} |"


def _cell(name: str, field: str, figures: Figures) -> str:
    """A figure with its bar; empty if it was not measured."""
    figure, bar = getattr(figures, field), FEATURES[name].bars.get(field)
    return f"{figure:.3g}{'' if bar is None else f' ({bar:.3g})'}" if figure else ""
