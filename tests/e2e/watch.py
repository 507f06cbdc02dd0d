"""What becomes of the pods of a namespace, followed from outside the scheduler."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from tests.controlplane.cluster import Cluster
from tests.e2e.follower import Follower

GROUP = "scheduling.k8s.io/group-name"


class _Metadata(Struct):
    name: str = ""
    annotations: dict[str, str] = {}


class _Spec(Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Pod(Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _PodList(Struct):
    items: list[_Pod]


_POD = msgspec.json.Decoder(_Pod)


class PodWatch(Follower):
    """Pods by name, with when each was first seen and first had a node. Times are in seconds, monotonic."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, f"/api/v1/namespaces/{namespace}/pods")
        self._changed = threading.Condition()
        self.gang_of: dict[str, str] = {}
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.node: dict[str, str] = {}
        #: pods that were seen on one node and then on another, or on none
        self.moved: list[str] = []

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

    def see(self, api: httpx.Client, found: msgspec.Raw) -> None:
        pod = _POD.decode(found)
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


class Since(Follower):
    """The version of the cluster in which something was first true of each object of a list."""

    def __init__(self, cluster: Cluster, path: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__(cluster, path)
        self._holds = holds
        #: resourceVersion by name
        self.since: dict[str, int] = {}

    def see(self, api: httpx.Client, found: msgspec.Raw) -> None:
        decoded = msgspec.json.decode(found)
        if self._holds(decoded):
            self.since.setdefault(decoded["metadata"]["name"], int(decoded["metadata"]["resourceVersion"]))


def percentile(values: list[float], percent: float) -> float:
    """The smallest of the ascending values that so many percent of them do not exceed."""
    return values[max(0, ceil(len(values) * percent / 100) - 1)]
