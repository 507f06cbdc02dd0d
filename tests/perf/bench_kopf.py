"""What kopf costs for the kinds that it watches, and what it would for pods: CPU beside that of a reflector.

    python -m tests.perf.bench_kopf [--jobs N] [--pods N] [--seconds S]

Jobs are created at an even pace on a real API server, and each is changed once; pods are created as fast as it takes
them. Each of those that watch is a process of its own, and all see the same events.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stromboli.live.client import Credentials, Kube
from stromboli.live.mirror import Mirror
from stromboli.live.observer import Observer
from stromboli.live.operator import Life
from stromboli.live.reflector import Reflector
from stromboli.live.sources import SOURCES
from stromboli.state.cluster import ClusterState
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.world import CORE, Object, World, pod

_JOBS = ("batch", "v1", "jobs")
_PODS = ("", "v1", "pods")
_WRITERS = 8


def main() -> None:
    """Run, and print a line for each that watched."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("jobs", 1_000), ("pods", 10_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--watch", nargs=4, metavar=("WAY", "PLURAL", "EVENTS", "KUBECONFIG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.watch:
        way, plural, events, kubeconfig = options.watch
        asyncio.run(_watch(way, plural, int(events), Path(kubeconfig)))
        return
    with Cluster(control_plane()) as cluster:
        _run(World(cluster, "bench"), options)


def _run(world: World, options: Any) -> None:
    world.begin()
    wanted = (("kopf", "jobs", options.jobs), ("kopf", "pods", options.pods), ("reflector", "pods", options.pods))
    children = [_child(world, *each) for each in wanted]
    _make_jobs(world, options)
    world.create_all(f"{CORE}/namespaces/bench/pods", [pod(f"p-{number}") for number in range(options.pods)])
    print("watches by   what    number   CPU s")
    for (way, plural, events), child in zip(wanted, children, strict=True):
        print(f"{way:<12} {plural:<6} {events:>7} {float(child.communicate(timeout=300)[0]):>7.2f}", flush=True)
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

    def change(number: int) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        changed = {"metadata": {"labels": {"changed": "once"}}}
        world.api.patch(f"{path}/job-{number}", json=changed, headers=headers).raise_for_status()

    with ThreadPoolExecutor(_WRITERS) as writers:
        for work in (make, change):
            for _ in writers.map(work, range(options.jobs)):
                pass


def _child(world: World, way: str, plural: str, events: int) -> subprocess.Popen[str]:
    """A process that watches, once it does."""
    words = ("--watch", way, plural, str(events), str(world.cluster.kubeconfig()))
    child = subprocess.Popen([sys.executable, "-m", __spec__.name, *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


async def _watch(way: str, plural: str, events: int, kubeconfig: Path) -> None:
    """Watch until so many pods, or Jobs that have changed, were seen, and print the CPU that it took."""
    credentials, done = Credentials.load(kubeconfig, None), asyncio.Event()
    names = set[str]()

    def seen(*told: Any) -> None:
        obj = told[-1]
        if not isinstance(obj, dict):
            names.add(obj.metadata.name)
        elif plural == "pods" or (obj["metadata"].get("labels") or {}).get("changed"):
            names.add(obj["metadata"]["name"])
        if len(names) >= events:
            done.set()

    if way == "kopf":
        running = Life(credentials, [(_JOBS if plural == "jobs" else _PODS, seen)]).run()
    else:
        mirror = Mirror(ClusterState(("stromboli",)), lambda urgent: None, Observer())
        mirror.listen("Pod", seen)
        source = next(each for each in SOURCES if each.kind == "Pod")
        running = Reflector(Kube(credentials), source, mirror, Observer()).run()
    task = asyncio.create_task(running)
    await asyncio.sleep(5)
    print("watches", flush=True)
    began = time.process_time()
    await done.wait()
    print(time.process_time() - began)
    task.cancel()


if __name__ == "__main__":
    main()
