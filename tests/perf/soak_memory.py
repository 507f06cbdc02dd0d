"""Short-lived pods, each unlike all others: what they leave behind in memory.

`python -m tests.perf.soak_memory [PODS] [NODES]` prints the resident memory and the sizes of all tables as it goes, by
default over 1,000,000 pods on 1,000 nodes; it fails when memory ends more than 20 % above where it was when the first
pods had gone.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from pathlib import Path
from typing import Any

from stromboli.discovery import discover
from stromboli.engine import Engine, Successive
from stromboli.framework.cluster.environment import Environment
from stromboli.state.cluster import ClusterState
from tests.builders import NOON, node, pod, pod_group, queue, state

#: pods that are there at a time
_ALIVE = 200
#: pods from one session to the next
_BETWEEN_SESSIONS = 1_000
_ALLOWED_GROWTH = 1.2


class Churn:
    """A cluster whose pods come and go."""

    def __init__(self, nodes: int = 2) -> None:
        self.state = state(queue("default"), [node(f"n{number}") for number in range(nodes)])
        self._alive: deque[tuple[str, str]] = deque()
        self._made = 0
        self._decider = Successive(Engine(_policy()), Environment())

    def run(self, pods: int) -> None:
        """Create so many pods, and delete those that were created before the last few."""
        for _ in range(pods):
            self._create(self._made)
            self._made += 1
            while len(self._alive) > 2 * _ALIVE:
                self.state.delete(*self._alive.popleft())
            if self._made % _BETWEEN_SESSIONS == 0:
                self._decider.decide(self.state.snapshot(), now=NOON)

    def drain(self) -> None:
        """Delete all pods that are left, and hold a session."""
        while self._alive:
            self.state.delete(*self._alive.popleft())
        self._decider.decide(self.state.snapshot(), now=NOON)

    def _create(self, number: int) -> None:
        name = f"p{number}"
        self.state.upsert("PodGroup", pod_group(name))
        self.state.upsert("Pod", pod(name, name, **_peculiarity(number)))
        self._alive.extend((("Pod", f"default/{name}"), ("PodGroup", f"default/{name}")))


def _peculiarity(number: int) -> dict[str, Any]:
    """What makes a pod unlike all others, in one of six ways."""
    match number % 6:
        case 0:
            return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}]}
        case 1:
            return {"nodeSelector": {f"key-{number}": "value"}}
        case 2:
            return {"resources": {f"example.com/r{number}-{each}": "1" for each in range(10)}}
        case 3:
            return {"node": f"nowhere-{number}"}
        case 4:
            term = {"topologyKey": f"key-{number}", "labelSelector": {"matchLabels": {"app": f"app-{number}"}}}
            affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            return {"affinity": affinity, "labels": {"app": f"app-{number}"}}
    return {"resourceClaims": [{"name": "c", "resourceClaimName": f"claim-{number}"}], "cpu": f"{number}m"}


def sizes(cluster: ClusterState) -> dict[str, int]:
    """How much there is of all that pods bring with them."""
    return {
        "pods": cluster.pods.size,
        "classes": len(cluster.classes.classes),
        "jobs": len(cluster.jobs.pod_groups),
        "columns": len(cluster.dimensions) - 3,
        "strays": cluster.occupancy.strays,
        "assumed": len(cluster.assumed),
    }


def _policy() -> str:
    """All plugins that need no server and go together."""
    names = sorted(set(discover().plugins) - {"extender", "fairshare"})
    lines = ["actions: 'enqueue, allocate, preempt, reclaim, backfill'", "tiers:", "- plugins:"]
    return "\n".join([*lines, *(f"  - name: {name}" for name in names)])


def _resident() -> float:
    """The memory of this process, MiB."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmRSS")


def main(pods: int = 1_000_000, nodes: int = 1_000) -> int:
    """Run it; returns the exit code."""
    churn = Churn(nodes)
    steps = 20
    churn.run(pods // steps)
    churn.drain()
    first = now = _resident()
    for step in range(1, steps + 1):
        print(f"{step * pods // steps:>9} pods  {now:7.1f} MiB  {sizes(churn.state)}", flush=True)
        if step < steps:
            churn.run(pods // steps)
            churn.drain()
            now = _resident()
    print(f"{now / first - 1:+.1%}")
    return int(now > first * _ALLOWED_GROWTH)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
