"""`stromboli bench engine`: the duration of a session on a synthetic cluster."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stromboli.cli.options import AsJson, PluginsDir, policy_option
from stromboli.discovery import discover
from stromboli.engine import Engine, SessionResult
from stromboli.simulation import synthetic
from stromboli.simulation.files import LARGEST_POLICY, read_text
from stromboli.simulation.synthetic import Shape
from stromboli.state.cluster import ClusterState


def engine(
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes of 32 CPUs, 256 Gi and 110 pods.")] = 1_000,
    pods: Annotated[int, typer.Option(min=1, max=10_000_000, help="Pods, pending unless the shape is idle.")] = 10_000,
    gangs: Annotated[int, typer.Option(min=1, max=1_000_000, help="PodGroups that the pods are divided into.")] = 100,
    shape: Annotated[Shape, typer.Option(help="What the pods of a workload have in common.")] = Shape.gang,
    policy: Annotated[Path | None, policy_option("; by default the built-in one as the shape needs it")] = None,
    runs: Annotated[
        int, typer.Option(min=1, max=1_000, help="Sessions from the same state; the best is reported.")
    ] = 3,
    plugins_dir: PluginsDir = None,
    as_json: AsJson = False,
) -> None:
    """Time one session: CPU and wall seconds in all, by action and for each pod.

    Example: stromboli bench engine --nodes 5000 --pods 10000 --shape gang
    """
    text = read_text(policy, LARGEST_POLICY) if policy else synthetic.policy(shape)
    scheduler = Engine(text, registry=discover(plugins_dir), source=str(policy or ""))
    if policy is None:
        scheduler = scheduler.unbounded()
    state = synthetic.cluster(nodes, pods, gangs, shape, reads=scheduler.registry.reads)
    best = min(measurements(scheduler, state, runs), key=lambda run: run["session_cpu_s"])
    best["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    best |= {"nodes": nodes, "pods": pods, "gangs": gangs, "shape": shape.value}
    if as_json:
        print(json.dumps(best))
        return
    Console().print(_table(best))


def measurements(scheduler: Engine, state: ClusterState, runs: int) -> Iterator[dict[str, Any]]:
    """Measure sessions on the same state, each while the one before is kept, as the service keeps it for questions."""
    for _ in range(runs):
        figures, _kept = _measure(scheduler, state)
        yield figures


def _measure(scheduler: Engine, state: ClusterState) -> tuple[dict[str, Any], SessionResult]:
    """Snapshot and decide once."""
    with synthetic.undisturbed():
        began = time.process_time()
        snapshot = state.snapshot()
        cpu, wall = time.process_time(), time.perf_counter()
        result = scheduler.decide(snapshot, now=time.time(), clock=time.perf_counter)
        session_cpu, session_wall = time.process_time() - cpu, time.perf_counter() - wall
    session = result.session
    figures = {
        "bound": len(session.bound),
        "decisions": len(result.decisions),
        "snapshot_cpu_s": cpu - began,
        "session_cpu_s": session_cpu,
        "session_wall_s": session_wall,
        "us_per_pod": 1e6 * session_cpu / max(1, len(session.bound)),
        "actions": dict(session.timings.actions),
        "plugins": {f"{name}.{what}": spent for (name, what), spent in session.timings.plugins.items()},
        "nodes_scored": session.kernel.nodes_scored,
        "nodes_rescored": session.kernel.nodes_rescored,
    }
    return figures, result


def _table(run: dict[str, Any]) -> Table:
    title = f"{run['pods']} pods in {run['gangs']} PodGroups ({run['shape']}) on {run['nodes']} nodes"
    table = Table(title=title, title_justify="left", show_header=False)
    for name in ("bound", "decisions", "nodes_scored"):
        table.add_row(name.replace("_", " "), str(run[name]))
    for name in ("snapshot_cpu_s", "session_cpu_s", "session_wall_s"):
        table.add_row(name.removesuffix("_s").replace("_", " "), f"{1e3 * run[name]:.1f} ms")
    table.add_row("peak memory", f"{run['peak_mib']} MiB")
    if run["bound"]:
        table.add_row("CPU for each bound pod", f"{run['us_per_pod']:.1f} µs")
    for name, spent in run["actions"].items():
        table.add_row(f"action {name} (wall)", f"{1e3 * spent:.1f} ms")
    return table
