"""`stromboli demo`: three queues share 100 CPUs on a cluster in memory, scheduled by the live service.

The cluster is the embedded API server with ten simulated nodes; the service is the same `stromboli run` that runs on
a real one. Both are processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from stromboli.api import crd_schema, quantity
from stromboli.api.crds import SCHEDULING, QueueState
from stromboli.devserver import DevServer, Options
from stromboli.live.api_server.client import CONNECTION_ERRORS, Credentials, Kube

_NODES, _CPU_PER_NODE = 10, 10
_PODS_PER_JOB, _JOB_MINIMUM = 10, 2
_TIMEOUT = 120.0
#: of the log of a service that has ended
_LAST_LINES = 10
_SCHEDULING = f"/apis/{SCHEDULING}"


@dataclass(frozen=True, slots=True)
class DemoQueue:
    """A queue of the example, amounts in CPUs."""

    name: str
    weight: int
    requests: int
    expected: int
    guarantee: int = 0
    capability: int = 0

    def manifest(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"weight": self.weight, "reclaimable": True}
        if self.guarantee:
            spec["guarantee"] = {"resource": {"cpu": str(self.guarantee)}}
        if self.capability:
            spec["capability"] = {"cpu": str(self.capability)}
        return {"apiVersion": SCHEDULING, "kind": "Queue", "metadata": {"name": self.name}} | {"spec": spec}


#: the code of a process that SIGTERM ended
_TERMINATED = 128 + signal.SIGTERM

#: they request 170 of 100 CPUs; weights, guarantees and limits settle who gets how much
QUEUES = (
    DemoQueue("a", weight=2, requests=80, expected=28, guarantee=10, capability=50),
    DemoQueue("b", weight=3, requests=60, expected=42),
    DemoQueue("c", weight=5, requests=30, expected=30, guarantee=20),
)


def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Keep the cluster and the service up afterwards.")] = False,
    api_port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the API server; 0 takes a free one.")] = 0,
    http_port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the service; 0 takes a free one.")] = 0,
    ui_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page that --serve has; 0 takes a free one.")
    ] = 0,
) -> None:
    """Run the scheduler on a cluster in memory and watch three queues share 100 CPUs.

    With --serve there is a page to look at, and some jobs that cannot run, each for another reason.

    Example: stromboli demo --serve
    """
    with tempfile.TemporaryDirectory(prefix="stromboli-demo-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        with DevServer.spawn(Options(port=api_port), kubeconfig=kubeconfig) as url:
            try:
                reached = asyncio.run(_Demo(url, kubeconfig, http_port or _free_port(), ui_port).run(serve))
            except asyncio.CancelledError:
                raise typer.Exit(_TERMINATED) from None
    raise typer.Exit(0 if reached else 1)


class _Demo:
    def __init__(self, api_url: str, kubeconfig: Path, http_port: int, ui_port: int) -> None:
        self._api_url = api_url
        self._kubeconfig = kubeconfig
        self._log = kubeconfig.with_name("scheduler.log")
        self._http_url = f"http://127.0.0.1:{http_port}"
        self._ui_port = ui_port
        self._console = Console()

    async def run(self, serve: bool) -> bool:
        task = asyncio.current_task()
        assert task is not None
        # Without a handler the demo would end, and what it started would go on.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        kube = Kube(Credentials.load(self._kubeconfig))
        try:
            self._console.print(f"API server {self._api_url} with {_NODES} simulated nodes of {_CPU_PER_NODE} CPUs")
            await _build(kube)
            await _submit(kube)
            async with self._service() as service:
                self._console.print(f"scheduler  {self._http_url}\n")
                reached = await self._watch(kube)
                if serve:
                    await _submit_hopeless(kube)
                    async with self._page() as (address, page):
                        await self._serve(address, {"scheduler": service, "page": page}, kube)
                else:
                    again = f"{sys.argv[0]} demo --serve"
                    self._console.print(f"{again} keeps all of it up, with a page to look at", soft_wrap=True)
                return reached
        finally:
            await kube.close()

    @contextlib.asynccontextmanager
    async def _service(self) -> AsyncIterator[Process]:
        """The live service, until it is ready and as long as the context lasts."""
        with self._log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "stromboli", "run"),
                *("--kubeconfig", str(self._kubeconfig), "--listen", self._http_url.removeprefix("http://")),
                stdout=out,
                stderr=out,
            )
        async with _until_left(process):
            if not await self._ready(process):
                self._console.print(await asyncio.to_thread(self._log.read_text), markup=False)
                raise typer.Exit(1)
            yield process

    @contextlib.asynccontextmanager
    async def _page(self) -> AsyncIterator[tuple[str, Process]]:
        """The page about it, as long as the context lasts, with its address, or why there is none."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stromboli", "ui"),
            *("--url", self._http_url, "--listen", f"127.0.0.1:{self._ui_port}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with _until_left(process):
            address = (await process.stdout.readline()).decode().strip()
            yield address or (await process.stderr.read()).decode().strip(), process

    async def _ready(self, process: Process) -> bool:
        """Wait until the service has run a session; False when it ended or took too long."""
        deadline = time.monotonic() + _TIMEOUT
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline and process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self._http_url}/readyz") as response:
                        if response.status == 200:
                            return True
                await asyncio.sleep(0.1)
        return False

    async def _watch(self, kube: Kube) -> bool:
        """Show the queues until they have what they deserve and keep it."""
        deadline, reached_since = time.monotonic() + _TIMEOUT, None
        async with aiohttp.ClientSession() as session:
            with Live(console=self._console, refresh_per_second=10, transient=not self._console.is_terminal) as live:
                while time.monotonic() < deadline:
                    held = await _held(kube)
                    table = queue_table(held, await self._deserved(session))
                    live.update(table)
                    if held == {queue.name: queue.expected for queue in QUEUES}:
                        reached_since = reached_since or time.monotonic()
                        if time.monotonic() - reached_since > 1.0:
                            break
                    else:
                        reached_since = None
                    await asyncio.sleep(0.1)
        if not self._console.is_terminal:
            self._console.print(table)
        reached = reached_since is not None
        self._console.print(
            "\nevery queue has what it deserves" if reached else "\nthe queues did not get what they deserve"
        )
        return reached

    async def _deserved(self, session: aiohttp.ClientSession) -> dict[str, float]:
        """CPUs that each queue deserves, as the service exports them."""
        async with session.get(f"{self._http_url}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        return {
            sample.labels["queue_name"]: sample.value / 1000
            for family in families
            for sample in family.samples
            if sample.name == "volcano_queue_deserved_milli_cpu"
        }

    async def _serve(self, page: str, processes: Mapping[str, Process], kube: Kube) -> None:
        """Say where everything is, and, until interrupted, which processes have ended."""
        self._console.print(
            f"\npage {page}\n"
            f"kubectl --server {self._api_url} get queues,podgroups,pods\n"
            f"curl {self._http_url}/metrics\n"
            f"stromboli top --url {self._http_url}\n"
            f"stromboli why queue {QUEUES[0].name} --url {self._http_url}\n"
            f"export KUBECONFIG={self._kubeconfig} STROMBOLI_URL={self._http_url}\n\nCtrl-C ends all.",
            highlight=False,
            soft_wrap=True,
        )
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        tellers = [asyncio.create_task(self._tell_end(name, process)) for name, process in processes.items()]
        tellers.append(asyncio.create_task(self._tell_silence(kube)))
        await stopped.wait()
        for teller in tellers:
            teller.cancel()

    async def _tell_end(self, name: str, process: Process) -> None:
        code = await process.wait()
        self._tell(f"the {name} ended with code {code}")
        if name == "scheduler":
            last = (await asyncio.to_thread(self._log.read_text)).splitlines()[-_LAST_LINES:]
            self._tell("\n".join(["nothing is scheduled any more; the last lines of its log:", *last]))

    async def _tell_silence(self, kube: Kube) -> None:
        with contextlib.suppress(*CONNECTION_ERRORS):
            while True:
                await asyncio.gather(kube.get("/version"), asyncio.sleep(1))
        self._tell("the API server does not answer any more")

    def _tell(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextlib.asynccontextmanager
async def _until_left(process: Process) -> AsyncIterator[None]:
    """Ends a process with the context, unless it has ended before."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _build(kube: Kube) -> None:
    """Definitions, queues and nodes."""
    for text in crd_schema.files().values():
        await kube.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(text))
    for queue in QUEUES:
        await _create(kube, f"{_SCHEDULING}/queues", queue.manifest())
    amounts = {"cpu": str(_CPU_PER_NODE), "memory": "64Gi", "pods": "110"}
    for number in range(_NODES):
        name = f"node-{number}"
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
        }
        await kube.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


async def _create(kube: Kube, path: str, manifest: dict[str, Any]) -> None:
    """Create an object of a kind that was defined a moment ago."""
    for _ in range(50):
        try:
            await kube.create(path, manifest)
        except Exception as error:
            if getattr(error, "status", None) != 404:
                raise
            await asyncio.sleep(0.1)
        else:
            return
    raise typer.Exit(1)


async def _submit(kube: Kube) -> None:
    """Jobs of ten one-CPU pods that start with two and grow."""
    for queue in QUEUES:
        for job in range(queue.requests // _PODS_PER_JOB):
            name = f"train-{queue.name}-{job}"
            await kube.create(f"{_SCHEDULING}/namespaces/default/podgroups", _group(name, queue.name))
            for index in range(_PODS_PER_JOB):
                await kube.create("/api/v1/namespaces/default/pods", _pod(f"{name}-{index}", name, queue.name))


async def _submit_hopeless(kube: Kube) -> None:
    """Jobs that wait for something that will not come, each for another reason, and a node that takes no more pods."""
    await _create(kube, f"{_SCHEDULING}/queues", DemoQueue("archive", weight=1, requests=0, expected=0).manifest())
    await _close(kube, f"{_SCHEDULING}/queues/archive")
    await kube.patch(f"/api/v1/nodes/node-{_NODES - 1}", {"spec": {"unschedulable": True}})
    for name, queue, requests, selector in (
        ("needs-gpu", "c", {"nvidia.com/gpu": "1"}, {}),
        ("too-large", "c", {"cpu": f"{_CPU_PER_NODE + 2}"}, {}),
        ("wants-ssd", "c", {"cpu": "0"}, {"disk": "ssd"}),
        ("old-report", "archive", {}, {}),
        ("misspelt", "cc", {}, {}),
    ):
        await kube.create(f"{_SCHEDULING}/namespaces/default/podgroups", _group(name, queue))
        for index in range(_JOB_MINIMUM):
            pod = _pod(f"{name}-{index}", name, queue)
            pod["spec"]["nodeSelector"] = selector
            pod["spec"]["containers"][0]["resources"]["requests"].update(requests)
            await kube.create("/api/v1/namespaces/default/pods", pod)


async def _close(kube: Kube, queue: str) -> None:
    """Close a queue once the service has opened it, as it opens each new one."""
    for _ in range(100):
        found = await kube.get(queue)
        if found.get("status", {}).get("state") == QueueState.Open:
            break
        await asyncio.sleep(0.1)
    await kube.patch(f"{queue}/status", {"status": {"state": QueueState.Closing}})


def _group(name: str, queue: str) -> dict[str, Any]:
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": _JOB_MINIMUM, "queue": queue},
    }


def _pod(name: str, group: str, queue: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"queue": queue},
            "annotations": {"scheduling.k8s.io/group-name": group},
        },
        "spec": {
            "schedulerName": "stromboli",
            "containers": [
                {
                    "name": "worker",
                    "image": "example.com/train:1",
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                }
            ],
        },
    }


async def _held(kube: Kube) -> dict[str, int]:
    """CPUs of the pods that have a node, by queue."""
    held = {queue.name: 0 for queue in QUEUES}
    pods = await kube.get("/api/v1/namespaces/default/pods")
    for pod in pods["items"]:
        if pod["spec"].get("nodeName"):
            request = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            held[pod["metadata"]["labels"]["queue"]] += quantity.units(request)
    return held


def queue_table(held: Mapping[str, int], deserved: Mapping[str, float]) -> Table:
    """Table of the demo: each queue with what it deserves and holds, in CPUs."""
    table = Table(title="100 CPUs, 170 requested", title_justify="left", padding=(0, 0))
    for column in ("queue", "weight", "guarantee", "capability", "requested", "deserved", "holds"):
        table.add_column(column, justify="left" if column == "queue" else "right", no_wrap=True)
    table.add_column(width=20)
    for queue in QUEUES:
        share = deserved.get(queue.name)
        table.add_row(
            queue.name,
            str(queue.weight),
            str(queue.guarantee or "-"),
            str(queue.capability or "-"),
            str(queue.requests),
            "-" if share is None else f"{share:g}",
            str(held[queue.name]),
            ProgressBar(total=50, completed=held[queue.name], width=20),
        )
    return table


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
