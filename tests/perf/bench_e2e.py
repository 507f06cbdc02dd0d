"""How fast a real control plane gets its pods placed, by Stromboli and by kube-scheduler, each run on a new one.

    python -m tests.perf.bench_e2e [--sizes 100x1000,1000x5000] [--repeat N]

Pods come in gangs of a hundred that all fit; kube-scheduler places them one by one and serves as the measure. They are
created while the scheduler runs, or wait when it starts. Neither kwok nor the controller-manager runs, so what is
measured is the scheduler, the API server and etcd on the same cores. A table goes to standard error, JSON to standard
output.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import yaml
from rich.console import Console
from rich.table import Table

from stromboli.api import crd_schema
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.service import Service, cpu_seconds, peak_rss
from tests.e2e.watch import PodWatch, percentile
from tests.e2e.world import World, define, pod

SCHEDULERS = ("stromboli", "kube-scheduler")
GANG = 100
#: seconds that a run waits for, and pods a second that a slow machine makes in a large one
_PATIENCE, _SLOWEST = 600, 50
#: creations under way at once
_WRITERS = 32
_CONNECTION = {"qps": 5_000, "burst": 10_000}


@dataclass(frozen=True, slots=True)
class Run:
    """One run; times in seconds, memory in MiB."""

    scheduler: str
    nodes: int
    pods: int
    #: whether the pods were there before the scheduler
    waiting: bool
    #: from the first creation, or the scheduler's start, to the last binding
    seconds: float
    pods_per_second: float
    #: from the last creation to the last binding
    last_after: float
    #: from the first binding to the last
    binding_seconds: float
    #: from the creation of a gang's last pod, or the scheduler's start, to the binding of its last
    gang_p50: float
    gang_p99: float
    #: from a gang's first binding to its last, the longest
    gang_partial: float
    #: of the scheduler and of the API server, from when `seconds` begins
    cpu_seconds: float
    apiserver_cpu_seconds: float
    peak_rss: float


def measure(scheduler: str, nodes: int, pods: int, *, waiting: bool) -> Run:
    """Place so many pods on so many nodes of a new cluster."""
    with tempfile.TemporaryDirectory() as scratch, Cluster(control_plane()) as cluster:
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        world = World(cluster, "default")
        world.nodes(nodes, cpu=str(2 * -(-pods // nodes)))
        patience = max(_PATIENCE, pods / _SLOWEST)
        gangs = [f"gang-{number}" for number in range(pods // GANG)]
        for gang in gangs:
            world.group(gang, GANG)
        name = "default-scheduler" if scheduler == "kube-scheduler" else scheduler
        manifests = [pod(f"{gang}-{number}", gang, scheduler=name) for gang in gangs for number in range(GANG)]
        with PodWatch(cluster, "default") as watch:
            if waiting:
                asyncio.run(create(cluster, manifests))
                watch.wait(lambda: len(watch.created) == pods, patience)
            server = cluster.pid("kube-apiserver")
            began, used, server_used = time.monotonic(), 0.0, cpu_seconds(server)
            with running(scheduler, cluster, Path(scratch), ready=not waiting) as pid:
                if not waiting:
                    began, used, server_used = time.monotonic(), cpu_seconds(pid), cpu_seconds(server)
                    asyncio.run(create(cluster, manifests))
                watch.wait(lambda: len(watch.bound) == pods, patience)
                used, server_used = cpu_seconds(pid) - used, cpu_seconds(server) - server_used
                rss = peak_rss(pid)
        first, last = min(watch.bound.values()), max(watch.bound.values())
        latencies = watch.latencies(began if waiting else None)
        partial = max(steps[-1][0] - steps[0][0] for steps in watch.history().values())
        assert not watch.moved
        world.api.close()
    return Run(
        scheduler=scheduler,
        nodes=nodes,
        pods=pods,
        waiting=waiting,
        seconds=last - began,
        pods_per_second=pods / (last - began),
        last_after=last - max(watch.created.values()),
        binding_seconds=last - first,
        gang_p50=percentile(latencies, 50),
        gang_p99=percentile(latencies, 99),
        gang_partial=partial,
        cpu_seconds=used,
        apiserver_cpu_seconds=server_used,
        peak_rss=rss / 2**20,
    )


@contextmanager
def running(scheduler: str, cluster: Cluster, scratch: Path, *, ready: bool) -> Iterator[int]:
    """Run a scheduler on a cluster; gives its process id, at once or when it is ready."""
    if scheduler == "kube-scheduler":
        kubeconfig = str(cluster.kubeconfig("scheduler"))
        cluster.start_scheduler({"clientConnection": {"kubeconfig": kubeconfig, **_CONNECTION}})
        yield cluster.pid(scheduler)
        return
    service = Service(cluster.kubeconfig(), scratch / "stromboli.log")
    try:
        if ready:
            service.wait_ready()
        yield service.pid
    finally:
        service.end()


async def create(cluster: Cluster, manifests: Iterable[object]) -> None:
    """Create pods, in order, many at once."""
    config = json.loads(cluster.kubeconfig().read_text())
    headers = {
        "Authorization": f"Bearer {config['users'][0]['user']['token']}",
        "Content-Type": "application/json",
    }
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    rest = iter(manifests)
    connector = aiohttp.TCPConnector(ssl=tls, limit=_WRITERS)
    async with aiohttp.ClientSession(cluster.url, headers=headers, connector=connector) as session:

        async def write() -> None:
            for manifest in rest:
                path = "/api/v1/namespaces/default/pods"
                async with session.post(path, data=json.dumps(manifest)) as answer:
                    answer.raise_for_status()

        await asyncio.gather(*(write() for _ in range(_WRITERS)))


def table(runs: Iterable[Run]) -> Table:
    """The runs, the median of those that were repeated."""
    out = Table(title=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    columns = (
        *("nodes", "pods", "created", "scheduler", "seconds", "pods/s", "last after", "gang p50", "gang p99"),
        *("gang begun for", "CPU s", "API server CPU s", "peak MiB"),
    )
    for column in columns:
        out.add_column(column, justify="left" if column in ("created", "scheduler") else "right")
    for _, same in itertools.groupby(runs, key=lambda run: (run.nodes, run.pods, run.waiting, run.scheduler)):
        group = list(same)
        run = group[0]
        numbers = [
            f"{statistics.median(getattr(run, field) for run in group):.{digits}f}"
            for field, digits in (
                ("seconds", 1),
                ("pods_per_second", 0),
                ("last_after", 2),
                ("gang_p50", 2),
                ("gang_p99", 2),
                ("gang_partial", 2),
                ("cpu_seconds", 1),
                ("apiserver_cpu_seconds", 1),
                ("peak_rss", 0),
            )
        ]
        created = "before" if run.waiting else "meanwhile"
        out.add_row(str(run.nodes), str(run.pods), created, run.scheduler, *numbers)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="100x1000,1000x5000", help="NODESxPODS,...")
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    runs = []
    for size, waiting in itertools.product(options.sizes.split(","), (False, True)):
        nodes, pods = map(int, size.split("x"))
        for scheduler in options.schedulers.split(","):
            for _ in range(options.repeat):
                runs.append(measure(scheduler, nodes, pods, waiting=waiting))
                print(runs[-1], file=sys.stderr, flush=True)
    Console(stderr=True, width=160).print(table(runs))
    print(json.dumps([asdict(run) for run in runs], indent=2))


if __name__ == "__main__":
    main()
