"""What it costs that the service makes the groups of Jobs: beside the same pods with groups made by hand.

    python -m tests.perf.bench_workloads [--jobs N] [--pods N] [--nodes N] [--seconds S]

Jobs and their pods are created at an even pace on a real API server, pods as the Job controller would make them, and
all fit. Every second Job has a group made by hand, so both kinds meet the same service and API server at the same
time. The table has the time from the last creation of a pod to the last binding of each gang, and the writes of the
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
from contextlib import ExitStack, contextmanager
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

#: namespaces of the Jobs whose groups are made by hand, and by the service
_WAYS = ("by-hand", "made")


def main() -> None:
    """Run, and print a line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("jobs", 1_000), ("pods", 8), ("nodes", 1_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    with tempfile.TemporaryDirectory() as scratch:
        _run(parser.parse_args(), Path(scratch))


def _run(options: Any, scratch: Path) -> None:
    audit, watches = Audit(scratch), {}
    with _cluster(audit) as cluster:
        for way in _WAYS:
            world = World(cluster, way)
            world.begin()
        world.nodes(options.nodes, cpu="64")
        service = Service(cluster.kubeconfig(), scratch / "stromboli.log").wait_ready()
        try:
            began = cpu_seconds(service.pid)
            with ExitStack() as stack:
                for way in _WAYS:
                    watches[way] = stack.enter_context(PodWatch(cluster, way))
                asyncio.run(_create(cluster, options))
                for number, way in enumerate(_WAYS):
                    watches[way].wait_bound((options.jobs + 1 - number) // 2 * options.pods, 300)
            used = cpu_seconds(service.pid) - began
        finally:
            service.end()
        writes = [each.path.partition("?")[0] for each in audit.writes("admin", "stromboli")]
    print("groups    gang p50 s  gang p99 s  writes per pod beside its binding")
    for way, watch in watches.items():
        latencies, mine = _latencies(watch), [path for path in writes if f"/namespaces/{way}/" in path]
        others = sum(not path.endswith("/binding") for path in mine) / len(watch.bound)
        print(f"{way:<9} {percentile(latencies, 50):>10.2f} {percentile(latencies, 99):>11.2f} {others:>34.2f}")
    print(f"CPU of the service: {used:.1f} s")


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


async def _create(cluster: Cluster, options: Any) -> None:
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
                tasks.create_task(_gang(post, _WAYS[number % 2], f"job-{number}", options.pods))


async def _gang(post: Any, way: str, name: str, pods: int) -> None:
    inside, by_hand = f"namespaces/{way}", way == _WAYS[0]
    template = {"spec": {**pod("")["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    made = await post(f"/apis/batch/v1/{inside}/jobs", job)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    if by_hand:
        least = {"minMember": pods, "queue": "default", "minResources": {"cpu": str(pods)}}
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        whole = {**group, "metadata": {"name": name, "ownerReferences": [owner]}, "spec": least}
        await post(f"/apis/scheduling.volcano.sh/v1beta1/{inside}/podgroups", whole)
    for number in range(pods):
        manifest = pod(f"{name}-{number}", name if by_hand else "")
        manifest["metadata"]["ownerReferences"] = [owner]
        await post(f"/api/v1/{inside}/pods", manifest)


if __name__ == "__main__":
    main()
