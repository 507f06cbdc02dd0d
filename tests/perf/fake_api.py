"""An API server to measure against: it renders what it knows from templates, checks nothing, and costs little.

    python -m tests.perf.fake_api '{"nodes": 10, "gangs": [{"name": "train", "pods": 8}]}'

It serves lists in pages, watches, bindings and statuses of one made-up cluster, and says yes to whatever else is
written. `/bench/` is for the one that measures. Its URL goes to standard output, and it ends with its standard input.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from stromboli.api.crds import SCHEDULING, TOPOLOGY
from stromboli.devserver.server import serving

GROUP = "scheduling.k8s.io/group-name"
#: annotation of changed pods: when the change was written, in seconds of this machine's monotonic clock
SENT = "bench/sent"

_CREATED = "2025-01-01T00:00:00Z"
#: changes are written in rounds of this many seconds
_ROUND = 0.01
_FLOOD = 500


@dataclass(frozen=True, slots=True)
class Gangs:
    """Equal PodGroups, named NAME-0000 and so on, in queue `default`."""

    name: str
    count: int = 1
    #: of each gang
    pods: int = 100
    bound: int = 0
    min_member: int = 0
    #: of each pod
    cpu: str = "1"
    scheduler: str = "stromboli"


@dataclass(frozen=True, slots=True)
class World:
    """A cluster: nodes of 32 CPUs, 256 Gi and 110 pods, and what runs or waits on them."""

    nodes: int
    gangs: Sequence[Gangs]
    #: certificate and key in one file; without it there is no TLS
    certificate: str = ""


class Kind:
    """One collection. Its version is the number of its changes, which are all kept, so no watch comes too late."""

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        self._watchers: set[asyncio.Event] = set()

    @property
    def version(self) -> int:
        """From 1, since 0 means any."""
        return 1 + len(self.changes)

    def items(self) -> Sequence[Any]:
        """What `render` makes objects of."""
        return ()

    def render(self, item: Any) -> bytes:
        raise NotImplementedError

    def changed(self, item: Any) -> None:
        """Tell all watches."""
        self.changes.append(b'{"type":"MODIFIED","object":%b}\n' % self.render(item))
        for watcher in self._watchers:
            watcher.set()

    def page(self, first: int, limit: int) -> bytes:
        """So many objects from the given one."""
        items = self.items()
        end = min(len(items), first + limit)
        more = str(end) if end < len(items) else ""
        meta = json.dumps({"resourceVersion": str(self.version), "continue": more}).encode()
        return b'{"metadata":%b,"items":[%b]}' % (meta, b",".join(map(self.render, items[first:end])))

    async def watch(self, version: int) -> AsyncGenerator[bytes, None]:
        """All changes since a version, several at a time."""
        woken = asyncio.Event()
        self._watchers.add(woken)
        try:
            while True:
                woken.clear()
                fresh = self.changes[version - 1 :]
                version += len(fresh)
                if fresh:
                    yield b"".join(fresh)
                else:
                    await woken.wait()
        finally:
            self._watchers.discard(woken)


class Nodes(Kind):
    def __init__(self, count: int) -> None:
        super().__init__()
        self._names = [f"node-{number:05}" for number in range(count)]

    def items(self) -> Sequence[str]:
        return self._names

    def render(self, item: str) -> bytes:
        return json.dumps(node(item)).encode()


@dataclass(slots=True)
class Pod:
    #: what the template wants
    values: dict[bytes, bytes]
    template: bytes


class Pods(Kind):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._pods: dict[str, Pod] = {}
        for gangs in world.gangs:
            template = _template(gangs)
            for gang in _names(gangs):
                for number in range(gangs.pods):
                    name = f"{gang}-{number}"
                    values = {b"name": name.encode(), b"gang": gang.encode(), b"version": b"1", b"sent": b"0"}
                    bound = number < gangs.bound
                    node = b"node-%05d" % (len(self._pods) % world.nodes) if bound else b""
                    values |= {b"node": node, b"phase": b"Running" if bound else b"Pending"}
                    self._pods[name] = Pod(values, template)
        self._list = list(self._pods.values())
        self._next = 0
        #: when each binding was accepted
        self.bindings: list[float] = []

    def items(self) -> Sequence[Pod]:
        return self._list

    def render(self, item: Pod) -> bytes:
        return item.template % item.values

    def named(self, name: str) -> Pod:
        return self._pods[name]

    def bind(self, name: str, body: bytes) -> None:
        self.bindings.append(time.monotonic())
        pod = self._pods[name]
        pod.values[b"node"] = msgspec.json.decode(body)["target"]["name"].encode()
        self._change(pod)

    def change(self, count: int) -> None:
        """Change so many pods, from all parts of the list."""
        for _ in range(count):
            # A prime, so that all come in turn.
            self._next = (self._next + 7919) % len(self._list)
            self._change(self._list[self._next])

    def _change(self, pod: Pod) -> None:
        pod.values[b"version"] = b"%d" % (self.version + 1)
        pod.values[b"sent"] = b"%.6f" % time.monotonic()
        self.changed(pod)


class Manifests(Kind):
    """Of what there is little: kept as it is."""

    def __init__(self, manifests: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__()
        self.by_name = {manifest["metadata"]["name"]: manifest for manifest in manifests}

    def items(self) -> Sequence[dict[str, Any]]:
        return list(self.by_name.values())

    def render(self, item: dict[str, Any]) -> bytes:
        return msgspec.json.encode(item)

    def patch(self, name: str, status: Mapping[str, Any]) -> bytes:
        """Merge a status, and return the object."""
        manifest = self.by_name[name]
        manifest["status"] = manifest.get("status", {}) | status
        manifest["metadata"]["resourceVersion"] = str(self.version + 1)
        self.changed(manifest)
        return self.render(manifest)


class FakeApi:
    """The server. Pods, nodes, PodGroups and queues are there; of all other kinds there are no objects."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pods = Pods(world)
        groups = [pod_group(gangs, name) for gangs in world.gangs for name in _names(gangs)]
        self._kinds: dict[str, Kind] = {
            "/api/v1/pods": self._pods,
            "/api/v1/nodes": Nodes(world.nodes),
            f"/apis/{SCHEDULING}/podgroups": Manifests(groups),
            f"/apis/{SCHEDULING}/queues": Manifests([queue("root"), queue("default")]),
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._bound = asyncio.Event()

    async def start(self) -> str:
        """Serve on a free port of 127.0.0.1; returns the URL."""
        tls = None
        if self._world.certificate:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(self._world.certificate)
        runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith("/bench/"):
            return await self._bench(request)
        if request.method != "GET":
            return await self._write(request)
        document = DISCOVERY.get(path)
        if document is not None:
            return web.json_response(document)
        if path.startswith("/api/v1/namespaces/default/pods/"):
            return _json(self._pods.render(self._pods.named(path.rpartition("/")[2])))
        kind, query = self._kinds.setdefault(path, Manifests()), request.query
        if "watch" in query:
            return await self._watch(request, kind)
        return _json(kind.page(int(query.get("continue") or 0), int(query.get("limit") or 1_000_000)))

    async def _watch(self, request: web.BaseRequest, kind: Kind) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with suppress(TimeoutError):
            async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 300)):
                version = int(request.query.get("resourceVersion") or kind.version)
                async with aclosing(kind.watch(version)) as watch:
                    async for lines in watch:
                        await response.write(lines)
        return response

    async def _write(self, request: web.BaseRequest) -> web.StreamResponse:
        body, parts = await request.read(), request.path.split("/")
        if parts[-1] == "binding":
            self._pods.bind(parts[-2], body)
            self._bound.set()
            return _json(b'{"kind":"Status","status":"Success"}', 201)
        if parts[-1] == "status" and parts[1] == "apis":
            kind = self._kinds["/".join((*parts[:4], parts[-3]))]
            assert isinstance(kind, Manifests)
            return _json(kind.patch(parts[-2], msgspec.json.decode(body)["status"]))
        if parts[-1] == "queues":
            return _json(b'{"kind":"Status","code":409,"reason":"AlreadyExists"}', 409)
        return _json(b'{"metadata":{"name":"any","resourceVersion":"1"}}', 201)

    async def _bench(self, request: web.BaseRequest) -> web.StreamResponse:
        """`bindings?wait=` answers when so many were accepted, `changes?rate=&seconds=` or `?count=` begins to
        change pods."""
        query = request.query
        if request.path == "/bench/bindings":
            while len(self._pods.bindings) < int(query.get("wait") or 0):
                self._bound.clear()
                await self._bound.wait()
            return web.json_response(self._pods.bindings)
        changes = (
            self._flood(int(query["count"]))
            if "count" in query
            else self._stream(float(query["rate"]), float(query["seconds"]))
        )
        task = asyncio.create_task(changes)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.json_response({})

    async def _flood(self, count: int) -> None:
        for first in range(0, count, _FLOOD):
            self._pods.change(min(_FLOOD, count - first))
            await asyncio.sleep(0)

    async def _stream(self, rate: float, seconds: float) -> None:
        began, done = time.monotonic(), 0
        while done < rate * seconds:
            due = int(rate * min(seconds, time.monotonic() - began)) - done
            self._pods.change(due)
            done += due
            await asyncio.sleep(_ROUND)


# -- objects ---------------------------------------------------------------------------------------------------------


def _names(gangs: Gangs) -> list[str]:
    return [f"{gangs.name}-{number:04}" for number in range(gangs.count)]


def pod_group(gangs: Gangs, name: str) -> dict[str, Any]:
    minimum = gangs.min_member or gangs.pods
    phase = "Running" if gangs.bound >= minimum else "Inqueue"
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": _CREATED,
        },
        "spec": {"minMember": minimum, "queue": "default"},
        "status": {"phase": phase, "running": gangs.bound},
    }


def queue(name: str) -> dict[str, Any]:
    return {
        "apiVersion": SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": _CREATED},
        "spec": {"weight": 1},
        "status": {"state": "Open"},
    }


def node(name: str) -> dict[str, Any]:
    """A node as a kubelet keeps it, some 3 KB of JSON."""
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    owned = [_managed(manager, 12) for manager in ("kube-controller-manager", "kubelet")]
    conditions = [
        {
            "type": condition,
            "status": "True" if condition == "Ready" else "False",
            "lastHeartbeatTime": _CREATED,
            "lastTransitionTime": _CREATED,
            "reason": f"Kubelet{condition}",
            "message": "kubelet has said so, in about as many words as this",
        }
        for condition in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {"names": [f"registry.example.com/team/image-{number}:1.{number}"], "sizeBytes": 100_000_000 + number}
        for number in range(8)
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": _CREATED,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
            "managedFields": owned,
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"fake://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images},
    }


def _template(gangs: Gangs) -> bytes:
    """A pod as a kubelet keeps it, some 3.8 KB of JSON, with `%(key)b` where pods of a kind differ."""
    requests = {"cpu": gangs.cpu, "memory": "2Gi"}
    conditions = [
        {"type": condition, "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED}
        for condition in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    container = {
        "name": "worker",
        "image": "registry.example.com/team/train:1.2.3",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": [{"name": f"SETTING_{number}", "value": f"value of setting {number}"} for number in range(8)],
        "resources": {"requests": requests, "limits": requests},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    manifest = {
        "metadata": {
            "name": "%(name)b",
            "namespace": "default",
            "uid": "uid-%(name)b",
            "resourceVersion": "%(version)b",
            "creationTimestamp": _CREATED,
            # A pod that looks the same to the scheduler begins no session.
            "labels": {"app": "train", "team": "research", "job-name": "%(gang)b", "step": "%(version)b"},
            "annotations": {GROUP: "%(gang)b", SENT: "%(sent)b"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "%(gang)b", "uid": "uid-%(gang)b", "controller": True}
            ],
            "managedFields": [_managed("kube-controller-manager", 18), _managed("kubelet", 14)],
        },
        "spec": {
            "schedulerName": gangs.scheduler,
            "nodeName": "%(node)b",
            "containers": [container],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {}}]}}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "priority": 0,
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {"phase": "%(phase)b", "startTime": _CREATED, "conditions": conditions, "qosClass": "Guaranteed"},
    }
    return msgspec.json.encode(manifest)


def _managed(manager: str, fields: int) -> dict[str, Any]:
    """What the API server keeps about who owns which field; it is not read here."""
    owned: dict[str, Any] = {
        f'f:field-{number}.{{"type":"Kind"}}': {".": {}, "f:value": {}} for number in range(fields)
    }
    return {"manager": manager, "operation": "Update", "time": _CREATED, "fieldsType": "FieldsV1", "fieldsV1": owned}


def _resources(version: str, kinds: Mapping[str, tuple[str, bool]]) -> dict[str, Any]:
    """Kinds by their plural, and whether they are namespaced."""
    resources = []
    for plural, (kind, namespaced) in kinds.items():
        entry = {"kind": kind, "singularName": "", "namespaced": namespaced, "verbs": ["list", "watch", "patch"]}
        resources += [{**entry, "name": plural}, {**entry, "name": f"{plural}/status"}]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    entry = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


#: what kopf looks for, beside the kinds that it watches
_VERSIONS: dict[str, dict[str, tuple[str, bool]]] = {
    "v1": {"namespaces": ("Namespace", False), "events": ("Event", True)},
    "apiextensions.k8s.io/v1": {"customresourcedefinitions": ("CustomResourceDefinition", False)},
    SCHEDULING: {"queues": ("Queue", False), "podgroups": ("PodGroup", True)},
    TOPOLOGY: {"hypernodes": ("HyperNode", False)},
}
DISCOVERY: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "36"},
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": [_group(version) for version in _VERSIONS if "/" in version]},
    **{
        f"/{'apis' if '/' in version else 'api'}/{version}": _resources(version, kinds)
        for version, kinds in _VERSIONS.items()
    },
}


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


# -- as a process ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """A server in another process."""

    url: str
    kubeconfig: Path


@contextmanager
def spawn(world: World, scratch: Path, authority: str = "") -> Iterator[Running]:
    """Run a server, and write a kubeconfig for it that trusts the authority in the given file."""
    command = [sys.executable, "-m", "tests.perf.fake_api", json.dumps(dataclasses.asdict(world))]
    with serving(command) as url:
        server = {"server": url, **({"certificate-authority": authority} if authority else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": server}],
            "users": [{"name": "fake", "user": {"token": "any"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        kubeconfig = scratch / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        yield Running(url, kubeconfig)


async def _serve(world: World) -> None:
    print(await FakeApi(world).start(), flush=True)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        runner.run(_serve(msgspec.json.decode(sys.argv[1], type=World)))
