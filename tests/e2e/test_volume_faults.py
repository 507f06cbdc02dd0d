"""Gangs whose claims wait for their first consumer, while the service, pods, claims, volumes and nodes come and go."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.controlplane.cluster import eventually
from tests.e2e.audit import Audit
from tests.e2e.conftest import Start
from tests.e2e.disks import Disks, Order, node_of, pod_with_claims
from tests.e2e.provisioner import MERGE_PATCH, PROVISIONER, VOLUMES, Provisioner, volume
from tests.e2e.watch import PodWatch
from tests.e2e.world import CORE, Object, World

pytestmark = pytest.mark.e2e

_GANGS, _MEMBERS = 8, 8
#: on each node, enough for claims that are deleted, whose volumes serve no others, and made again
_VOLUMES = 112
_NODES = [f"disk-{number}" for number in range(4)]
#: faults of one run
_FAULTS = 24
#: runs, each with a seed of its own
RUNS = int(os.environ.get("STROMBOLI_VOLUME_RUNS", "3"))


class Havoc:
    """Faults, chosen by a seed."""

    def __init__(self, disks: Disks, provisioner: Provisioner, start: Start, seed: int) -> None:
        self.world, self.disks, self.provisioner, self._start = disks.world, disks, provisioner, start
        self._random = random.Random(seed)
        self._pods = f"{CORE}/namespaces/{self.world.namespace}/pods"
        #: claims that were deleted and made again
        self.again: set[str] = set()
        #: pods of gangs that were bound in part when the service was killed, and that the next one evicted
        self.evicted: set[str] = set()
        self._taken = 0
        self._service = start("--binds-per-second", "40")
        self._faults: list[Callable[[], None]] = [
            *(self.kill, self.cordon, self.taint, self.lose_a_node, self.delete_a_pod, self.delete_a_pod),
            *(self.take_a_volume, self.delete_a_claim, self.delete_a_class, self.refuse, self.refuse),
        ]

    def go_on(self) -> None:
        """One fault, and some time after it."""
        self._random.choice(self._faults)()
        time.sleep(self._random.random() * 0.8)

    def end(self) -> None:
        """All nodes are usable again, and the provisioner refuses none."""
        self.provisioner.takes, self.provisioner.refusing = 0.0, set()
        for node in _NODES:
            self._change(node, unschedulable=False, taints=[])

    def has_all(self, names: Iterable[str]) -> bool:
        """Whether all pods have a node; those that were evicted are made again, as their controller would."""
        there = {name_of(each): each for each in self.world.items(self._pods)}
        for name in set(names) - there.keys():
            self.evicted.add(name)
            self.world.pods([member(name)])
        left = [each for each in there.values() if "deletionTimestamp" in each["metadata"] or not placed(each)]
        return not left and there.keys() >= set(names)

    def seen(self) -> str:
        """The pods without a node, all claims, nodes and volumes, and the end of the service's log."""
        waiting = [each for each in self.world.items(self._pods) if not placed(each)]
        found = [*waiting, *self.disks.all(), *self.world.items(f"{CORE}/nodes")]
        for each in found:
            each["metadata"].pop("managedFields", None)
        volumes = [
            f"{name_of(each)} on {node_of(each)}: {each['status']} {each['spec'].get('claimRef', {}).get('name')}"
            for each in self.world.items(VOLUMES)
        ]
        return "\n".join([*map(str, found), *volumes, self._service.text[-20_000:]])

    def kill(self) -> None:
        self._service.end(signal.SIGKILL)
        self._service = self._start("--binds-per-second", "40", wait=self._random.random() < 0.7)

    def cordon(self) -> None:
        self._change(self._random.choice(_NODES), unschedulable=self._random.random() < 0.5)

    def taint(self) -> None:
        taint = {"key": "broken", "effect": "NoSchedule"}
        self._change(self._random.choice(_NODES), taints=[taint] * (self._random.random() < 0.5))

    def lose_a_node(self) -> None:
        """It comes again a moment later, as another one of its name."""
        place = f"{CORE}/nodes/{self._random.choice(_NODES)}"
        found = self.world.get(place)
        self.world.api.delete(place).raise_for_status()
        time.sleep(self._random.random())
        kept = {"metadata": ("name", "labels"), "status": ("capacity", "allocatable")}
        manifest = {part: {field: found[part][field] for field in fields} for part, fields in kept.items()}
        self.world.create(f"{CORE}/nodes", manifest)

    def delete_a_pod(self) -> None:
        """It comes again, at once or a moment later."""
        for each in self._some(self._pods, lambda pod: not placed(pod)):
            if self._delete(self._pods, each):
                time.sleep(self._random.choice((0.0, self._random.random())))
                self.world.pods([member(name_of(each))])

    def take_a_volume(self) -> None:
        for each in self._some(VOLUMES, lambda found: found["status"].get("phase") == "Available"):
            self._taken += 1
            claim = self.disks.claim(f"theirs-{self._taken}", "local")
            claim["spec"]["volumeName"] = name_of(each)
            self.disks.claim_all([claim])

    def delete_a_claim(self) -> None:
        for each in self._some(self.disks.claims, lambda claim: not claim["spec"].get("volumeName")):
            name = name_of(each)
            if self._delete(self.disks.claims, each):
                self.again.add(name)
                self.disks.claim_all([self.disks.claim(name, class_of(name))])

    def delete_a_class(self) -> None:
        # Without its class a claim waits for no pod: Kubernetes binds it to a volume that is there, on any node.
        self.disks.delete_class("made")
        time.sleep(self._random.random())
        self.disks.storage_class("made", PROVISIONER)

    def refuse(self) -> None:
        self.provisioner.takes = self._random.choice((0.0, 0.05, 0.3))
        self.provisioner.refusing = {node for node in _NODES if self._random.random() < 0.4}

    def _delete(self, path: str, found: Object) -> bool:
        """Delete an object and return true, unless it has changed since it was listed: it may have been bound."""
        place = f"{path}/{name_of(found)}"
        as_listed = {"resourceVersion": found["metadata"]["resourceVersion"]}
        options = {"gracePeriodSeconds": 0, "preconditions": as_listed}
        answer = self.world.api.request("DELETE", place, json=options)
        if answer.status_code == 409:
            return False
        answer.raise_for_status()
        eventually(lambda: self.world.api.get(place).status_code == 404)
        return True

    def _some(self, path: str, holds: Callable[[Object], bool]) -> Iterator[Object]:
        """One object of a list, if there is one."""
        found = [each for each in self.world.items(path) if holds(each)]
        if found:
            yield self._random.choice(found)

    def _change(self, node: str, **spec: Any) -> None:
        self.world.api.patch(f"{CORE}/nodes/{node}", json={"spec": spec}, headers=MERGE_PATCH).raise_for_status()


def name_of(found: Object) -> str:
    return str(found["metadata"]["name"])


def placed(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def member(name: str) -> Object:
    """A pod of a gang, in which every fourth has no claims."""
    claims = [f"{name}-there", f"{name}-made"] if int(name.rpartition("-")[2]) % 4 else []
    return pod_with_claims(name, *claims, group=name.rpartition("-")[0])


def class_of(claim: str) -> str:
    return claim.rpartition("-")[2].replace("there", "local")


@pytest.mark.parametrize("seed", range(RUNS))
def test_gangs_start_whole_in_the_end_and_nothing_stays_reserved(
    world: World, disks: Disks, provisioner: Provisioner, start: Start, audit: Audit, seed: int
) -> None:
    world.api.delete(f"{CORE}/nodes").raise_for_status()
    world.nodes(len(_NODES), cpu="64", prefix="disk")
    disks.volumes([volume(f"v{number}", _NODES[number % 4], "local") for number in range(_VOLUMES * len(_NODES))])
    for gang in range(_GANGS):
        world.group(f"gang-{gang}", _MEMBERS)
    pods = [member(f"gang-{gang}-{number}") for gang in range(_GANGS) for number in range(_MEMBERS)]
    claims_of = {pod["metadata"]["name"]: list(claimed(pod)) for pod in pods}
    disks.claim_all([disks.claim(each, class_of(each)) for claims in claims_of.values() for each in claims])
    havoc = Havoc(disks, provisioner, start, seed)
    havoc.refuse()
    with Order(disks) as order, PodWatch(world.cluster, world.namespace) as watch:
        world.pods(pods)
        for _ in range(_FAULTS):
            havoc.go_on()
        havoc.end()
        eventually(lambda: havoc.has_all(claims_of), 120, havoc.seen)
        order.check({pod: [each for each in claims if each not in havoc.again] for pod, claims in claims_of.items()})
    eventually(lambda: disks.reserved() == set(), 60)
    assert set(watch.moved) <= havoc.evicted
    twice = {pod for pod, times in audit.accepted(world.namespace).items() if times > 1}
    assert twice <= havoc.evicted
    found, nodes = disks.bound(), {each["metadata"]["name"]: node_of(each) for each in world.items(VOLUMES)}
    for pod, node in world.placed().items():
        assert {nodes[found[each]] for each in claims_of[pod]} <= {node}


def claimed(pod: Mapping[str, Any]) -> Iterator[str]:
    for each in pod["spec"]["volumes"]:
        yield each["persistentVolumeClaim"]["claimName"]
