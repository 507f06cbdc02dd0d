"""A situation's part of a cluster: its namespace, its queue and its nodes; the test plays the kubelet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.controlplane.cluster import Cluster
from tests.e2e.watch import GROUP
from tests.e2e.world import CORE, SCHEDULING, Object, World, pod

POOL = "pool"
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


class Site(World):
    """A namespace, a queue and nodes by one name, beside others in one cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.name = name

    def put(self, path: str, manifest: Mapping[str, Any]) -> Object:
        """Create an object of the namespace; `path` is that of its group and version, and its plural."""
        root, _, plural = path.rpartition("/")
        return self.create(f"{root}/namespaces/{self.namespace}/{plural}", manifest)

    def node(self, name: str = "n", cpu: str = "8", ready: str = "True", **more: Any) -> str:
        """A node of the situation; `labels`, `taints`, `unschedulable` and further resources (`offers`)."""
        name = f"{self.name}-{name}"
        labels = {"kubernetes.io/hostname": name, POOL: self.name, **more.pop("labels", {})}
        amounts = {"cpu": cpu, "memory": "256Gi", "pods": "110", **more.pop("offers", {})}
        conditions = [{"type": "Ready", "status": ready, "reason": "Tested"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
        self.create(f"{CORE}/nodes", {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status})
        return name

    def train(
        self, pods: int = 1, least: int | None = None, *, group: Mapping[str, Any] | None = None, **each: Any
    ) -> None:
        """The job that is asked about."""
        self.job("train", pods, least, group=group, **each)

    def job(
        self, name: str, pods: int, least: int | None = None, *, group: Mapping[str, Any] | None = None, **each: Any
    ) -> None:
        """A job of pods that want nodes of the situation."""
        spec = {"queue": self.name, **(group or {})}
        self.group(name, pods if least is None else least, **spec)
        self.pods([self.member(f"{name}-{number}", name, **each) for number in range(pods)])

    def member(
        self, name: str, group: str, *, pool: str | None = None, labels: Mapping[str, str] | None = None, **more: Any
    ) -> Object:
        """A pod of a job on the situation's nodes; `asks` are its requests beside cpu, `ports` those of its node."""
        selector = {POOL: self.name if pool is None else pool} | more.pop("nodeSelector", {})
        asks, ports = more.pop("asks", {}), more.pop("ports", None)
        made = pod(name, group, nodeSelector=selector, **more)
        made["metadata"]["labels"] = dict(labels or {})
        container = made["spec"]["containers"][0]
        container["resources"] = {"requests": container["resources"]["requests"] | asks, "limits": dict(asks)}
        if ports is not None:
            container["ports"] = ports
        return made

    def runs(self, name: str, pods: int, on: str, least: int | None = None, **each: Any) -> None:
        """A job whose pods run on a node."""
        group = each.pop("group", None)
        self.group(name, pods if least is None else least, **{"queue": self.name, **(group or {})})
        for number in range(pods):
            self.place(self.member(f"{name}-{number}", name, **each), on)

    def place(self, manifest: Object, on: str, **status: Any) -> None:
        """A pod that has a node; it runs unless a status says otherwise."""
        self.pods([manifest | {"spec": {**manifest["spec"], "nodeName": on}}])
        self.say(manifest["metadata"]["name"], **(status or {"phase": "Running"}))

    def say(self, name: str, **status: Any) -> None:
        """What a kubelet says of a pod."""
        path = f"{CORE}/namespaces/{self.namespace}/pods/{name}/status"
        self.api.patch(path, json={"status": status}, headers=STRATEGIC).raise_for_status()

    def status(self, path: str, status: Mapping[str, Any]) -> None:
        """The status of an object that no controller keeps here."""
        self.api.patch(f"{path}/status", json={"status": status}, headers=MERGE).raise_for_status()

    def wait_a_second(self) -> None:
        """What is created next is younger, as far as creation timestamps tell."""
        time.sleep(1.1)

    def close(self, queue: str) -> None:
        """Close a queue."""
        self.status(f"{SCHEDULING}/queues/{queue}", {"state": "Closed"})


@dataclass(frozen=True)
class Situation:
    """What is made, what is asked, and what all answers have to name."""

    make: Callable[[Site], None]
    #: in one word, and who can change it
    reason: str
    who: str
    #: causes, numbers and names; `{}` is the name of the site
    says: tuple[str, ...]
    #: parts of what would help
    helps: tuple[str, ...] = ()
    #: what none may advise
    silly: tuple[str, ...] = ()


__all__ = ["GROUP", "MERGE", "POOL", "Site", "Situation"]
