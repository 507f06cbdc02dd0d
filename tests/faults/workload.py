"""Gangs that come and go, and what must never be seen of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import msgspec
from msgspec import Struct

from tests.e2e.watch import GROUP
from tests.e2e.world import World, pod


class _Metadata(Struct, rename="camel"):
    name: str
    uid: str
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Spec(Struct, rename="camel"):
    node_name: str = ""


class _Pod(Struct):
    metadata: _Metadata
    spec: _Spec


class _List(Struct):
    items: list[_Pod]


@dataclass(slots=True)
class Sightings:
    """What was seen from outside, straight from the API server. Times are in seconds."""

    bindings: int = 0
    #: pods that were seen on one node and then on another, or on none
    moved: list[str] = field(default_factory=list)
    #: nodes with more pods than fit, each time they were looked at
    over: list[str] = field(default_factory=list)
    #: the longest time for which each gang was bound in part
    partial: dict[str, float] = field(default_factory=dict)
    #: pods that were deleted by others than the workload
    evicted: int = 0


class Workload:
    """`gangs` gangs of `size` pods of one CPU; those that ran a while are replaced, and their lost pods as well."""

    def __init__(self, world: World, seed: int, *, gangs: int, size: int, nodes: int, room: int, dwell: float) -> None:
        """`room` pods fit on each of `nodes`; a gang stays about `dwell` seconds once it is whole."""
        self.seen = Sightings()
        self._world = world
        self._chance = random.Random(seed)
        self._size = size
        self._room = room
        self._dwell = dwell
        self._serial = 0
        self._path = f"/api/v1/namespaces/{world.namespace}/pods"
        #: pods of each gang that should be there
        self._gangs: dict[str, set[str]] = {}
        #: when each whole gang goes
        self._ends: dict[str, float] = {}
        #: since when each gang is bound in part
        self._begun: dict[str, float] = {}
        #: node of each bound pod, by uid
        self._nodes: dict[str, str] = {}
        world.nodes(nodes, cpu=str(room))
        for _ in range(gangs):
            self._create()

    def step(self, *, churn: bool = True) -> None:
        """Look once, and have gangs come and go."""
        try:
            content = self._world.api.get(self._path).raise_for_status().content
        except httpx.HTTPError:
            return
        pods = [p for p in msgspec.json.decode(content, type=_List).items if not p.metadata.deletion_timestamp]
        self._look(pods)
        self._replace_lost(pods)
        if churn:
            self._replace_old()

    @property
    def whole(self) -> bool:
        """Whether all pods of all gangs had a node when last looked at."""
        return len(self._ends) == len(self._gangs)

    @property
    def gangs(self) -> int:
        """How many gangs there have been."""
        return self._serial

    def _look(self, pods: list[_Pod]) -> None:
        now = time.monotonic()
        for p in pods:
            before, node = self._nodes.get(p.metadata.uid, ""), p.spec.node_name
            self.seen.bindings += bool(node and not before)
            if before and before != node:
                self.seen.moved.append(p.metadata.name)
        self._nodes = {p.metadata.uid: p.spec.node_name for p in pods if p.spec.node_name}
        counts = Counter(self._nodes.values())
        self.seen.over += [node for node, count in counts.items() if count > self._room]
        bound = Counter(p.metadata.annotations[GROUP] for p in pods if p.spec.node_name)
        for gang in self._gangs:
            self._judge(gang, bound[gang], now)

    def _judge(self, gang: str, bound: int, now: float) -> None:
        if bound >= self._size:
            self._ends.setdefault(gang, now + self._dwell * self._chance.uniform(0.5, 1.5))
        if 0 < bound < self._size and gang not in self._ends:
            since = self._begun.setdefault(gang, now)
            self.seen.partial[gang] = max(self.seen.partial.get(gang, 0.0), now - since)
        else:
            self._begun.pop(gang, None)

    def _replace_lost(self, pods: list[_Pod]) -> None:
        """As the controller of a gang does; a pod never has the name of one that was there before."""
        there = {p.metadata.name for p in pods}
        for gang, names in self._gangs.items():
            lost = names - there
            self.seen.evicted += len(lost)
            if lost:
                names -= lost
                self._ends.pop(gang, None)
                self._add_pods(gang, len(lost))

    def _replace_old(self) -> None:
        for gang in [gang for gang, end in self._ends.items() if end < time.monotonic()]:
            del self._ends[gang]
            for name in self._gangs.pop(gang):
                self._world.api.delete(f"{self._path}/{name}", params={"gracePeriodSeconds": "0"})
            self._world.delete_group(gang)
            self._create()

    def _create(self) -> None:
        self._serial += 1
        gang = f"gang-{self._serial}"
        self._gangs[gang] = set()
        self._world.group(gang, self._size)
        self._add_pods(gang, self._size)

    def _add_pods(self, gang: str, count: int) -> None:
        names = [f"{gang}-{self._chance.getrandbits(32):08x}" for _ in range(count)]
        self._gangs[gang].update(names)
        self._world.pods([pod(name, gang) for name in names])
