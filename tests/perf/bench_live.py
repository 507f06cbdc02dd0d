"""What the live service costs beside its sessions, measured against an API server that is a process of its own.

    python -m tests.perf.bench_live [--only reflector,start,binder,load,extender] [--repeat N] [--seconds S]

Every part runs in a new process. CPU times are those of the client alone; waiting times are those of a machine whose
cores everything shares. A table goes to standard error, JSON to standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import trustme
from rich.console import Console
from rich.table import Table

from stromboli.api.decisions import Bind
from stromboli.discovery import discover
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.live.api_server.client import Credentials, Kube
from stromboli.live.binding.binder import Binder
from stromboli.live.binding.claims import Claims
from stromboli.live.binding.recall import Recall
from stromboli.live.reporting.events import Events
from stromboli.live.service import Service as LiveService
from stromboli.live.settings import Settings
from stromboli.live.watch.mirror import Mirror
from stromboli.live.watch.reflector import Reflector
from stromboli.live.watch.sources import SOURCES
from stromboli.metrics import Metrics
from stromboli.policy.document import DEFAULT_POLICY
from stromboli.state.cluster import ClusterState
from tests.e2e.service import Service, cpu_seconds, peak_rss
from tests.e2e.watch import percentile
from tests.perf.fake_api import GROUP, SENT, Gangs, Running, World, node, spawn

T = TypeVar("T")

_SOURCES = {source.kind: source for source in SOURCES}
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and what it should be."""

    part: str
    what: str
    value: float
    unit: str
    #: None where nothing is promised
    bar: float | None = None
    #: which way from the bar is good
    good: Literal["<=", ">="] = "<="

    @property
    def met(self) -> bool:
        """Whether it is as it should be."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.good == "<=" else self.value >= self.bar


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    pods: int
    events: int
    binds: int
    seconds: int
    requests: int


# -- reflector -------------------------------------------------------------------------------------------------------


def reflector(options: Options) -> list[Figure]:
    """Pods listed, and then changed as fast as they are read."""
    gangs = (Gangs("running", options.pods // 100, bound=100),)
    with _server(World(5_000, gangs)) as api:
        return _run(_reflect(api, options))


async def _reflect(api: Running, options: Options) -> list[Figure]:
    kube = Kube(Credentials.load(api.kubeconfig))
    observer, state = Metrics(), ClusterState(reads=discover().reads)
    mirror = Mirror(state, lambda urgent: None, observer)
    nodes = Reflector(kube, _SOURCES["Node"], mirror, observer)
    pods = Reflector(kube, _SOURCES["Pod"], mirror, observer)
    await nodes.list("start")
    gc.collect()
    memory, used, began = _rss(), time.process_time(), time.monotonic()
    following = asyncio.create_task(pods.run())
    await pods.synced.wait()
    list_cpu, list_wall = time.process_time() - used, time.monotonic() - began
    memory = _rss() - memory

    seen, all_seen = 0, asyncio.Event()

    def see(type: str, pod: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == options.events:
            all_seen.set()

    mirror.listen("Pod", see)
    used, began = time.process_time(), time.monotonic()
    await _ask(api, "POST", f"changes?count={options.events}")
    await all_seen.wait()
    cpu, wall = time.process_time() - used, time.monotonic() - began
    following.cancel()
    await kube.close()
    assert len(state.pods.by_key) == options.pods
    return [
        Figure("reflector", "list, CPU for each pod", 1e6 * list_cpu / options.pods, "µs"),
        Figure("reflector", "list, pods/s", options.pods / list_wall, "/s"),
        Figure("reflector", "memory for each pod", memory / options.pods, "bytes", 4 * 1024),
        Figure("reflector", "watch, CPU for each event", 1e6 * cpu / options.events, "µs"),
        Figure("reflector", "watch, events per CPU second", options.events / cpu, "/s", 20_000, ">="),
        Figure("reflector", "watch, events/s", options.events / wall, "/s"),
    ]


# -- start -----------------------------------------------------------------------------------------------------------


def start(options: Options) -> list[Figure]:
    """`stromboli run` from its start to its first binding: a hundredth of the pods waits, or all of them."""
    waiting = max(1, options.pods // 10_000)
    busy = (Gangs("running", options.pods // 100 - waiting, bound=100), Gangs("waiting", waiting))
    return [
        *_start(f"{100 * waiting:,} of {options.pods:,} pods wait", busy, 100 * waiting),
        *_start(f"all {options.pods:,} pods wait", (Gangs("waiting", options.pods // 100),), options.pods),
    ]


def _start(what: str, gangs: tuple[Gangs, ...], waiting: int) -> list[Figure]:
    with _server(World(5_000, gangs)) as api, _service(api) as (service, began):
        bindings = httpx.get(f"{api.url}/bench/bindings?wait=1", timeout=600).json()
        cpu, first = cpu_seconds(service.pid), peak_rss(service.pid) / _MIB
        wall = bindings[0] - began
        bindings = httpx.get(f"{api.url}/bench/bindings?wait={waiting}", timeout=600).json()
        all_cpu, peak = cpu_seconds(service.pid), peak_rss(service.pid) / _MIB
    return [
        Figure("start", f"{what}: CPU to the first binding", cpu, "s", 15),
        Figure("start", f"{what}: time to the first binding", wall, "s"),
        Figure("start", f"{what}: peak memory to the first binding", first, "MiB", 600),
        Figure("start", f"{what}: CPU to the last binding", all_cpu, "s"),
        Figure("start", f"{what}: time to the last binding", bindings[waiting - 1] - began, "s"),
        Figure("start", f"{what}: peak memory to the last binding", peak, "MiB"),
    ]


# -- binder ----------------------------------------------------------------------------------------------------------


def binder(options: Options) -> list[Figure]:
    """Bindings posted as fast as they can be, without and with TLS."""
    gangs = (Gangs("waiting", options.binds // 100),)
    with _server(World(1_000, gangs)) as api:
        plain = _run(_bind(api, options.binds))
    with _server(World(1_000, gangs), tls=True) as api:
        tls = _run(_bind(api, options.binds))
    return [
        figure
        for what, (cpu, wall), bar in (("plain", plain, 2_500), ("TLS", tls, 1_500))
        for figure in (
            Figure("binder", f"{what}, CPU for each binding", 1e6 * cpu / options.binds, "µs"),
            Figure("binder", f"{what}, bindings per CPU second", options.binds / cpu, "/s", bar, ">="),
            Figure("binder", f"{what}, bindings/s", options.binds / wall, "/s"),
        )
    ]


async def _bind(api: Running, count: int) -> tuple[float, float]:
    """CPU and wall seconds for so many bindings."""
    credentials = Credentials.load(api.kubeconfig)
    kube, settings = Kube(credentials), Settings()
    binding = Kube(credentials, settings.bind_connections)
    done, results = asyncio.Event(), 0

    class Results(Metrics):
        def bind_result(self, result: str, seconds: float) -> None:
            nonlocal results
            super().bind_result(result, seconds)
            assert result == "bound"
            results += 1
            if results == count:
                done.set()

    observer, state = Results(), ClusterState(reads=discover().reads)
    mirror = Mirror(state, lambda urgent: None, observer)
    for kind in ("Node", "Pod"):
        await Reflector(kube, _SOURCES[kind], mirror, observer).list("start")
    nodes = list(state.nodes.by_name)
    binds = [
        Bind(record.namespace, record.name, record.uid, nodes[row % len(nodes)])
        for row, record in enumerate(state.pods.records)
        if record is not None
    ]
    # Without a task that posts them, all Events but the first thousand are dropped, as in a service with many.
    events = Events(kube, observer, "stromboli", settings.events_per_second)
    binder = Binder(
        binding,
        mirror,
        events,
        Recall(kube, mirror),
        [Claims(binding, mirror, lambda: "", workers=settings.bind_connections, rate=1e9)],
        observer,
        settings.model_copy(update={"binds_per_second": 1e9}),
    )
    running = asyncio.create_task(binder.run())
    used, began = time.process_time(), time.monotonic()
    binder.submit(binds, state.snapshot())
    await done.wait()
    cpu, wall = time.process_time() - used, time.monotonic() - began
    running.cancel()
    await kube.close()
    await binding.close()
    return cpu, wall


# -- events under load -----------------------------------------------------------------------------------------------


_LOAD_RATE = 1_000
#: a tenth of the pods fits nowhere, so that a tenth of the changes begins a session
_LOADED = (Gangs("running", 180, bound=100), Gangs("large", 20, cpu="64"))


def load(options: Options) -> list[Figure]:
    """How late changes arrive while sessions run."""
    with _server(World(1_000, _LOADED)) as api:
        return _run(_load(api, options.seconds))


class _Sessions(Metrics):
    """Counts as the service does, and how long sessions took."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def session(self, snapshot: Any, result: Any, now: float, seconds: float) -> None:
        super().session(snapshot, result, now, seconds)
        if not self.seconds:
            gc.freeze()
        self.seconds.append(seconds)


async def _load(api: Running, seconds: int) -> list[Figure]:
    sessions = _Sessions()
    engine = Successive(Engine(DEFAULT_POLICY), Environment())
    service = LiveService(
        Settings(kubeconfig=api.kubeconfig), lambda policy: engine, sessions, reads=engine.engine.registry.reads
    )
    await service.start()
    delays: list[float] = []
    all_seen = asyncio.Event()

    def see(type: str, pod: Any) -> None:
        delays.append(time.monotonic() - float(pod.metadata.annotations[SENT]))
        if len(delays) == _LOAD_RATE * seconds:
            all_seen.set()

    service.mirror.listen("Pod", see)
    await asyncio.sleep(2)
    first, used, began = len(sessions.seconds), time.process_time(), time.monotonic()
    await _ask(api, "POST", f"changes?rate={_LOAD_RATE}&seconds={seconds}")
    await all_seen.wait()
    cpu, wall = time.process_time() - used, time.monotonic() - began
    took = sessions.seconds[first:]
    await service.stop()
    delays.sort()
    return [
        *(
            Figure("load", f"event to row, p{percent}", 1e3 * percentile(delays, percent), "ms", bar)
            for percent, bar in ((50, None), (99, 250), (99.9, None))
        ),
        Figure("load", "sessions/s", len(took) / wall, "/s"),
        Figure("load", "part of the time in sessions", 100 * sum(took) / wall, "%"),
        Figure("load", "CPU", 100 * cpu / wall, "%"),
    ]


# -- extender --------------------------------------------------------------------------------------------------------


#: kube-scheduler's own pods, which are decided and wait for it; and some of a job that runs in part
_ASKED = (
    *_LOADED,
    Gangs("decided", 1, scheduler="default-scheduler"),
    Gangs("crowded", 1, bound=1, min_member=1, cpu="64", scheduler="default-scheduler"),
)
_NODES = 5_000


#: the milliseconds that a question about all nodes by name may cost
_ANSWERED = {"filter": 2.0, "prioritize": 2.5}


def extender(options: Options) -> list[Figure]:
    """Questions one after the other, while nothing else happens and while sessions run all the time."""
    # Only changes begin a session, so that between them nothing happens.
    arguments = ("--extender-scheduler-name", "default-scheduler", "--schedule-period", "600")
    with _server(World(_NODES, _ASKED)) as api, _service(api, *arguments) as (service, _):
        service.wait_ready()
        time.sleep(3)
        asker = _Asker(service)
        names = [f"node-{number:05}" for number in range(_NODES)]
        out = []
        for what, verb, count in itertools.product(("decided", "crowded"), ("filter", "prioritize"), (500, _NODES)):
            pod = _pod(f"{what}-0000-5", f"{what}-0000")
            body = json.dumps({"Pod": pod, "NodeNames": names[:count]}).encode()
            cpu, bar = asker.cpu(verb, body, options.requests), _ANSWERED[verb] if count == _NODES else 0.8
            out.append(Figure("extender", f"/{verb} of {count} names, {what} pod: CPU", cpu, "ms", bar))
        full = json.dumps({"Pod": pod, "Nodes": {"items": [node(name) for name in names]}}).encode()
        for verb in ("filter", "prioritize"):
            cpu = asker.cpu(verb, full, max(1, options.requests // 25))
            size = f"{_NODES} nodes in full ({len(full) / 1e6:.0f} MB)"
            out.append(Figure("extender", f"/{verb} of {size}: CPU", cpu, "ms", 100))
        changes = f"{api.url}/bench/changes?rate={_LOAD_RATE}&seconds={options.seconds}"
        httpx.post(changes).raise_for_status()
        spent, began = service.metric("stromboli_session_seconds_sum"), time.monotonic()
        latencies_of = asker.during(options.seconds, pod, names)
        spent, wall = service.metric("stromboli_session_seconds_sum") - spent, time.monotonic() - began
        out.append(Figure("extender", "part of the time in sessions", 100 * spent / wall, "%"))
        for verb, latencies in latencies_of.items():
            for percent, limit in ((50, None), (99, 15)):
                what = f"/{verb} of {_NODES} names during sessions, p{percent}"
                out.append(Figure("extender", what, percentile(latencies, percent), "ms", limit))
    return out


class _Asker:
    """Asks as kube-scheduler does: one question at a time, over one connection."""

    def __init__(self, service: Service) -> None:
        self._pid = service.pid
        host, _, port = service.address.partition(":")
        self._http = http.client.HTTPConnection(host, int(port))

    def ask(self, verb: str, body: bytes) -> float:
        """Milliseconds until the answer was there."""
        began = time.perf_counter()
        self._http.request("POST", f"/{verb}", body)
        answer = self._http.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return 1e3 * (time.perf_counter() - began)

    def cpu(self, verb: str, body: bytes, count: int) -> float:
        """CPU milliseconds of the service for each question."""
        # A connection that was idle for long is closed by the service.
        self._http.close()
        self.ask(verb, body)
        used = cpu_seconds(self._pid)
        for _ in range(count):
            self.ask(verb, body)
        return 1e3 * (cpu_seconds(self._pid) - used) / count

    def during(self, seconds: float, pod: dict[str, Any], names: list[str]) -> dict[str, list[float]]:
        """Ascending milliseconds of each verb, asked by turns for so many seconds."""
        body = json.dumps({"Pod": pod, "NodeNames": names}).encode()
        out: dict[str, list[float]] = {"filter": [], "prioritize": []}
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for verb, latencies in out.items():
                latencies.append(self.ask(verb, body))
            time.sleep(0.005)
        return {verb: sorted(latencies) for verb, latencies in out.items()}


def _pod(name: str, gang: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {GROUP: gang}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "worker"}]},
    }


# -- what the parts share --------------------------------------------------------------------------------------------


@contextmanager
def _server(world: World, *, tls: bool = False) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as directory:
        scratch, authority = Path(directory), ""
        if tls:
            ca = trustme.CA()
            certificate, authority = str(scratch / "server.pem"), str(scratch / "ca.pem")
            ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
            ca.cert_pem.write_to_path(authority)
            world = World(world.nodes, world.gangs, certificate)
        with spawn(world, scratch, authority) as api:
            yield api


@contextmanager
def _service(api: Running, *args: str) -> Iterator[tuple[Service, float]]:
    """`stromboli run`, and when it was started."""
    began = time.monotonic()
    service = Service(api.kubeconfig, api.kubeconfig.with_name("stromboli.log"), *args)
    try:
        yield service, began
    finally:
        service.end()


def _run(measure: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner() as runner:
        return runner.run(measure)


async def _ask(api: Running, method: str, what: str) -> None:
    async with httpx.AsyncClient() as client:
        (await client.request(method, f"{api.url}/bench/{what}")).raise_for_status()


def _rss() -> int:
    """The resident set of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


PARTS: dict[str, Callable[[Options], list[Figure]]] = {
    "reflector": reflector,
    "start": start,
    "binder": binder,
    "load": load,
    "extender": extender,
}


def measure(part: str, options: Options) -> list[Figure]:
    """Run a part in a process of its own: what one leaves in memory is no business of the next."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(PARTS[part], options).result()


def table(figures: Iterable[Figure]) -> Table:
    """The figures, the median of those that were repeated."""
    out = Table(title=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    for column in ("part", "measured", "median", "from", "to", "", "should be"):
        out.add_column(column, justify="right" if column in ("median", "from", "to") else "left")
    grouped: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        grouped.setdefault((figure.part, figure.what), []).append(figure)
    for (part, what), group in grouped.items():
        values = [figure.value for figure in group]
        middle = Figure(part, what, statistics.median(values), group[0].unit, group[0].bar, group[0].good)
        bar = "" if middle.bar is None else f"{middle.good} {middle.bar:,g}{'' if middle.met else ', missed'}"
        numbers = (f"{value:,.{2 if value < 100 else 0}f}" for value in (middle.value, min(values), max(values)))
        out.add_row(part, what, *numbers, middle.unit, bar)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts: {', '.join(PARTS)}")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--pods", type=int, default=100_000, help="of the parts reflector and start")
    parser.add_argument("--events", type=int, default=100_000, help="of the part reflector")
    parser.add_argument("--binds", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60, help="of the parts load and extender")
    parser.add_argument("--requests", type=int, default=500, help="to the extender, of each kind")
    arguments = parser.parse_args()
    options = Options(arguments.pods, arguments.events, arguments.binds, arguments.seconds, arguments.requests)
    figures = []
    for part in arguments.only.split(","):
        for _ in range(arguments.repeat):
            for figure in measure(part, options):
                figures.append(figure)
                print(f"{part}: {figure.what}: {figure.value:,.2f} {figure.unit}", file=sys.stderr, flush=True)
    Console(stderr=True, width=150).print(table(figures))
    print(json.dumps([asdict(figure) for figure in figures], indent=2))


if __name__ == "__main__":
    main()
