"""A cluster autoscaler that does as Kubernetes' own does with Unschedulable pods and with ProvisioningRequests.

In each loop it fits such pods on what is free, and on the nodes that it has asked for and that are not there yet. For
the rest it asks for nodes, which come one at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Self

from tests.e2e.world import Object, World

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/{}/provisioningrequests"
_PAUSE = 0.1


class Autoscaler:
    """Runs in a thread while it is open."""

    def __init__(self, world: World, cores: int) -> None:
        """Its nodes have so many cores; all pods ask for one."""
        self._world = world
        self._cores = cores
        #: how many nodes it has asked for, and how many of them are there
        self.asked = 0
        self.made = 0
        #: how often it has looked
        self.loops = 0
        #: what it answers to the next requests; Provisioned when there is nothing left
        self.answers: list[str] = []
        self._answered: set[str] = set()
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="autoscaler")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                self._scale()
                self._answer()
                if self.made < self.asked:
                    self._world.nodes(1, cpu=str(self._cores), prefix=f"scaled-{self.made}")
                    self.made += 1
                self.loops += 1
        except BaseException as error:
            self._failed = error

    def _scale(self) -> None:
        pods = self._world.items(f"/api/v1/namespaces/{self._world.namespace}/pods")
        nodes = [node["metadata"]["name"] for node in self._world.items("/api/v1/nodes")]
        held = Counter(pod["spec"].get("nodeName") or pod.get("status", {}).get("nominatedNodeName") for pod in pods)
        free = sum(self._cores - held[node] for node in nodes) + self._cores * (self.asked - self.made)
        lacking = sum(map(_is_unschedulable, pods)) - free
        self.asked += max(0, -(-lacking // self._cores))

    def _answer(self) -> None:
        path = REQUESTS.format(self._world.namespace)
        found = self._world.api.get(path)
        for request in found.json()["items"] if found.is_success else ():
            name = request["metadata"]["name"]
            if name in self._answered:
                continue
            self._answered.add(name)
            answer = self.answers.pop(0) if self.answers else "Provisioned"
            if answer == "Provisioned":
                self.asked += -(-sum(each["count"] for each in request["spec"]["podSets"]) // self._cores)
            said = {"type": answer, "status": "True", "reason": answer, "message": "as the test says"}
            said["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            headers = {"Content-Type": "application/merge-patch+json"}
            status = {"status": {"conditions": [said]}}
            self._world.api.patch(f"{path}/{name}/status", json=status, headers=headers).raise_for_status()


def _is_unschedulable(pod: Object) -> bool:
    """Whether an autoscaler looks at a pod: it has no node, and more nodes would help."""
    if pod["spec"].get("nodeName") or pod.get("status", {}).get("nominatedNodeName"):
        return False
    conditions = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each.get("reason")) == ("PodScheduled", "Unschedulable") for each in conditions)
