"""What it costs that the service makes the groups of Jobs: beside the same pods with groups made by hand.

    python -m tests.perf.bench_workloads [--jobs N] [--pods N] [--nodes N] [--seconds S]

Jobs and their pods are created at an even pace on a real API server, pods as the Job controller would make them, and
all fit. The table has the time from the last creation of a pod to the last binding of each gang, and the writes of the
service for each pod.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.audit import Audit
from tests.e2e.service import Service, cpu_seconds
from tests.e2e.watch import PodWatch, percentile
from tests.e2e.world import World, define, pod

_NAMESPACE = "bench"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_JOBS = f"/apis/batch/v1/namespaces/{_NAMESPACE}/jobs"
_GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{_NAMESPACE}/podgroups"


def main() -> None:
    """Run both ways and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("jobs", 1_000), ("pods", 8), ("nodes", 1_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print("groups    gang p50 s  gang p99 s  CPU s of the service  writes per pod (without bindings)")
    for by_hand in (True, False):
        with tempfile.TemporaryDirectory() as scratch:
            print(_measured(options, Path(scratch), by_hand=by_hand))


def _measured(options: Any, scratch: Path, *, by_hand: bool) -> str:
    audit = Audit(scratch)
    with _cluster(audit) as cluster:
        world = World(cluster, _NAMESPACE)
        world.begin()
        world.nodes(options.nodes, cpu="64")
        service = Service(cluster.kubeconfig(), scratch / "stromboli.log").wait_ready()
        try:
            total = options.jobs * options.pods
            with PodWatch(cluster, _NAMESPACE) as watch:
                asyncio.run(_create(cluster, options, by_hand=by_hand))
                watch.wait_bound(total, 300)
            used = cpu_seconds(service.pid)
        finally:
            service.end()
        latencies = _latencies(watch)
        writes = [each.path for each in audit.writes("admin", "stromboli")]
        others = sum(not path.partition("?")[0].endswith("/binding") for path in writes) / total
    return (
        f"{'by hand' if by_hand else 'made':<9} {percentile(latencies, 50):>10.2f} {percentile(latencies, 99):>11.2f}"
        f" {used:>21.1f} {others:>15.2f}"
    )


@contextmanager
def _cluster(audit: Audit) -> Iterator[Cluster]:
    with Cluster(control_plane(), apiserver_args=audit.apiserver_args) as cluster:
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        yield cluster


def _latencies(watch: PodWatch) -> list[float]:
    gangs: defaultdict[str, list[str]] = defaultdict(list)
    for name in watch.bound:
        gangs[name.rpartition("-")[0]].append(name)
    return sorted(max(watch.bound[p] for p in pods) - max(watch.created[p] for p in pods) for pods in gangs.values())


async def _create(cluster: Cluster, options: Any, *, by_hand: bool) -> None:
    config = json.loads(cluster.kubeconfig().read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"}
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    connector = aiohttp.TCPConnector(ssl=tls, limit=32)
    async with aiohttp.ClientSession(cluster.url, headers=headers, connector=connector) as session:

        async def post(path: str, manifest: Any) -> Any:
            async with session.post(path, data=json.dumps(manifest)) as answer:
                answer.raise_for_status()
                return await answer.json()

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.jobs):
                await asyncio.sleep(max(0.0, began + number * options.seconds / options.jobs - time.monotonic()))
                tasks.create_task(_gang(post, f"job-{number}", options.pods, by_hand=by_hand))


async def _gang(post: Any, name: str, pods: int, *, by_hand: bool) -> None:
    template = {"spec": {**pod("")["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    made = await post(_JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    if by_hand:
        least = {"minMember": pods, "queue": "default", "minResources": {"cpu": str(pods)}}
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        await post(_GROUPS, {**group, "metadata": {"name": name, "ownerReferences": [owner]}, "spec": least})
    for number in range(pods):
        manifest = pod(f"{name}-{number}", name if by_hand else "")
        manifest["metadata"]["ownerReferences"] = [owner]
        await post(_PODS, manifest)


if __name__ == "__main__":
    main()
