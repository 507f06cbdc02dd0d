"""What becomes of the pods of a namespace, followed from outside the scheduler."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
from msgspec import Struct

from tests.controlplane.cluster import Cluster

GROUP = "scheduling.k8s.io/group-name"


class _Metadata(Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Spec(Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Pod(Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _PodList(Struct):
    metadata: _Metadata
    items: list[_Pod]


class _Event(Struct):
    type: str
    object: msgspec.Raw


class PodWatch:
    """A watch in a thread, begun anew from a list whenever it breaks. Times are in seconds, monotonic."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition()
        self._stopping = False
        self._listed = False
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)
        self.gang_of: dict[str, str] = {}
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.node: dict[str, str] = {}
        #: pods that were seen on one node and then on another, or on none
        self.moved: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(lambda: self._listed, 30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread ends when the stream next says something, or times out.
        self._stopping = True

    def wait(self, holds: Callable[[], bool], timeout: float = 120) -> None:
        """Return as soon as `holds`, asked after every event; AssertionError after `timeout` seconds."""
        with self._changed:
            if self._changed.wait_for(holds, timeout):
                return
        raise AssertionError(f"not so after {timeout} s: {dict(self.gangs())}, with a node now: {self._with_a_node()}")

    def _with_a_node(self) -> int:
        """How many pods have a node as a list has them, whatever the watch told."""
        with self._cluster.client(timeout=30) as api:
            pods = msgspec.json.decode(api.get(self._path).raise_for_status().content, type=_PodList)
        return sum(bool(pod.spec.node_name) for pod in pods.items)

    def wait_bound(self, pods: int, timeout: float = 120) -> None:
        """Return when so many pods have a node."""
        self.wait(lambda: len(self.bound) >= pods, timeout)

    def gangs(self) -> Counter[str]:
        """The number of bound pods by gang, 0 for those that have none."""
        counts = Counter(dict.fromkeys(self.gang_of.values(), 0))
        counts.update(self.gang_of[pod] for pod in self.bound)
        return counts

    def history(self) -> dict[str, list[tuple[float, int]]]:
        """For each gang the times at which one more of its pods was bound, with their number then."""
        out: dict[str, list[tuple[float, int]]] = {gang: [] for gang in self.gang_of.values()}
        for pod, when in sorted(self.bound.items(), key=lambda item: item[1]):
            steps = out[self.gang_of[pod]]
            steps.append((when, len(steps) + 1))
        return out

    def latencies(self, since: float | None = None) -> list[float]:
        """For each whole gang, in ascending order: the time until its last pod was bound.

        It counts from its last pod's creation, or from `since`.
        """
        out = []
        for gang in set(self.gang_of.values()):
            pods = [pod for pod, name in self.gang_of.items() if name == gang]
            if all(pod in self.bound for pod in pods):
                start = max(self.created[pod] for pod in pods) if since is None else since
                out.append(max(self.bound[pod] for pod in pods) - start)
        return sorted(out)

    def _follow(self) -> None:
        while not self._stopping:
            try:
                with self._cluster.client(timeout=5) as api:
                    self._stream(api, self._list(api))
            except (httpx.HTTPError, msgspec.MsgspecError):
                time.sleep(0.1)

    def _list(self, api: httpx.Client) -> str:
        pods = msgspec.json.decode(api.get(self._path).raise_for_status().content, type=_PodList)
        for pod in pods.items:
            self._see(pod)
        with self._changed:
            self._listed = True
            self._changed.notify_all()
        return pods.metadata.resource_version

    def _stream(self, api: httpx.Client, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
        decoder, pods = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Pod)
        with api.stream("GET", self._path, params=query, timeout=httpx.Timeout(5, read=None)) as answer:
            for line in answer.raise_for_status().iter_lines():
                if self._stopping:
                    return
                event = decoder.decode(line)
                if event.type == "ERROR":
                    return
                if event.type != "DELETED":
                    self._see(pods.decode(event.object))

    def _see(self, pod: _Pod) -> None:
        now, name, node = time.monotonic(), pod.metadata.name, pod.spec.node_name
        with self._changed:
            self.created.setdefault(name, now)
            self.gang_of[name] = pod.metadata.annotations.get(GROUP, "")
            before = self.node.get(name, "")
            if before and before != node:
                self.moved.append(name)
            if node and not before:
                self.bound[name] = now
            self.node[name] = node or before
            self._changed.notify_all()


class Since:
    """A watch in a thread: the version of the cluster in which something was first true of each object of a list."""

    def __init__(self, cluster: Cluster, path: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        self._cluster = cluster
        self._path = path
        self._holds = holds
        self._stopping = False
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="since", daemon=True)
        #: resourceVersion by name
        self.since: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listed.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread ends when the stream next says something, or times out.
        self._stopping = True

    def _follow(self) -> None:
        version = ""
        while not self._stopping:
            try:
                with self._cluster.client(timeout=30) as api:
                    version = version or self._list(api)
                    version = self._stream(api, version)
            except httpx.HTTPError:
                time.sleep(0.1)

    def _list(self, api: httpx.Client) -> str:
        listed = api.get(self._path).raise_for_status().json()
        for each in listed["items"]:
            self._see(each)
        self._listed.set()
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _stream(self, api: httpx.Client, version: str) -> str:
        """Follow until the server ends it; returns where to go on, so that nothing is missed."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
        with api.stream("GET", self._path, params=query, timeout=httpx.Timeout(5, read=None)) as answer:
            for line in answer.raise_for_status().iter_lines():
                found = msgspec.json.decode(line)["object"]
                if self._stopping or found["kind"] == "Status":
                    return version
                version = found["metadata"]["resourceVersion"]
                self._see(found)
        return version

    def _see(self, found: dict[str, Any]) -> None:
        if self._holds(found):
            self.since.setdefault(found["metadata"]["name"], int(found["metadata"]["resourceVersion"]))


def percentile(values: list[float], percent: float) -> float:
    """The smallest of the ascending values that so many percent of them do not exceed."""
    return values[max(0, ceil(len(values) * percent / 100) - 1)]
