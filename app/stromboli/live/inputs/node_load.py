"""The measured load of nodes, from a Prometheus server that scrapes node_exporter.

The label `instance` of the series must be the name of the node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from stromboli.framework.cluster.environment import NodeUsage
from stromboli.live.inputs import prometheus
from stromboli.policy.model import Policy

#: percent, over the last 10 minutes
_CPU = 'avg_over_time((100 - 100 * avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m])))[10m:30s])'
_MEMORY = (
    "avg_over_time((100 - 100 * avg by (instance) "
    "(node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes))[10m:30s])"
)

Loads = Mapping[str, NodeUsage]


async def follow(policy: Callable[[], Policy], tell: Callable[[Loads], None]) -> None:
    """Read the load at the interval of the policy in force, and when that changes, until cancelled."""
    await prometheus.follow(
        "load of nodes", policy, lambda current: read(current.metrics) if current.metrics else None, tell
    )


async def read(metrics: Mapping[str, str]) -> Loads:
    """The load of each node that has both series. Raises the errors of `prometheus.query`."""
    cpu, memory = [_by_node(samples) for samples in await prometheus.query(metrics, _CPU, _MEMORY)]
    now = time.time()
    return {
        name: NodeUsage(max(0.0, cpu[name]), max(0.0, memory[name]), now) for name in sorted(cpu.keys() & memory.keys())
    }


def _by_node(samples: Sequence[prometheus.Sample]) -> dict[str, float]:
    return {labels.get("instance", ""): value for labels, value in samples}
