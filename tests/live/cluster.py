"""The API server of these tests, in a thread of its own, behind a proxy that can be told to misbehave."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from stromboli.devserver import DevServer, Options, write_kubeconfig
from stromboli.devserver.handlers import Handler

SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
Object = dict[str, Any]


@dataclass(slots=True)
class Fault:
    """What happens to the next requests that match."""

    method: str
    #: part of the path and query
    where: str
    #: answered instead of the API server
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    #: the whole answer, instead of one from the API server or a Status
    content: bytes | None = None
    #: the request is carried out but its answer is lost
    lost: bool = False
    #: the request waits until this is set
    until: asyncio.Event | None = None
    #: it is carried out first, and the answer waits
    late: bool = False
    times: int = 1
    #: part of the path and query that a request must not have
    unless: str = ""

    def matches(self, request: web.BaseRequest) -> bool:
        path = request.raw_path
        return self.method == request.method and self.where in path and not (self.unless and self.unless in path)


class Proxy:
    """Another port of the API server, whose requests are recorded and may fail."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.faults: list[Fault] = []
        #: (method, path, status) of all answers; a watch counts as answered when it begins
        self.answers: list[tuple[str, str, int]] = []
        #: (path and query, when it came on the monotonic clock) of all requests
        self.requests: list[tuple[str, float]] = []
        self.port = 0
        self._runner: web.ServerRunner | None = None

    async def accept(self) -> None:
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.01
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def cut(self) -> None:
        """Break all connections, and take no new ones."""
        assert self._runner is not None
        await self._runner.cleanup()

    def _fault(self, request: web.BaseRequest) -> Fault | None:
        for fault in self.faults:
            if fault.matches(request):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.raw_path, time.monotonic()))
        fault = self._fault(request)
        if fault is not None and fault.until is not None and not fault.late:
            await fault.until.wait()
        if fault is not None and fault.content is not None:
            self.answers.append((request.method, request.path, fault.status))
            return web.Response(body=fault.content, status=fault.status, headers=fault.headers)
        if fault is not None and fault.status:
            self.answers.append((request.method, request.path, fault.status))
            status = {"kind": "Status", "code": fault.status, "reason": "Fault", "message": "told to"}
            return web.json_response(status, status=fault.status, headers=fault.headers)
        if "watch" in request.query:
            self.answers.append((request.method, request.path, 200))
            return await self._handler(request)
        response = await self._handler(request)
        self.answers.append((request.method, request.path, response.status))
        if fault is not None and fault.lost:
            assert request.transport is not None
            request.transport.close()
        if fault is not None and fault.until is not None and fault.late:
            await fault.until.wait()
        return response


class Connection:
    """Requests to a server on loopback, one at a time; those of httpx cost more than most of what tests ask for."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._turn = threading.Lock()

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> bytes:
        """What is answered; fails when that is a refusal."""
        with self._turn:
            sent = None if body is None else json.dumps(body)
            self._connection.request(method, path, sent, {"Content-Type": kind})
            response = self._connection.getresponse()
            content = response.read()
        assert response.status < 300, content.decode()
        return content

    def close(self) -> None:
        self._connection.close()


@cache
def _read(path: Path) -> bytes:
    """The manifest of a file, as JSON."""
    return msgspec.json.encode(yaml.safe_load(path.read_text()))


class Cluster:
    """A cluster to be seeded, disturbed and looked at from a test."""

    def __init__(self, options: Options, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-server", daemon=True)
        self._thread.start()
        self.server = DevServer(options)
        self._run(self.server.start())
        self.proxy = Proxy(Handler(self.server.api, bookmark_seconds=options.bookmark_seconds))
        self._run(self.proxy.accept())
        write_kubeconfig(kubeconfig, f"http://127.0.0.1:{self.proxy.port}")
        self._http = Connection(self.server.url)

    def stop(self) -> None:
        self._http.close()
        self._run(self.proxy.cut())
        self._run(self.server.stop())
        self._run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(60)

    # -- misbehaving -----------------------------------------------------------------------------------------------

    def fail(self, method: str, where: str, status: int, times: int = 1, **headers: str) -> None:
        """Refuse the next requests that match."""
        fault = Fault(method, where, status, {k.replace("_", "-"): v for k, v in headers.items()}, times=times)
        self.proxy.faults.append(fault)

    def answer(self, where: str, content: bytes, status: int = 200, times: int = 1, unless: str = "") -> None:
        """Answer the next reads that match with this, whatever it is."""
        self.proxy.faults.append(Fault("GET", where, status, content=content, times=times, unless=unless))

    def lose(self, method: str, where: str) -> None:
        """Carry out the next request that matches, and lose the answer."""
        self.proxy.faults.append(Fault(method, where, lost=True))

    @contextmanager
    def held(self, method: str, where: str, times: int = 1, status: int = 0, *, late: bool = False) -> Iterator[None]:
        """Keep matching requests waiting as long as the context lasts, and then refuse them if there is a status.

        With `late` they are carried out at once, and their answers wait.
        """
        until = asyncio.Event()
        fault = Fault(method, where, status, until=until, late=late, times=times)
        self.proxy.faults.append(fault)
        try:
            yield
        finally:
            if fault in self.proxy.faults:
                self.proxy.faults.remove(fault)
            self._loop.call_soon_threadsafe(until.set)

    def disconnect(self) -> None:
        """Break all connections of the service; it gets no new ones."""
        self._run(self.proxy.cut())

    def reconnect(self) -> None:
        """Take connections again."""
        self._run(self.proxy.accept())

    def count(self, method: str, ending: str, *statuses: int) -> int:
        """How many requests of the service were answered so."""
        return sum(
            method == answered and path.endswith(ending) and (not statuses or status in statuses)
            for answered, path, status in self.proxy.answers
        )

    # -- objects ---------------------------------------------------------------------------------------------------

    def create(self, path: str, manifest: Object) -> Object:
        return self._ask("POST", path, manifest)

    def get(self, path: str) -> Object:
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        answered: Object = msgspec.json.decode(self._http.ask(method, path, body, kind))
        return answered

    def raw(self, path: str) -> bytes:
        """An answer as it comes."""
        return self._http.ask("GET", path)

    def items(self, path: str) -> list[Object]:
        found: list[Object] = self.get(path)["items"]
        return found

    def patch(self, path: str, patch: Object) -> Object:
        return self._ask("PATCH", path, patch, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, {"gracePeriodSeconds": 0})

    def define(self, *paths: Path, change: Callable[[Object], None] = lambda definition: None) -> None:
        """Create custom resource definitions from files."""
        definitions: list[Object] = [msgspec.json.decode(_read(path)) for path in paths]
        for definition in definitions:
            change(definition)
        self._run(self._load(definitions))

    async def _load(self, manifests: list[Object]) -> None:
        self.server.api.load(manifests)

    def node(self, name: str, cpu: str = "8") -> Object:
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        return self.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    def pod(self, name: str, group: str = "", *, cpu: str = "1", **changes: Any) -> Object:
        metadata: Object = {"name": name}
        if group:
            metadata["annotations"] = {"scheduling.k8s.io/group-name": group}
        metadata |= changes.pop("metadata", {})
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "stromboli", "containers": [container], **changes}
        return self.create("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})

    def gang(self, name: str, pods: int, *, min_member: int | None = None, cpu: str = "1") -> None:
        self.group(name, pods if min_member is None else min_member)
        for number in range(pods):
            self.pod(f"{name}-{number}", name, cpu=cpu)

    def group(self, name: str, min_member: int, queue: str = "default", **spec: Any) -> Object:
        manifest = {"metadata": {"name": name}, "spec": {"minMember": min_member, "queue": queue, **spec}}
        return self.create(
            f"{SCHEDULING}/namespaces/default/podgroups",
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **manifest},
        )

    def pods(self) -> dict[str, str]:
        """The node of each pod, empty when it has none."""
        pods = self.items("/api/v1/pods")
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    def all_bound(self, count: int) -> bool:
        """Whether there are so many pods, and all have a node."""
        pods = self.pods()
        return len(pods) == count and all(pods.values())

    def reasons(self) -> list[str]:
        """The reasons of all Events."""
        return [event["reason"] for event in self.items("/apis/events.k8s.io/v1/events")]


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
