"""What the operator costs for the workloads that it follows, and what kopf would cost for pods, beside a reflector.

    python -m tests.perf.bench_operator [--jobs N] [--pods N] [--seconds S]

Jobs are created at an even pace on a real API server, and each is changed once; pods are created as fast as it takes
them. Each of those that watch is a process of its own, and all see the same events. One that ends before it has seen
all says why.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.groups.operator import Follower, Followers, Life, Operator, Watched
from stromboli.live.groups.owners import Owners
from stromboli.live.observer import Observer
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import SOURCES
from stromboli.state.cluster import ClusterState
from stromboli.workloads import known_kinds
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.world import CORE, Object, World, pod

#: what watches, and what it is to see
_WAYS = (("operator", "jobs"), ("kopf", "pods"), ("reflector", "pods"))
_WRITERS = 8


def main() -> None:
    """Run, and print a line for each that watched."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("jobs", 1_000), ("pods", 10_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--watch", nargs=3, metavar=("WAY", "NUMBER", "KUBECONFIG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        way, number, kubeconfig = options.watch
        asyncio.run(_watch(way, int(number), Path(kubeconfig)))
        return
    with Cluster(control_plane()) as cluster:
        _run(World(cluster, "bench"), options)


def _run(world: World, options: Any) -> None:
    world.begin()
    numbers = {"jobs": options.jobs, "pods": options.pods}
    children = [_child(world, way, numbers[what]) for way, what in _WAYS]
    _make_jobs(world, options)
    world.create_all(f"{CORE}/namespaces/bench/pods", [pod(f"p-{number}") for number in range(options.pods)])
    print("watches by   what    number  CPU s  MiB more")
    for (way, what), child in zip(_WAYS, children, strict=True):
        print(f"{way:<12} {what:<6} {numbers[what]:>7} {child.communicate(timeout=300)[0].strip()}", flush=True)
    world.api.close()


def _make_jobs(world: World, options: Any) -> None:
    path = "/apis/batch/v1/namespaces/bench/jobs"
    template = {"spec": {**pod("")["spec"], "restartPolicy": "Never"}}
    spec: Object = {"parallelism": 8, "completions": 8, "template": template}
    began = time.monotonic()

    def make(number: int) -> None:
        time.sleep(max(0.0, began + number * options.seconds / options.jobs - time.monotonic()))
        name = f"job-{number}"
        world.create(path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        changed = {"metadata": {"labels": {"changed": "once"}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        world.api.patch(f"{path}/{name}", json=changed, headers=headers).raise_for_status()

    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(make, range(options.jobs)):
            pass


def _child(world: World, way: str, number: int) -> subprocess.Popen[str]:
    """A process that watches, once it does."""
    words = ("--watch", way, str(number), str(world.cluster.kubeconfig()))
    child = subprocess.Popen([sys.executable, "-m", __spec__.name, *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


async def _watch(way: str, number: int, kubeconfig: Path) -> None:
    """Watch until so many Jobs that have changed, or pods, were seen; print the CPU and memory that it took."""
    credentials, done = Credentials.load(kubeconfig, None), asyncio.Event()
    kube, names = Kube(credentials), set[str]()

    def count(name: str) -> None:
        names.add(name)
        if len(names) >= number:
            done.set()

    watching = asyncio.create_task(_watcher(way, credentials, kube, count))
    await asyncio.sleep(5)
    print("watches", flush=True)
    began, before = time.process_time(), _memory()
    finished = asyncio.create_task(done.wait())
    await asyncio.wait((finished, watching), return_when=asyncio.FIRST_COMPLETED)
    if finished.done():
        print(f"{time.process_time() - began:>6.2f} {_memory() - before:>9.0f}", flush=True)
    else:
        print(f"ended after {len(names)}: {watching.exception() or watching.result()}", flush=True)
    for task in (watching, finished):
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
    await kube.close()


async def _watcher(way: str, credentials: Credentials, kube: Kube, count: Callable[[str], None]) -> object:
    def counted(obj: Object) -> None:
        meta = obj["metadata"]
        if way != "operator" or "changed" in (meta.get("labels") or {}):
            count(meta["name"])

    follower = Follower(counted, counted)
    if way == "operator":
        unheeded = Follower(lambda obj: None, lambda obj: None)
        followers = Followers(unheeded, unheeded, lambda kind: follower)
        return await Operator(credentials, kube, Owners(kube, known_kinds()), followers).run()
    if way == "kopf":
        return await Life(credentials, [Watched("", "v1", "pods", follower)]).run()
    mirror = Mirror(ClusterState(("stromboli",)), lambda urgent: None, Observer())
    mirror.listen("Pod", lambda type, obj: count(obj.metadata.name))
    source = next(each for each in SOURCES if each.kind == "Pod")
    return await Reflector(kube, source, mirror, Observer()).run()


def _memory() -> float:
    """MiB that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
