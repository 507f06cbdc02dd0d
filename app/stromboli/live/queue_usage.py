"""What queues held over time, from a Prometheus that scrapes this service, when fairshare is to count that.

The average of `stromboli_queue_cluster_part` over the window: what a queue holds, as a part of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from stromboli.live import prometheus
from stromboli.plugins.fairshare import FairShareArguments
from stromboli.policy.document import Policy

#: by queue and resource, 0 to 1
Usage = Mapping[str, Mapping[str, float]]


async def follow(policy: Callable[[], Policy], tell: Callable[[Usage], None]) -> None:
    """Until cancelled, read usage each interval while the policy asks for it."""
    await prometheus.follow("usage of queues", policy, _read, tell)


def _read(policy: Policy) -> Coroutine[Any, Any, Usage] | None:
    window = window_of(policy)
    return None if window is None else read(policy.metrics, window)


def window_of(policy: Policy) -> float | None:
    """The seconds over which a policy wants usage from Prometheus; None when it does not."""
    for tier in policy.tiers:
        for option in tier.plugins:
            arguments = option.arguments
            if isinstance(arguments, FairShareArguments) and arguments.usage_source == "prometheus":
                return arguments.usage_window
    return None


async def read(metrics: Mapping[str, str], window: float) -> Usage:
    """What each queue held on average over the last `window` seconds. Raises what `prometheus.query` raises."""
    expression = f"avg by (queue, resource) (avg_over_time(stromboli_queue_cluster_part[{window:.0f}s]))"
    (samples,) = await prometheus.query(metrics, expression)
    usage: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for labels, value in samples:
        usage[labels.get("queue", "")][labels.get("resource", "")] = max(0.0, value)
    return usage
