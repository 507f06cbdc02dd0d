"""A tenant who does what may delay or harm others, within what an API server accepts."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.e2e.watch import GROUP
from tests.e2e.world import SCHEDULING, World

_QUEUE = "hostile"
_FINALIZER = "example.com/slow"
#: steps between a pod's deletion and its end, and its chance of being deleted in a step once it has a node
_SLOW, _ENDS = (6, 30), 0.1
#: pods that wait at most, and that are added and changed in a step
_MOST_WAITING, _ADDED, _FLAPPED = 300, 6, 6
_LONG = ",".join(f"x{number}" for number in range(2_000))


class Hostile:
    """Pods of one CPU each in a queue that is capped at `cpus`; `room` pods fit on each node of the cluster."""

    def __init__(self, world: World, seed: int, *, cpus: int, room: int) -> None:
        self.did: Counter[str] = Counter()
        #: CPUs that pods of PodGroups that exist held, pods that end included, each time it was above the capability
        self.above: list[int] = []
        #: nodes with more pods of all tenants than fit, each time they were looked at
        self.over: list[str] = []
        self._world = world
        self._chance = random.Random(f"{seed} hostile")
        self._cpus = cpus
        self._room = room
        self._serial = 0
        self._step = 0
        self._path = f"/api/v1/namespaces/{world.namespace}/pods"
        #: when each pod that ends does so, in steps
        self._ends: dict[str, int] = {}
        #: pods whose PodGroup was deleted before them
        self._orphans: set[str] = set()
        self._askers = ThreadPoolExecutor(2)
        self._asking = 0
        world.begin()
        world.queue(_QUEUE, capability={"cpu": str(cpus)})

    def step(self, services: Sequence[str]) -> None:
        """Look once, and be a nuisance; `services` are the URLs of the replicas."""
        self._step += 1
        try:
            pods = self._look()
            self._end([pod for pod in pods if pod["spec"].get("nodeName")])
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
            for _ in range(_ADDED if len(waiting) < _MOST_WAITING else 0):
                self._add()
            for pod in self._chance.sample(waiting, min(_FLAPPED, len(waiting))):
                self._flap(pod["metadata"]["name"])
            if self._step % 10 == 0:
                self._malform()
        except httpx.HTTPError:
            self.did["steps that failed"] += 1
        if self._asking < 4:
            self._ask(self._chance.choice(services))

    def leave(self) -> None:
        """Take everything away, however long the API server takes."""
        self._askers.shutdown(cancel_futures=True)
        while True:
            try:
                for pod in self._world.items(self._path):
                    self._release(pod["metadata"]["name"])
                self._world.api.delete(self._path, params={"gracePeriodSeconds": "0"}).raise_for_status()
                groups = f"{SCHEDULING}/namespaces/{self._world.namespace}/podgroups"
                self._world.api.delete(groups).raise_for_status()
                return
            except httpx.HTTPError:
                time.sleep(1)

    # -- what it does ------------------------------------------------------------------------------------------------

    def _look(self) -> list[Any]:
        """Its own pods."""
        pods = self._world.api.get("/api/v1/pods").raise_for_status().json()["items"]
        there = [pod for pod in pods if pod["spec"].get("nodeName")]
        counts = Counter(pod["spec"]["nodeName"] for pod in there)
        self.over += [node for node, count in counts.items() if count > self._room]
        own = [pod for pod in pods if pod["metadata"]["namespace"] == self._world.namespace]
        running = [pod["metadata"]["name"] for pod in own if pod["spec"].get("nodeName")]
        # A replica that starts later cannot know the queue of a pod whose PodGroup is gone, see SECURITY.md.
        known = [name for name in running if name not in self._orphans]
        if len(known) > self._cpus:
            self.above.append(len(known))
        elif len(running) > self._cpus:
            self.did["times above with pods whose PodGroup was deleted"] += 1
        return own

    def _add(self) -> None:
        """A pod that is like no other, in a PodGroup of its own or in none."""
        self._serial += 1
        name, number = f"odd-{self._serial}", self._serial
        annotations = {"scheduling.volcano.sh/queue-name": _QUEUE, "example.com/number": str(number)}
        if self._chance.random() < 0.5:
            self._world.api.post(f"{SCHEDULING}/namespaces/{self._world.namespace}/podgroups", json=_group(name))
            annotations[GROUP] = name
        term = {"matchExpressions": [{"key": f"no-{number}", "operator": "DoesNotExist"}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        self._post(name, annotations, f"{number}Ki", {"affinity": affinity})
        self.did["distinct pods"] += 1

    def _flap(self, name: str) -> None:
        labels = {"flap": str(self._chance.getrandbits(32)), f"key-{self._chance.randrange(1_000)}": "x"}
        self._world.api.patch(
            f"{self._path}/{name}",
            json={"metadata": {"labels": labels}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        self.did["changed labels"] += 1

    def _end(self, bound: list[Any]) -> None:
        """Delete some pods that run, and let those end that were deleted long enough ago."""
        for pod in bound:
            name = pod["metadata"]["name"]
            if name not in self._ends and self._chance.random() < _ENDS:
                self._world.api.delete(f"{self._path}/{name}", params={"gracePeriodSeconds": "30"})
                self._ends[name] = self._step + self._chance.randint(*_SLOW)
                # Of some the PodGroup goes first.
                if self._chance.random() < 0.5:
                    self._world.delete_group(name)
                    self._orphans.add(name)
                self.did["pods that end slowly"] += 1
        for name in [name for name, end in self._ends.items() if end < self._step]:
            self._release(name)
            del self._ends[name]

    def _release(self, name: str) -> None:
        self._world.api.patch(
            f"{self._path}/{name}",
            json={"metadata": {"finalizers": None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def _malform(self) -> None:
        """Objects that are more, or others, than can be scheduled with."""
        self._serial += 1
        name = f"malformed-{self._serial}"
        group = _group(name, minTaskMember={f"r{number}": 1 for number in range(2_000)})
        group["metadata"]["annotations"] = {"volcano.sh/task-topology-affinity": _LONG}
        self._world.api.post(f"{SCHEDULING}/namespaces/{self._world.namespace}/podgroups", json=group)
        strange = {"volcano.sh/cooldown-time": "9" * 1_000, "volcano.sh/vgpu-use-gpuuuid": _LONG}
        self._post(name, {GROUP: name, **strange}, "1Ki", {"tolerations": [{"operator": "Exists"}] * 300})
        self.did["malformed objects"] += 2

    def _post(self, name: str, annotations: dict[str, str], memory: str, spec: dict[str, Any]) -> None:
        requests = {"cpu": "1", "memory": memory}
        container = {"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}
        self._world.api.post(
            self._path,
            json={
                "metadata": {"name": name, "annotations": annotations, "finalizers": [_FINALIZER]},
                "spec": {"schedulerName": "stromboli", "containers": [container], **spec},
            },
        )

    def _ask(self, url: str) -> None:
        """What would be with many pods that are like no other."""
        self._asking += 1
        body = "\n---\n".join(map(json.dumps, _change(self._chance.randrange(10, 200))))
        self._askers.submit(
            self._asked,
            lambda: httpx.post(
                f"{url}/api/v1/whatif", content=body, timeout=5, headers={"Content-Type": "application/yaml"}
            ),
        )

    def _asked(self, ask: Callable[[], httpx.Response]) -> None:
        try:
            self.did[f"what-ifs answered {ask().status_code}"] += 1
        except httpx.HTTPError:
            self.did["what-ifs given up"] += 1
        finally:
            self._asking -= 1


def _group(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, "queue": _QUEUE, **spec},
    }


def _change(count: int) -> list[dict[str, Any]]:
    """Pods that are like no other."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"tried-{number}", "namespace": "hostile"},
            "spec": {
                "schedulerName": "stromboli",
                "containers": [
                    {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", "memory": f"{number}Ki"}}}
                ],
            },
        }
        for number in range(1, count)
    ]
