"""Two replicas of the service on a real control plane, with everything going wrong by a seeded plan.

Requests and watches are disturbed by a proxy for each replica, and the replicas are frozen, killed and cut off, while
a hostile tenant does what may delay or harm the others.

`python -m tests.faults.soak --minutes 30 --seed 1` prints what was injected and what was seen.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml

from stromboli.api import crd_schema
from tests.controlplane.build import Binaries, control_plane
from tests.controlplane.cluster import Cluster
from tests.e2e.audit import Audit
from tests.e2e.service import Service, cpu_seconds, rss
from tests.e2e.world import World, define
from tests.faults.hostile import Hostile
from tests.faults.plan import Plan
from tests.faults.proxy import FaultProxy
from tests.faults.workload import Workload

_PERIOD = 0.5
#: pods that fit on a node
_ROOM = 10
#: seconds between the end of one disturbance and the next, and how long it lasts
_PAUSES = (6.0, 12.0)
_LASTS = (1.0, 12.0)
_CALM = 90.0  # seconds in the end without disturbances
_IDLE = 20.0  # seconds of a span over which an idle process is measured
_SPANS = 4
_AT_REST = 1.0  # percent of a CPU
_JOURNAL = 32.0  # MiB that the journal may have in memory


class Replica:
    """One process of the service behind its proxy, started anew whenever it has ended."""

    def __init__(self, cluster: Cluster, plan: Plan, directory: Path, name: str) -> None:
        self.name = name
        self.proxy = FaultProxy(cluster, plan, directory / f"{name}.kubeconfig")
        self.exits: Counter[int] = Counter()
        self._directory = directory
        self._again = 0.0
        self.service = self._start()

    def _start(self) -> Service:
        kubeconfig = self._directory / f"{self.name}.kubeconfig"
        return Service(kubeconfig, self._directory / f"{self.name}.log", "--leader-elect", "--binds-per-second", "200")

    def keep_running(self) -> None:
        """As a kubelet does, a second after its end."""
        if self.service.running:
            self._again = time.monotonic() + 1.0
        elif time.monotonic() > self._again:
            self.exits[self.service.end()] += 1
            self.service = self._start()

    def signal(self, number: signal.Signals) -> None:
        if self.service.running:
            os.kill(self.service.pid, number)

    @property
    def ready(self) -> bool:
        try:
            return self.service.http.get("/readyz").is_success
        except httpx.HTTPError:
            return False

    @property
    def leads(self) -> bool:
        try:
            return self.service.metric("stromboli_leading") == 1
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self.service.end()
        self.proxy.stop()


@dataclass(slots=True)
class Report:
    """What was injected and what was seen; `problems` are the invariants that did not hold."""

    injected: Counter[str]
    rows: dict[str, str]
    problems: list[str] = field(default_factory=list)

    def table(self) -> str:
        """For people."""
        faults = [f"| {fault} | {times} |" for fault, times in sorted(self.injected.items())]
        rows = [f"| {what} | {value} |" for what, value in self.rows.items()]
        return "\n".join(["| fault | times |", "|---|---|", *faults, "", "| seen | |", "|---|---|", *rows])


class Disturbances:
    """Freezes, kills and cuts off one replica at a time, while the other can take its place."""

    def __init__(self, replicas: list[Replica], seed: int, injected: Counter[str]) -> None:
        self._replicas = replicas
        self._chance = random.Random(f"{seed} disturbances")
        self._injected = injected
        self._next = time.monotonic() + self._chance.uniform(*_PAUSES)
        self._undo: Callable[[], None] | None = None

    def step(self) -> None:
        """Begin or end what is due."""
        if self._undo is None and not all(replica.ready for replica in self._replicas):
            self._next = max(self._next, time.monotonic() + _PAUSES[0])
        if time.monotonic() >= self._next:
            if self._undo is None:
                self._begin()
            else:
                self.end()

    def end(self) -> None:
        """Undo what lasts."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        self._next = time.monotonic() + self._chance.uniform(*_PAUSES)

    def _begin(self) -> None:
        self._next = time.monotonic() + self._chance.uniform(*_LASTS)
        kind, wants_leader = self._chance.choice(("freeze", "kill", "cut")), self._chance.random() < 0.8
        replica = next((r for r in self._replicas if r.leads == wants_leader), self._replicas[0])
        self._injected[f"{kind} {'leader' if wants_leader else 'standby'}"] += 1
        if kind == "freeze":
            replica.signal(signal.SIGSTOP)
            self._undo = lambda: replica.signal(signal.SIGCONT)
        elif kind == "cut":
            replica.proxy.cut()
            self._undo = replica.proxy.join
        else:
            replica.signal(signal.SIGKILL)
            self._undo = lambda: None


def soak(binaries: Binaries, directory: Path, *, seed: int, seconds: float) -> Report:
    """Disturb a cluster of its own for a while, then let everything come to rest, and judge."""
    audit = Audit(directory)
    with Cluster(binaries, apiserver_args=audit.apiserver_args) as cluster:
        cluster.start_controller_manager()
        cluster.start_kwok()
        with cluster.client() as api:
            define(api, [yaml.safe_load(text) for text in crd_schema.files().values()])
        return _soak(cluster, audit, directory, seed, seconds)


def _soak(cluster: Cluster, audit: Audit, directory: Path, seed: int, seconds: float) -> Report:
    world, plan = World(cluster, "soak"), Plan(seed)
    world.begin()
    # Room for all gangs, for what the hostile queue may have, and for its pods whose PodGroup was deleted.
    workload = Workload(world, seed, gangs=30, size=20, nodes=66, room=_ROOM, dwell=10.0)
    hostile = Hostile(World(cluster, "hostile"), seed, cpus=20, room=_ROOM)
    replicas = [Replica(cluster, plan, directory, name) for name in ("one", "two")]
    try:
        memory = _disturb(workload, hostile, replicas, Disturbances(replicas, seed, plan.injected), seconds)
        plan.active = False
        hostile.leave()
        rest = _settle(workload, replicas)
        idle = _idle(replicas)
    finally:
        for replica in replicas:
            replica.stop()
    report = _judge(workload, hostile, plan, rest, idle, memory, audit)
    report.rows["replicas that ended by themselves"] = str(dict(sum((r.exits for r in replicas), Counter())))
    return report


def _disturb(
    workload: Workload, hostile: Hostile, replicas: list[Replica], disturbances: Disturbances, seconds: float
) -> list[float]:
    """Returns the larger resident set of the two processes, in MiB, at each sixth of the time."""
    began, memory = time.monotonic(), [0.0]
    while (elapsed := time.monotonic() - began) < seconds:
        workload.step()
        hostile.step([replica.service.url for replica in replicas])
        disturbances.step()
        for replica in replicas:
            replica.keep_running()
        if elapsed > len(memory) * seconds / 6:
            memory.append(_memory(replicas))
        time.sleep(_PERIOD)
    disturbances.end()
    return [*memory[1:], _memory(replicas)]


def _settle(workload: Workload, replicas: list[Replica]) -> float:
    """Seconds until everything has its place, infinite when that never comes."""
    began = time.monotonic()
    while time.monotonic() < began + _CALM:
        workload.step(churn=False)
        for replica in replicas:
            replica.keep_running()
        if workload.whole:
            return time.monotonic() - began
        time.sleep(_PERIOD)
    return float("inf")


def _idle(replicas: list[Replica]) -> float:
    """The part of a CPU that the busier replica uses while nothing happens, in percent."""
    # What was written about the last changes may still be under way in the first spans.
    spans: list[float] = []
    while len(spans) < _SPANS and min(spans, default=_AT_REST) >= _AT_REST:
        before = [cpu_seconds(replica.service.pid) for replica in replicas]
        time.sleep(_IDLE)
        used = [cpu_seconds(replica.service.pid) for replica in replicas]
        spans.append(100 * max(b - a for a, b in zip(before, used, strict=True)) / _IDLE)
    return min(spans)


def _memory(replicas: list[Replica]) -> float:
    return max(rss(replica.service.pid) for replica in replicas if replica.service.running) / 2**20


def _judge(
    workload: Workload, hostile: Hostile, plan: Plan, rest: float, idle: float, memory: list[float], audit: Audit
) -> Report:
    seen = workload.seen
    accepted = max([*audit.accepted("soak").values(), *audit.accepted("hostile").values()], default=0)
    gang, partial = max(seen.partial.items(), key=lambda item: item[1], default=("none", 0.0))
    rows = {
        "gangs of 20 pods": f"{workload.gangs}",
        "bindings": f"{seen.bindings}",
        "bound twice": f"{max(0, accepted - 1)}",
        "pods that moved": f"{len(seen.moved)}",
        "nodes over their allocatable": f"{len(seen.over) + len(hostile.over)}",
        "times the hostile queue was above its capability": f"{len(hostile.above)}",
        "what the hostile tenant did": ", ".join(f"{what}: {times}" for what, times in sorted(hostile.did.items())),
        "gangs seen in part": f"{len(seen.partial)}, for at most {partial:.1f} s ({gang})",
        "pods evicted": f"{seen.evicted}",
        "all bound after the last fault": f"{rest:.1f} s",
        "resident memory by sixth of the time": ", ".join(f"{mib:.0f} MiB" for mib in memory),
        "idle CPU": f"{idle:.2f} %",
    }
    holds = {
        "everything that fits is bound": rest < _CALM,
        "nothing is bound twice": accepted <= 1 and not seen.moved,
        "no node is over": not seen.over and not hostile.over,
        "no queue is above its capability": not hostile.above,
        "no gang is partial for longer than 10 s": partial <= 10.0,
        # A leader that was killed leaves another, which has less at first, and its journal fills all the while.
        "memory is flat": memory[-1] <= 1.2 * max(memory[: len(memory) // 2 + 1]) + _JOURNAL,
        "idle CPU is below 1 %": idle < _AT_REST,
    }
    return Report(plan.injected, rows, [what for what, so in holds.items() if not so])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    report = soak(control_plane(), directory, seed=options.seed, seconds=60 * options.minutes)
    print(f"{report.table()}\n\nlogs in {directory}")
    if report.problems:
        sys.exit("does not hold: " + "; ".join(report.problems))


if __name__ == "__main__":
    main()
