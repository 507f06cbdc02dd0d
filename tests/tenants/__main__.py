"""What one tenant can do to another.

    python -m tests.tenants [--only LOAD ...] [--mass 5000] [--nodes 1000] [--gangs 40] [--policy FILE] [--json]

runs the service on a real control plane, which is built when it is missing, and prints for each load how long the gangs
of another tenant wait without it and beside it. It ends with 1 when a load misses the bar: the 99th percentile at most
twice that of the quiet cluster and half a second. Beside that it tells what the API server alone takes for a write and
the event of it, quiet and beside the load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.service import Service
from tests.e2e.watch import PodWatch
from tests.e2e.world import World, define
from tests.tenants.bystander import Bystander, Figures, filler
from tests.tenants.loads import LOADS, Hostile, under

#: what a gang may wait beside a load: so many times what it waits without one, and so many seconds more
_TIMES, _MORE = 2.0, 0.5
_COLUMNS = (
    "load",
    "quiet p50, p99",
    "beside it p50, p99",
    "bar",
    "API server alone, p99",
    "CPU a session",
    "CPU",
    "memory",
)


def main() -> int:
    """Measure each load and print the table; the exit code says whether all stay within their bars."""
    parser = argparse.ArgumentParser(prog="tests.tenants", description=__doc__, formatter_class=_AsWritten)
    parser.add_argument("--only", action="append", choices=LOADS, help="a load; all of them when absent")
    parser.add_argument("--mass", type=int, default=5_000, help="objects of a load")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--gangs", type=int, default=40, help="gangs that are timed, quiet and under each load")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds after which a gang is given up")
    parser.add_argument("--policy", type=Path, help="the policy file; by default the built-in policy")
    parser.add_argument("--json", action="store_true", help="a JSON object for each load in place of the table")
    arguments = parser.parse_args()
    missed = False
    if not arguments.json:
        print(f"| {' | '.join(_COLUMNS)} |")
        print(f"{'|---' * len(_COLUMNS)}|")
    for name in arguments.only or LOADS:
        quiet, loud = _beside(name, arguments)
        bar = _TIMES * quiet.quantile(0.99) + _MORE
        missed |= loud.quantile(0.99) > bar
        if arguments.json:
            print(json.dumps({"load": name, "quiet": asdict(quiet), "loud": asdict(loud), "bar": bar}), flush=True)
        else:
            print(_row(name, quiet, loud, bar), flush=True)
    return int(missed)


class _AsWritten(argparse.RawDescriptionHelpFormatter):
    """Help as it stands in the docstring."""


def _beside(name: str, arguments: Any) -> tuple[Figures, Figures]:
    """The figures of the other tenant, quiet and beside a load, on a cluster of its own."""
    with cluster_of(arguments.nodes) as (cluster, quiet, loud), tempfile.TemporaryDirectory() as folder:
        options = ("--policy", str(arguments.policy)) if arguments.policy else ()
        service = Service(cluster.kubeconfig(), Path(folder) / "log", *options).wait_ready()
        try:
            with PodWatch(cluster, quiet.namespace) as watch:
                bystander = Bystander(quiet, service, watch)
                bystander.measure(4, arguments.timeout)
                before = bystander.measure(arguments.gangs, arguments.timeout)
                with under(LOADS[name], Hostile(loud, service, arguments.mass)):
                    return before, bystander.measure(arguments.gangs, arguments.timeout)
        finally:
            service.end()


@contextmanager
def cluster_of(nodes: int) -> Iterator[tuple[Cluster, World, World]]:
    """A control plane with nodes of which a part is taken, and a namespace and a queue for each tenant."""
    with Cluster(control_plane()) as cluster:
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        cluster.start_controller_manager()
        cluster.start_kwok()
        quiet, loud = World(cluster, "quiet"), World(cluster, "hostile")
        for world in (quiet, loud):
            world.begin()
            world.queue(world.namespace)
        quiet.nodes(nodes, cpu="32")
        quiet.pods([filler(number) for number in range(nodes)])
        yield cluster, quiet, loud
        for world in (quiet, loud):
            world.api.close()


def _row(name: str, quiet: Figures, loud: Figures, bar: float) -> str:
    latencies = (f"{each.quantile(0.5):.2f}, {each.quantile(0.99):.2f} s" for each in (quiet, loud))
    cells = (
        name,
        *latencies,
        f"{bar:.2f} s" + ("" if loud.quantile(0.99) <= bar else ", missed"),
        f"{quiet.trip:.2f}, {loud.trip:.2f} s",
        f"{1e3 * loud.cpu_of_session:.0f} ms",
        f"{loud.cpu:.0%}",
        f"{loud.memory / 2**20:.0f} MiB",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
